"""Spans of sends and of consumed messages, as an exporter of OpenTelemetry's SDK gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pointsman.group_topics import dlq_topic
from pointsman_client import sync
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.retry_rules import ConsumeResult
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState
from pointsman_client.errors import SendFailedError
from pointsman_client.opentelemetry import OpenTelemetryTracing
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import Park
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.testing import TestFleet
from tests.kit.broker.redis.process import redis_process
from tests.kit.client.consumer_setup import Setup
from tests.kit.client.memory_group import addr_of, queue_of, route_of

Q0 = queue_of(0)


class Traces:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = OpenTelemetryTracing(self.provider)
        self.tracer = self.provider.get_tracer("application")

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those that ended, in that order."""
        return [span for span in self._exporter.get_finished_spans() if not name or span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
async def producer(setup: Setup, traces: Traces) -> AsyncIterator[Producer]:
    async with a_producer(setup, traces) as made:
        yield made


def a_producer(setup: Setup, traces: Traces, **more: Any) -> Producer:
    options: dict[str, Any] = {
        "transport": setup.brokers.transport,
        "clock": setup.clock,
        "tracing_hook": traces.tracing,
    }
    return Producer(setup.routes, **options | more)


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


async def accept(_: ReceivedMessage) -> None:
    """A listener that succeeds."""


async def test_a_message_is_one_trace_from_the_callers_span_to_what_the_listener_does(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    async def listener(_: ReceivedMessage) -> None:
        with traces.tracer.start_as_current_span("charge"):
            await asyncio.sleep(0)

    with traces.tracer.start_as_current_span("checkout"):
        result = await producer.send(Message("orders", b"4711"))
    await setup.join("x", listener, tracing_hook=traces.tracing)
    await setup.until(lambda: traces.spans("process orders"))

    checkout, send, charge, process = map(traces.only, ("checkout", "send orders", "charge", "process orders"))
    assert len({trace_of(span) for span in (checkout, send, charge, process)}) == 1
    assert [parent_of(span) for span in (send, process, charge)] == [id_of(checkout), id_of(send), id_of(process)]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert linked(process) == [id_of(send)]
    queue = result.queue
    partition = f"{queue.cluster}/{queue.broker_name}/{queue.queue_id}"
    assert attributes(send) == {
        "messaging.system": "pointsman",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": partition,
        "messaging.message.id": result.message_id,
        "messaging.pointsman.outcome": "SEND_OK",
        "server.address": "a-0",
        "server.port": 10911,
    }
    assert attributes(process) == {
        "messaging.system": "pointsman",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": partition,
        "messaging.message.id": result.message_id,
        "messaging.consumer.group.name": "billing",
        "messaging.pointsman.outcome": "success",
    }
    assert {send.status.status_code, process.status.status_code} == {StatusCode.UNSET}


async def test_a_plain_listener_in_a_thread_and_its_sends_are_in_the_trace(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    def listener(_: ReceivedMessage) -> None:
        with traces.tracer.start_as_current_span("in a thread"):
            pass

    await producer.send(Message("orders", b"1"))
    await setup.join("x", listener, tracing_hook=traces.tracing)
    await setup.until(lambda: traces.spans("process orders"))
    assert parent_of(traces.only("in a thread")) == id_of(traces.only("process orders"))


async def test_baggage_reaches_the_listener_and_a_span_that_was_open_at_the_start_does_not(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    seen: list[object] = []

    async def listener(_: ReceivedMessage) -> None:
        seen.append(baggage.get_baggage("tenant"))

    token = context.attach(baggage.set_baggage("tenant", "7"))
    await producer.send(Message("orders", b"1"))
    context.detach(token)
    await setup.brokers.put(Q0, ["from a producer without tracing"])
    with traces.tracer.start_as_current_span("startup"):
        await setup.join("x", listener, tracing_hook=traces.tracing)
        await setup.until(lambda: len(traces.spans("process orders")) == 2)
    assert sorted(map(str, seen)) == ["7", "None"]
    assert trace_of(traces.only("startup")) not in {trace_of(span) for span in traces.spans("process orders")}
    assert sorted(len(span.links) for span in traces.spans("process orders")) == [0, 1]


async def test_a_listener_that_raises_fails_its_span_and_each_retry_and_the_dead_letter_are_in_the_same_trace(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    async def listener(_: ReceivedMessage) -> None:
        raise KeyError("no such customer")

    await producer.send(Message("orders", b"1"))
    await setup.join("x", listener, tracing_hook=traces.tracing, max_reconsume_times=1)
    await setup.until(lambda: setup.hook.destinations["dlq"])

    send, (first, again) = traces.only("send orders"), traces.spans("process orders")
    for span in (first, again):
        assert (trace_of(span), parent_of(span), linked(span)) == (trace_of(send), id_of(send), [id_of(send)])
        assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "KeyError")
        assert span.status.description == "KeyError: 'no such customer'"
        assert [event.name for event in span.events] == ["exception"]
        assert attributes(span)["messaging.pointsman.outcome"] == "raised"
    assert "messaging.pointsman.reconsume_times" not in attributes(first)
    assert attributes(again)["messaging.pointsman.reconsume_times"] == 1
    assert attributes(again)["messaging.destination.name"] == "orders"
    assert "messaging.destination.partition.id" not in attributes(again)
    dead = queue_of(0, topic=dlq_topic("billing"))
    pulled = await setup.brokers.transport.pull(
        addr_of("a"), dead, 0, max_messages=1, wait_seconds=0.0, timeout_seconds=1.0
    )
    with traces.tracing.processing(pulled.messages[0], group="repair"):
        pass
    assert linked(traces.spans("process orders")[-1]) == [id_of(send)]


async def test_a_listener_that_requests_a_retry_did_not_fail(setup: Setup, traces: Traces, producer: Producer) -> None:
    async def listener(message: ReceivedMessage) -> ConsumeResult:
        return ConsumeResult.SUCCESS if message.reconsume_times else ConsumeResult.RECONSUME_LATER

    await producer.send(Message("orders", b"1"))
    await setup.join("x", listener, tracing_hook=traces.tracing)
    await setup.until(lambda: len(traces.spans("process orders")) == 2)
    spans = traces.spans("process orders")
    assert [attributes(span)["messaging.pointsman.outcome"] for span in spans] == ["later", "success"]
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}


async def test_a_listener_that_takes_too_long_fails_its_span(setup: Setup, traces: Traces, producer: Producer) -> None:
    async def listener(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await asyncio.Event().wait()

    await producer.send(Message("orders", b"1"))
    await setup.join("x", listener, tracing_hook=traces.tracing, consume_timeout_seconds=3.0)
    await setup.until(lambda: len(traces.spans("process orders")) == 2)
    late, _ = traces.spans("process orders")
    assert (late.status.status_code, attributes(late)["error.type"]) == (StatusCode.ERROR, "CancelledError")


async def test_an_ordered_consumer_has_a_span_for_each_attempt_in_place(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    attempts = 0

    async def listener(_: ReceivedMessage) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("not yet")

    await producer.send_to(Q0, Message("orders", b"1"))
    await setup.join("x", listener, tracing_hook=traces.tracing, ordered=True)
    await setup.until(lambda: attempts == 3)
    spans = traces.spans("process orders")
    assert [attributes(span)["messaging.pointsman.outcome"] for span in spans] == ["raised", "raised", "success"]
    assert {parent_of(span) for span in spans} == {id_of(traces.only("send orders"))}
    assert {attributes(span)["messaging.destination.partition.id"] for span in spans} == {"c1/a/0"}


async def test_a_poll_is_linked_to_each_send_and_its_messages_can_be_processed_in_their_traces(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    for body in (b"1", b"2"):
        await producer.send_to(Q0, Message("orders", body))
    consumer = await setup.join_pulling("x", tracing_hook=traces.tracing)
    await setup.clock.advance(3)
    with traces.tracer.start_as_current_span("batch job"):
        messages = await consumer.poll()
        with traces.tracing.processing(messages[0], group="billing"):
            pass
    empty = asyncio.create_task(consumer.poll())
    await setup.clock.advance(2)
    assert await empty == ()

    sends, poll, process = traces.spans("send orders"), traces.only("poll orders"), traces.only("process orders")
    assert poll.kind is SpanKind.CONSUMER
    assert linked(poll) == [id_of(send) for send in sends]
    assert parent_of(poll) == id_of(traces.only("batch job"))
    assert attributes(poll) == {
        "messaging.system": "pointsman",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
        "messaging.consumer.group.name": "billing",
    }
    assert parent_of(process) == id_of(sends[0])


async def test_an_iteration_has_a_span_for_each_message(setup: Setup, traces: Traces, producer: Producer) -> None:
    result = await producer.send(Message("orders", b"1"))
    consumer = await setup.join_pulling("x", tracing_hook=traces.tracing)
    await setup.clock.advance(3)
    await anext(consumer)
    assert attributes(traces.only("poll orders"))["messaging.message.id"] == result.message_id


async def test_a_batch_is_one_span_and_all_its_messages_lead_to_it(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
    await setup.join("x", accept, tracing_hook=traces.tracing)
    await setup.until(lambda: len(traces.spans("process orders")) == 2)
    send = traces.only("send orders")
    assert attributes(send)["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in attributes(send)
    assert [linked(span) for span in traces.spans("process orders")] == [[id_of(send)]] * 2


async def test_each_way_to_send_has_one_span_below_its_caller(setup: Setup, traces: Traces, producer: Producer) -> None:
    message = Message("orders", b"1")
    done = asyncio.Event()
    with traces.tracer.start_as_current_span("caller"):
        await producer.send_to(Q0, message)
        await producer.send_selected(message, lambda queues, *_: queues[0])
        await producer.send_by_key(message, "7")
        producer.send_async(message, lambda _: done.set())
        producer.send_oneway(message)
    await done.wait()
    await setup.until(lambda: len(traces.spans("send orders")) == 5)
    assert {parent_of(span) for span in traces.spans("send orders")} == {id_of(traces.only("caller"))}
    assert message.properties == {}, "the message of the application stays as it is"


async def test_a_send_that_fails_fails_its_span_and_names_the_last_broker(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    setup.brokers.transport.take_down(addr_of("a"))
    with pytest.raises(SendFailedError):
        await producer.send(Message("orders", b"1"))
    span = traces.only("send orders")
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "SEND_FAILED")
    assert attributes(span)["messaging.pointsman.outcome"] == "SEND_FAILED"
    assert attributes(span)["server.address"] == "a-0"
    assert [event.name for event in span.events] == ["exception"]


async def test_a_send_that_its_caller_gives_up_is_cancelled(setup: Setup, traces: Traces, producer: Producer) -> None:
    setup.brokers.transport.hang(addr_of("a"))
    sending = asyncio.create_task(producer.send(Message("orders", b"1")))
    await setup.clock.advance(0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    span = traces.only("send orders")
    assert attributes(span)["messaging.pointsman.outcome"] == "CANCELLED"
    assert attributes(span)["error.type"] == "CancelledError"
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_parked_message_keeps_its_trace_in_the_outbox(setup: Setup, traces: Traces, tmp_path: Path) -> None:
    setup.brokers.transport.take_down(addr_of("a"))
    async with a_producer(setup, traces, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as producer:
        result = await producer.send_to(Q0, Message("orders", b"1"))
        assert result.is_parked
        setup.brokers.transport.bring_up(addr_of("a"))
        await setup.join("x", accept, tracing_hook=traces.tracing)
        await setup.until(lambda: traces.spans("process orders"))
    send = traces.only("send orders")
    assert attributes(send)["messaging.pointsman.outcome"] == "PARKED"
    assert send.status.status_code is StatusCode.UNSET
    assert linked(traces.only("process orders")) == [id_of(send)]


async def test_a_context_that_the_application_put_into_a_message_stays_and_is_linked(
    setup: Setup, traces: Traces, producer: Producer
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await producer.send(Message("orders", b"1", properties={"traceparent": own, "shop": "7"}))
    seen: list[Mapping[str, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.properties)

    await setup.join("x", listener, tracing_hook=traces.tracing)
    await setup.until(lambda: traces.spans("process orders"))
    assert seen == [{"traceparent": own, "shop": "7"}]
    assert linked(traces.only("send orders")) == linked(traces.only("process orders")) == [0xB7AD6B7169203331]


@pytest.mark.parametrize("traceparent", ["", "00-zz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\x1b[2J" * 1_000])
async def test_a_context_that_is_damaged_begins_a_new_trace(setup: Setup, traces: Traces, traceparent: str) -> None:
    async with Producer(setup.routes, transport=setup.brokers.transport, clock=setup.clock) as untraced:
        await untraced.send(Message("orders", b"1", properties={"traceparent": traceparent}))
    await setup.join("x", accept, tracing_hook=traces.tracing)
    await setup.until(lambda: traces.spans("process orders"))
    assert (traces.only("process orders").parent, linked(traces.only("process orders"))) == (None, [])


async def test_without_an_sdk_messages_are_sent_as_they_are(setup: Setup) -> None:
    silent = OpenTelemetryTracing(trace.NoOpTracerProvider())
    seen: list[Mapping[str, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.properties)

    options: Any = {"transport": setup.brokers.transport, "clock": setup.clock, "tracing_hook": silent}
    async with Producer(setup.routes, **options) as producer:
        await producer.send(Message("orders", b"1", properties={"shop": "7"}))
        await setup.join("x", listener, tracing_hook=silent)
        await setup.until(lambda: seen)
    assert seen == [{"shop": "7"}]


@pytest.mark.redis
async def test_the_context_travels_through_redis(setup: Setup, traces: Traces, tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        route = route_of("orders", {"a": 2})
        replica = BrokerReplica(0, redis.addr, "", "", BrokerState.UP)
        data = BrokerData(route.broker_datas[0].cluster, "a", (replica,), zone="", acting_master=True)
        setup.routes.set(replace(route, broker_datas=(data,)))
        async with a_producer(setup, traces, transport=RedisStreamsTransport) as producer:
            await producer.send(Message("orders", b"1"))
        await setup.join("x", accept, tracing_hook=traces.tracing, transport=RedisStreamsTransport)
        await real_until(setup, lambda: traces.spans("process orders"))
    assert linked(traces.only("process orders")) == [id_of(traces.only("send orders"))]
    assert attributes(traces.only("send orders"))["server.port"] == int(redis.addr.rpartition(":")[2])


async def real_until(setup: Setup, condition: Callable[[], object]) -> None:
    """Let both clocks run until the condition holds."""
    async with asyncio.timeout(30):
        while not condition():
            await setup.clock.advance(0.1)
            await asyncio.sleep(0.01)


def test_the_blocking_classes_keep_the_trace_across_their_threads(traces: Traces) -> None:
    def listener(_: ReceivedMessage) -> None:
        with traces.tracer.start_as_current_span("charge"):
            pass

    with TestFleet() as fleet:
        fleet.add_broker("broker-a", topics={"orders": 2})
        here: Any = {"transport": fleet.transport, "clock": fleet.clock, "tracing_hook": traces.tracing}
        with sync.Producer(fleet.name_servers, **here) as producer, traces.tracer.start_as_current_span("checkout"):
            producer.send(Message("orders", b"1"))
        consumer = sync.PushConsumer(
            fleet.name_servers,
            group="billing",
            subscriptions={"orders": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **here,
        )
        with consumer:
            fleet.advance_until(lambda: traces.spans("process orders"))
    names = ("checkout", "send orders", "process orders", "charge")
    chain = [traces.only(name) for name in names]
    assert [parent_of(span) for span in chain] == [None, *(id_of(span) for span in chain[:-1])]
