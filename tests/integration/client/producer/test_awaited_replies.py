"""Requests and their replies, over RocketMQ's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman_client import (
    BrokerRefusedError,
    ClientClosedError,
    InvalidMessageError,
    InvalidOptionError,
    Message,
    MessageQueue,
    NoReplyError,
    Producer,
    Reader,
    ReceivedMessage,
    RequesterGoneError,
    SendFailedError,
)
from pointsman_client.memory import MemoryTransport
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.broker.rocketmq.group_broker import routed
from tests.kit.broker.rocketmq.transaction_broker import TransactionBroker
from tests.kit.client.memory_group import CLUSTER, RoutesInMemory
from tests.kit.waiting import eventually

QUEUE = MessageQueue("orders", CLUSTER, "a", 0)


class Line:
    """A broker, and producers that ask and reply."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.routes = RoutesInMemory(clock)
        self.broker = TransactionBroker()
        self.transport = RocketmqTransport()
        self.read = 0

    async def start(self) -> None:
        await self.broker.start()
        for topic in ("orders", f"{CLUSTER}_REPLY_TOPIC"):
            self.routes.set(routed(topic, {"a": self.broker.addr}, queues=1))

    async def close(self) -> None:
        await self.transport.close()
        await self.broker.stop()

    def producer(self, **more: Any) -> Producer:
        return Producer(self.routes, **{"transport": self.transport, "clock": self.clock, **more})

    async def next_request(self) -> ReceivedMessage:
        """What a consumer reads next."""
        await self.broker.until_asked(Request.SEND_MESSAGE_V2, self.read + 1)
        pulled = await self.transport.pull(
            self.broker.addr,
            QUEUE,
            self.read,
            max_messages=1,
            wait_seconds=0.0,
            timeout_seconds=5.0,
            reader=Reader("x"),
        )
        self.read += 1
        (message,) = pulled.messages
        return message


@pytest.fixture
async def line(clock: ManualClock) -> AsyncIterator[Line]:
    made = Line(clock)
    await made.start()
    yield made
    await made.close()


async def test_each_request_gets_its_own_reply(line: Line) -> None:
    async with line.producer() as asking, line.producer() as replying:
        asked = [asyncio.create_task(asking.request(Message("orders", body))) for body in (b"1", b"2", b"3")]
        requests = [await line.next_request() for _ in asked]
        for request in reversed(requests):
            sent = await replying.reply(request, b"re " + request.body)
            assert sent.queue.topic == f"{CLUSTER}_REPLY_TOPIC"
        replies = await asyncio.gather(*asked)
    assert [reply.body for reply in replies] == [b"re 1", b"re 2", b"re 3"]
    assert {request.properties == {} for request in requests} == {True}
    assert [len({each.reply_address.client_id for each in requests if each.reply_address})] == [1]


async def test_in_a_namespace_the_reply_goes_to_the_brokers_own_topic_and_has_its_value(line: Line) -> None:
    class Text:
        def encode(self, value: str) -> bytes:
            return value.encode()

        def decode(self, body: bytes) -> str:
            return body.decode()

    line.routes.set(routed("SHOP%orders", {"a": line.broker.addr}, queues=1))
    async with line.producer(namespace="SHOP", serializer=Text()) as producer:
        asked = asyncio.create_task(producer.request(producer.message("orders", "1")))
        await line.broker.until_asked(Request.SEND_MESSAGE_V2, 1)
        queue = MessageQueue("SHOP%orders", CLUSTER, "a", 0)
        pulled = await line.transport.pull(
            line.broker.addr, queue, 0, max_messages=1, wait_seconds=0, timeout_seconds=5, reader=Reader("x")
        )
        sent = await producer.reply(pulled.messages[0], b"re 1")
        assert sent.queue.topic == f"{CLUSTER}_REPLY_TOPIC"
        assert (await asked).value == "re 1"


async def test_a_large_reply_is_decompressed(line: Line) -> None:
    async with line.producer() as producer:
        asked = asyncio.create_task(producer.request(Message("orders", b"1")))
        await producer.reply(await line.next_request(), b"x" * 10_000)
        assert (await asked).body == b"x" * 10_000


