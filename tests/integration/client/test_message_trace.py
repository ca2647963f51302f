"""Message trace in RocketMQ's format: records of sends and of listener calls, beside other hooks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client import Message, MessageQueue, OutgoingMessage, Producer, Reader, ReceivedMessage
from pointsman_client import message_trace as module
from pointsman_client.memory import MemoryTransport
from pointsman_client.message_trace import TRACE_TOPIC, MessageTrace
from pointsman_client.tracing_hook import NoteEnd
from tests.kit.broker.rocketmq.group_broker import routed
from tests.kit.client.memory_group import CLUSTER, RoutesInMemory
from tests.kit.waiting import eventually, read_until

ADDR = "10.0.0.1:10911"
PAID = Message("orders", b"4711 paid", tags="paid", keys=("4711", "a"))
RECEIVED = ReceivedMessage(PAID, MessageQueue("orders", CLUSTER, "a", 0), 3, "id-1", None, reconsume_times=2)


class Traced:
    """A producer whose sends are traced, and the records."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.transport = MemoryTransport(clock=clock)
        self.routes = RoutesInMemory(clock)
        for topic in ("orders", TRACE_TOPIC):
            self.routes.set(routed(topic, {"a": ADDR}, queues=1))

    def producer(self, **more: Any) -> Producer:
        return Producer(self.routes, transport=self.transport, clock=self.clock, **more)

    async def messages(self, at_least: int = 1) -> Sequence[ReceivedMessage]:
        queue = MessageQueue(TRACE_TOPIC, CLUSTER, "a", 0)

        async def read() -> Sequence[ReceivedMessage]:
            pulled = await self.transport.pull(
                ADDR, queue, 0, max_messages=1_000, wait_seconds=0, timeout_seconds=5, reader=Reader("x")
            )
            return pulled.messages

        return await read_until(read, lambda found: len(found) >= at_least, seconds=20.0)

    async def records(self, at_least: int = 1) -> list[list[str]]:
        text = b"".join(message.body for message in await self.messages(at_least)).decode()
        assert text.endswith("\x02")
        return [record.split("\x01") for record in text[:-1].split("\x02")]


@pytest.fixture
async def traced(clock: ManualClock) -> AsyncIterator[Traced]:
    made = Traced(clock)
    yield made
    await made.transport.close()


async def test_a_send_is_a_record_whose_message_is_found_by_id_and_keys(traced: Traced) -> None:
    async with traced.producer() as sender:
        trace = MessageTrace(sender, producer_group="shop", clock=traced.clock)
        async with traced.producer(tracing_hook=trace) as producer:
            result = await producer.send(PAID)
        (record,) = await traced.records()
        (message,) = await traced.messages()
    sent_at = str(round(traced.clock.utc_now().timestamp() * 1000))
    head = ["Pub", sent_at, "DefaultRegion", "shop", "orders", result.message_id, "paid", "4711 a", ADDR]
    assert record == [*head, "9", "0", "0", "", "true"]
    assert message.keys == (result.message_id, "4711", "a")


async def test_messages_of_one_turn_are_one_record_message(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 4)
    async with traced.producer() as sender:
        async with traced.producer(tracing_hook=MessageTrace(sender, clock=traced.clock)) as producer:
            results = await producer.send_batch([Message("orders", str(n).encode()) for n in range(6)])
        records = await traced.records(2)
        messages = await traced.messages(2)
    assert [record[5] for record in records] == [result.message_id for result in results]
    assert [message.body.count(b"\x02") for message in messages] == [4, 2]


async def test_a_listener_call_is_two_records(traced: Traced) -> None:
    async with traced.producer() as sender:
        trace = MessageTrace(sender, clock=traced.clock)
        with trace.processing(RECEIVED, group="billing") as note_end:
            await traced.clock.advance(0.25)
            note_end("success", "", None)
        before, after = await traced.records(2)
    began_at = round(traced.clock.utc_now().timestamp() * 1000) - 250
    request_id = before[4]
    assert re.fullmatch("[0-9a-f]{32}", request_id)
    assert before == ["SubBefore", str(began_at), "DefaultRegion", "billing", request_id, "id-1", "2", "4711 a"]
    assert after == ["SubAfter", request_id, "id-1", "250", "true", "4711 a", "0", str(began_at + 250), "billing"]


