"""Failed messages of a transport that sends back at the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.failed_messages import FailedMessages
from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import Destination
from pointsman_client.core.route import BrokerData
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import BrokerRefusedError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.transport import SendReceipt
from tests.kit.client.memory_group import addr_of, queue_of, route_of


class Broker:
    """Records what is sent back, or refuses it, and what is sent as a new message."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.sent: list[tuple[str, int, str, int]] = []
        self.error: Exception | None = None
        self.hangs = False

    async def send_back(
        self, addr: str, _: ReceivedMessage, *, max_reconsume_times: int, delay_level: int = 0, **__: object
    ) -> None:
        self.calls.append((addr, max_reconsume_times, delay_level))
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], **_: object
    ) -> SendReceipt:
        self.sent.append((queue.topic, queue.queue_id, addr, messages[0].reconsume_times))
        return SendReceipt(SendStatus.SEND_OK, (0,))


class Hook(MetricsHook):
    def __init__(self) -> None:
        self.destinations: list[str] = []

    def sent_back(self, *, destination: str, **_: object) -> None:
        self.destinations.append(destination)


def failed(reconsume_times: int, *, broker_name: str = "b") -> ReceivedMessage:
    queue = queue_of(1, broker_name=broker_name)
    at = datetime(2026, 11, 23, tzinfo=UTC)
    return ReceivedMessage(Message("orders", b"body"), queue, 5, "id-1", at, reconsume_times)


def of_group(broker: Any, hook: MetricsHook, clock: ManualClock, *, masters: bool = True) -> FailedMessages:
    brokers: tuple[BrokerData, ...] = route_of("orders", {"a": 2, "b": 2}, ids=(0,) if masters else (1,)).broker_datas
    return FailedMessages(
        broker,
        group="billing",
        brokers=lambda: brokers,
        max_reconsume_times=3,
        timeout_seconds=0.1,
        clock=clock,
        hook=hook,
    )


async def test_a_message_goes_back_to_its_own_broker_and_at_last_to_the_dead_letters(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, hook = Broker(), Hook()
    messages = of_group(broker, hook, clock)
    for times in (0, 2, 3, 9):
        assert await messages.send(failed(times), "error")
    assert broker.calls == [(addr_of("b"), 3, level) for level in (0, 0, -1, -1)]
    assert hook.destinations == ["retry", "retry", "dlq", "dlq"]
    assert len([text for text in caplog.messages if "was moved to the dead letters" in text]) == 2


async def test_a_rejected_message_is_a_dead_letter_immediately_and_reported(clock: ManualClock) -> None:
    broker, hook = Broker(), Hook()
    messages = of_group(broker, hook, clock)
    assert await messages.send(failed(0), "no such order", is_rejected=True)
    assert broker.calls == [(addr_of("b"), 3, -1)]
    assert (hook.destinations, messages.sent) == (["dlq"], {Destination.DLQ: 1})


async def test_a_message_that_its_broker_does_not_move_is_sent_as_a_new_one(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, hook = Broker(), Hook()
    broker.error = BrokerRefusedError("b:1", 1, "SYSTEM_ERROR 1: look message by offset failed")
    for times in (1, 3):
        assert await of_group(broker, hook, clock).send(failed(times), "error")
    assert await of_group(broker, hook, clock).send(failed(0, broker_name="z"), "error")
    assert broker.sent == [
        ("%RETRY%billing", 0, addr_of("b"), 2),
        ("%DLQ%billing", 0, addr_of("b"), 4),
        ("%RETRY%billing", 0, addr_of("a"), 1),
    ]
    assert hook.destinations == ["retry", "dlq", "retry"]
    start = "message id-1 was not sent back for group billing; it is sent as a new message: broker "
    assert [text.removeprefix(start).partition(":")[0] for text in caplog.messages if start in text] == [
        "b",
        "b",
        "c1/z",
    ]


async def test_a_message_that_no_broker_accepts_is_kept(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    broker, hook = Broker(), Hook()
    assert not await of_group(broker, hook, clock, masters=False).send(failed(0), "error")
    assert "it is retried in this process" in caplog.text
    assert (broker.calls, broker.sent, hook.destinations) == ([], [], [])


async def test_a_broker_that_hangs_is_not_waited_for_beyond_the_timeout(clock: ManualClock) -> None:
    broker, hook = Broker(), Hook()
    broker.hangs = True
    async with asyncio.timeout(30):
        assert await of_group(broker, hook, clock).send(failed(0), "error")
    assert len(broker.sent) == 1
