"""Recall of delayed messages, over RocketMQ's protocol."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client import (
    BrokerRefusedError,
    BrokerUnreachableError,
    InvalidMessageError,
    InvalidOptionError,
    Message,
    Producer,
    TopicNotFoundError,
)
from pointsman_client.memory import MemoryTransport
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.group_broker import routed
from tests.kit.client.memory_group import RoutesInMemory


def handle_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


HANDLE = handle_of("v1 orders a 1795987812412 0A0B0C??>>")


class Shop:
    """A broker that gives every delayed message one handle, and a producer."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.routes = RoutesInMemory(clock)
        self.broker = FakeBroker(version=479)
        self.recalled: list[dict[str, str]] = []
        self.answer = Answer()
        self._send = self.broker.handlers[Request.SEND_MESSAGE_V2]
        self.broker.handlers[Request.SEND_MESSAGE_V2] = self._sent
        self.broker.handlers[Request.RECALL_MESSAGE] = self._recall

    async def _sent(self, command: Command, body: bytes) -> Answer:
        answer: Any = await self._send(command, body)  # type: ignore[misc]  # it is asynchronous
        if "TIMER_DELIVER_MS" in command.ext["i"]:
            answer.ext["recallHandle"] = HANDLE
        return answer  # type: ignore[no-any-return]

    async def _recall(self, command: Command, _: bytes) -> Answer:
        self.recalled.append(dict(command.ext))
        return self.answer

    def producer(self, **more: Any) -> Producer:
        transport = partial(RocketmqTransport, clock=self.clock)
        settings: dict[str, Any] = {"transport": transport, "clock": self.clock} | more
        return Producer(self.routes, **settings)

    def delayed(self) -> Message:
        return Message("orders", b"remind", deliver_at=self.clock.utc_now() + timedelta(hours=1))


@pytest.fixture
async def shop(clock: ManualClock) -> AsyncIterator[Shop]:
    made = Shop(clock)
    await made.broker.start()
    made.routes.set(routed("orders", {"a": made.broker.addr}))
    yield made
    await made.broker.stop()


async def test_a_delayed_message_is_recalled_by_the_handle_of_its_result_as_java_does(shop: Shop) -> None:
    async with shop.producer() as sending:
        result = await sending.send(shop.delayed())
    async with shop.producer() as another:
        await another.recall(result.recall_handle)
    (fields,) = shop.recalled
    expected = {"topic": "orders", "recallHandle": HANDLE, "bname": "a", "producerGroup": "POINTSMAN_PRODUCER"}
    assert fields | expected == fields
    assert result.recall_handle == HANDLE


async def test_a_message_that_is_not_delayed_has_no_handle(shop: Shop) -> None:
    async with shop.producer() as sending:
        assert (await sending.send(Message("orders", b"now"))).recall_handle == ""


async def test_a_broker_that_refuses_says_why(shop: Shop) -> None:
    shop.answer = Answer(Code.NO_PERMISSION, remark="recall failed, operation is forbidden")
    async with shop.producer() as sending:
        with pytest.raises(BrokerRefusedError, match="recall failed, operation is forbidden"):
            await sending.recall(HANDLE)


@pytest.mark.parametrize(
    "handle", ["", "no base64", "aGVsbG8=", handle_of("v2 orders a 1 id"), handle_of("v1 orders a 1"), "\N{SNOWMAN}"]
)
async def test_anything_but_a_handle_is_refused_before_any_request(shop: Shop, handle: str) -> None:
    async with shop.producer() as sending:
        with pytest.raises(InvalidMessageError, match="is not the handle of a delayed message"):
            await sending.recall(handle)


async def test_a_broker_that_is_gone_is_an_error(shop: Shop) -> None:
    async with shop.producer() as sending:
        with pytest.raises(BrokerUnreachableError, match="no route has its master"):
            await sending.recall(handle_of("v1 orders b 1 id"))
        with pytest.raises(TopicNotFoundError):
            await sending.recall(handle_of("v1 other a 1 id"))


async def test_other_brokers_cannot_recall(shop: Shop) -> None:
    async with shop.producer(transport=MemoryTransport(clock=shop.clock)) as sending:
        with pytest.raises(InvalidOptionError, match="cannot recall a message: use RocketMQ brokers"):
            await sending.recall(HANDLE)