async def test_a_request_on_the_wire_is_that_of_java(line: Line) -> None:
    async with line.producer() as producer:
        asked = asyncio.create_task(producer.request(Message("orders", b"1"), timeout_seconds=2.5))
        request = await line.next_request()
        (sent,) = [each for each in line.broker.requests if each.code == Request.SEND_MESSAGE_V2]
        assert request.reply_address is not None
        client_id, correlation_id, ttl = request.reply_address
        assert (ttl, client_id in {*line.broker.producers["POINTSMAN_REQUESTS"].values()}) == ("2500", True)
        assert (
            f"CORRELATION_ID\x01{correlation_id}\x02REPLY_TO_CLIENT\x01{client_id}\x02TTL\x012500\x02" in sent.ext["i"]
        )
        await producer.reply(request, b"2")
        await asked
        (reply,) = [each for each in line.broker.requests if each.code == Request.SEND_REPLY_MESSAGE_V2]
        assert "MSG_TYPE\x01reply\x02" in reply.ext["i"]
        await eventually(lambda: line.broker.replies)
        assert [command.code for command, _ in line.broker.replies] == [Code.SUCCESS]


async def test_without_a_reply_the_request_ends_at_its_timeout_and_a_late_one_is_not_kept(line: Line) -> None:
    async with line.producer() as producer:
        asked = asyncio.create_task(producer.request(Message("orders", b"1"), timeout_seconds=2.0))
        request = await line.next_request()
        await eventually(asked.done, clock=line.clock)
        with pytest.raises(NoReplyError, match=rf"no reply to message {request.message_id} of orders within 2 s"):
            await asked
        await producer.reply(request, b"late")
        again = asyncio.create_task(producer.request(Message("orders", b"2")))
        await producer.reply(await line.next_request(), b"in time")
        assert (await again).body == b"in time"


async def test_a_reply_to_one_that_has_gone_names_it_and_blames_no_broker(line: Line) -> None:
    async with line.producer() as asking:
        asked = asyncio.create_task(asking.request(Message("orders", b"1")))
        request = await line.next_request()
    with pytest.raises(ClientClosedError):
        await asked
    async with line.producer() as replying:
        with pytest.raises(SendFailedError, match=r"channel of .* not found") as caught:
            await replying.reply(request, b"2")
        assert {type(each.error) for each in caught.value.tries} == {RequesterGoneError}
        isolations = replying.client.describe(f"{CLUSTER}_REPLY_TOPIC").get("isolations", [])
        assert [each for each in isolations if not each["available"]] == []


async def test_a_broker_that_does_not_accept_the_producer_is_the_error(line: Line) -> None:
    line.broker.answers[Request.HEART_BEAT] = Answer(Code.SYSTEM_ERROR, remark="no")
    async with line.producer() as producer:
        with pytest.raises(BrokerRefusedError, match="no"):
            await producer.request(Message("orders", b"1"))
    assert Request.SEND_MESSAGE_V2 not in line.broker.codes()


async def test_a_reply_reaches_a_producer_whose_connection_broke(line: Line) -> None:
    async with line.producer() as producer:
        asked = asyncio.create_task(producer.request(Message("orders", b"1"), timeout_seconds=60.0))
        request = await line.next_request()
        line.broker.close_connections()
        await eventually(lambda: not line.broker.producers["POINTSMAN_REQUESTS"])
        await eventually(lambda: line.broker.producers["POINTSMAN_REQUESTS"], clock=line.clock, what="a heartbeat")
        await producer.reply(request, b"2")
        assert (await asked).body == b"2"


async def test_a_message_that_awaits_no_reply_gets_none(line: Line) -> None:
    async with line.producer() as producer:
        await producer.send(Message("orders", b"1"))
        message = await line.next_request()
        assert message.reply_address is None
        with pytest.raises(InvalidMessageError, match="awaits no reply"):
            await producer.reply(message, b"2")
        with pytest.raises(InvalidMessageError, match="cannot be set in a request"):
            await producer.request(Message("orders", b"1", deliver_at=datetime.now(UTC)))


@pytest.mark.parametrize("transport", [RedisStreamsTransport, MemoryTransport])
async def test_brokers_without_requests_refuse_them_and_name_the_alternative(line: Line, transport: Any) -> None:
    async with line.producer(transport=transport) as producer:
        with pytest.raises(InvalidOptionError, match=r"has no requests and replies: .* another topic"):
            await producer.request(Message("orders", b"1"))