@pytest.mark.parametrize(("outcome", "code"), [("timeout", "1"), ("raised", "2"), ("later", "4"), ("rejected", "4")])
async def test_a_call_that_fails_has_its_reason(traced: Traced, outcome: str, code: str) -> None:
    async with traced.producer() as sender:
        with MessageTrace(sender, clock=traced.clock).processing(RECEIVED, group="billing") as note_end:
            note_end(outcome, "why", None)
        records = await traced.records()
    assert (records[1][4], records[1][6]) == ("false", code)


async def test_a_call_that_is_cancelled_is_one_that_raised(traced: Traced) -> None:
    async with traced.producer() as sender:
        trace = MessageTrace(sender, clock=traced.clock)
        with pytest.raises(asyncio.CancelledError), trace.processing(RECEIVED, group="billing"):
            raise asyncio.CancelledError
        records = await traced.records()
    assert (records[1][4], records[1][6]) == ("false", "2")


async def test_what_no_broker_has_stored_and_the_records_themselves_are_not_traced(traced: Traced) -> None:
    async with traced.producer() as sender:
        trace = MessageTrace(sender, clock=traced.clock)
        async with traced.producer(tracing_hook=trace, retry_times_when_send_failed=0) as producer:
            traced.transport.take_down(ADDR)
            with pytest.raises(Exception, match="still failed"):
                await producer.send(PAID)
            traced.transport.bring_up(ADDR)
            await producer.send(Message(TRACE_TOPIC, b"x\x02"))
            await producer.send(PAID)
            await asyncio.sleep(0)
    assert [message.body[:3] for message in await traced.messages(2)] == [b"x\x02", b"Pub"]


async def test_records_that_cannot_be_sent_are_counted_and_logged_once(
    traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    del traced.routes.routes[TRACE_TOPIC]
    async with traced.producer() as sender:
        trace = MessageTrace(sender, clock=traced.clock)
        async with traced.producer(tracing_hook=trace) as producer:
            for _ in range(3):
                assert (await producer.send(PAID)).status == "SEND_OK"
            await eventually(lambda: trace.dropped == 3)
    assert caplog.text.count("records of the message trace are dropped") == 1
    async with traced.producer(tracing_hook=trace) as producer:
        await producer.send(PAID)  # The producer of the records is closed.
        await eventually(lambda: trace.dropped == 4)


async def test_a_bounded_number_of_records_waits(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    async with traced.producer() as sender:
        trace = MessageTrace(sender, clock=traced.clock)
        async with traced.producer(tracing_hook=trace) as producer:
            await producer.send_batch([Message("orders", str(n).encode()) for n in range(6)])
        assert len(await traced.records()) == 3
    assert trace.dropped == 3


async def test_another_hook_is_called_beside_it(traced: Traced) -> None:
    class Other:
        """Counts what it is called with, and changes messages as OpenTelemetry's does."""

        def __init__(self) -> None:
            self.calls: list[object] = []

        def sending(self, messages: Sequence[OutgoingMessage]) -> Any:
            other = self

            class Span:
                def __init__(self) -> None:
                    self.messages = [each._replace(message_id="changed") for each in messages]

                def end(self, outcome: str, **_: object) -> None:
                    other.calls.append(outcome)

            return Span()

        @contextmanager
        def processing(self, message: ReceivedMessage, *, group: str) -> Iterator[NoteEnd]:
            self.calls.append((message.message_id, group))
            yield lambda outcome, problem, _: self.calls.append((outcome, problem))

        def received(self, messages: Sequence[ReceivedMessage], *, group: str, seconds: float) -> None:
            self.calls.append((len(messages), group, seconds))

    other = Other()
    async with traced.producer() as sender:
        trace = MessageTrace(sender, beside=other, clock=traced.clock)
        async with traced.producer(tracing_hook=trace) as producer:
            assert (await producer.send(PAID)).message_id == "changed"
        with trace.processing(RECEIVED, group="billing") as note_end:
            note_end("later", "not yet", None)
        trace.received([RECEIVED], group="billing", seconds=0.5)
        records = await traced.records(2)
    assert records[0][5] == "changed"
    assert other.calls == ["SEND_OK", ("id-1", "billing"), ("later", "not yet"), (1, "billing", 0.5)]
