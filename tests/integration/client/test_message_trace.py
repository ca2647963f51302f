"""Message trace in RocketMQ's format: records of sends and of listener calls, beside other hooks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client import (
    Message,
    MessageQueue,
    OutgoingMessage,
    Producer,
    Reader,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from pointsman_client import message_trace as module
from pointsman_client.core.transactions import HalfMessage
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


async def test_a_message_that_a_pull_consumer_returns_is_a_call_that_succeeded(traced: Traced) -> None:
    async with traced.producer() as sender:
        MessageTrace(sender, clock=traced.clock).received([RECEIVED, RECEIVED], group="billing", seconds=3.0)
        records = await traced.records()
    now = str(round(traced.clock.utc_now().timestamp() * 1000))
    assert [record[0] for record in records] == ["SubBefore", "SubAfter"] * 2
    assert records[0] == ["SubBefore", now, "DefaultRegion", "billing", records[0][4], "id-1", "2", "4711 a"]
    assert records[1] == ["SubAfter", records[0][4], "id-1", "0", "true", "4711 a", "0", now, "billing"]
    assert records[0][4] != records[2][4]


async def test_the_end_of_a_transaction_is_a_record(traced: Traced) -> None:
    state = TransactionState.COMMIT

    async def check(_: ReceivedMessage) -> TransactionState:
        return state

    async with traced.producer() as sender:
        trace = MessageTrace(sender, clock=traced.clock)
        settings: dict[str, Any] = {"transport": traced.transport, "clock": traced.clock, "tracing_hook": trace}
        async with TransactionProducer(
            traced.routes, producer_group="shop", topics=["orders"], check=check, **settings
        ) as producer:
            async with producer.transaction(PAID) as committed:
                pass
            async with producer.transaction(PAID) as rolled_back:
                rolled_back.state = TransactionState.ROLLBACK
            with contextlib.suppress(ValueError):
                async with producer.transaction(PAID) as unknown:
                    raise ValueError
            ends = [each for each in await traced.records(4) if each[0] == "EndTransaction"]
            # The broker asks about the last one.
            for _ in range(70):
                await traced.clock.advance(1)
            checked = (await traced.records(5))[-1]
    half = committed.result.half
    assert half is not None
    now = ends[0][1]
    head = ["EndTransaction", now, "DefaultRegion", "shop", "orders", committed.result.message_id, "paid", "4711 a"]
    assert ends[0] == [*head, ADDR, "2", half.transaction_id, "COMMIT_MESSAGE", "false"]
    assert [each[11] for each in ends] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    assert checked[5:9] == [unknown.result.message_id, "paid", "4711 a", ADDR]
    assert checked[11:] == ["COMMIT_MESSAGE", "true"]


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

        def transaction_ended(self, _half: HalfMessage, state: TransactionState, **_: object) -> None:
            self.calls.append(state)

    other = Other()
    async with traced.producer() as sender:
        trace = MessageTrace(sender, beside=other, clock=traced.clock)
        async with traced.producer(tracing_hook=trace) as producer:
            assert (await producer.send(PAID)).message_id == "changed"
        with trace.processing(RECEIVED, group="billing") as note_end:
            note_end("later", "not yet", None)
        trace.received([RECEIVED], group="billing", seconds=0.5)
        half = HalfMessage(ADDR, "orders", "id-1", 0, 0, "t-1")
        trace.transaction_ended(half, TransactionState.COMMIT, message=None, group="shop", is_checked=True)
        records = await traced.records(2)
    assert records[0][5] == "changed"
    assert other.calls == ["SEND_OK", ("id-1", "billing"), ("later", "not yet"), (1, "billing", 0.5), "COMMIT"]
