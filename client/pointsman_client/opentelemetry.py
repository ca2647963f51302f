"""Spans of sends and consumed messages by OpenTelemetry's messaging conventions; requires the extra ``otel``.

One object for all producers and consumers::

    tracing = OpenTelemetryTracing()
    async with Producer(name_servers, transport=transport, tracing_hook=tracing) as producer:
        ...

A message carries the context of its send in its properties (``traceparent`` with the W3C propagator), also in the
retry topic, the dead-letter topic and an outbox.

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

try:
    from opentelemetry import context, propagate, trace
except ModuleNotFoundError as missing:
    raise ImportError(
        "OpenTelemetryTracing needs opentelemetry-api: pip install 'pointsman-client[otel]'", name="opentelemetry"
    ) from missing

from pointsman.clock import SystemClock
from pointsman_client import __version__
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import PointsmanError
from pointsman_client.tracing_hook import NoteEnd, TracingHook

Attributes = dict[str, str | int]

SYSTEM = "pointsman"
OUTCOME = "messaging.pointsman.outcome"
"""Of a send: as in ``MetricsHook.sent``; of a listener call: success, later, raised."""
RECONSUME_TIMES = "messaging.pointsman.reconsume_times"
"""Number of earlier listener calls that failed on the message."""


class OpenTelemetryTracing(TracingHook):
    """Spans ``send TOPIC``, ``process TOPIC`` and ``poll TOPIC``.

    A failed send and a listener that raises have the status ERROR; a listener that requests a retry (RECONSUME_LATER,
    SUSPEND) does not.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """``tracer_provider``: None: the global one. Properties are written and read by the global propagator."""
        self._tracer = trace.get_tracer("pointsman_client", __version__, tracer_provider)

    def sending(self, messages: Sequence[OutgoingMessage]) -> _SendSpan:
        """See :class:`TracingHook`. A context that the application put into a message is retained and linked."""
        topic = messages[0].message.topic
        attributes = _attributes("send", "send", topic)
        if len(messages) == 1:
            attributes["messaging.message.id"] = messages[0].message_id
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(
            f"send {topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes=attributes,
            links=[trace.Link(each) for each in _creations(message.message.properties for message in messages)],
        )
        return _SendSpan(span, messages)

    @contextmanager
    def processing(self, message: ReceivedMessage, *, group: str) -> Iterator[NoteEnd]:
        """See :class:`TracingHook`; applications also use it around the processing of polled messages.

        The span continues the trace of the send; without a context in the message it starts a new trace.
        """
        attributes = _attributes("process", "process", message.topic) | _of_one(message)
        attributes["messaging.consumer.group.name"] = group
        if message.reconsume_times:
            attributes[RECONSUME_TIMES] = message.reconsume_times
        creation = propagate.extract(message.properties, context=context.Context())
        token = context.attach(creation)
        try:
            with self._tracer.start_as_current_span(
                f"process {message.topic}",
                kind=trace.SpanKind.CONSUMER,
                attributes=attributes,
                links=[trace.Link(each) for each in _creations([message.properties])],
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield _noting_end_of(span)
                except BaseException as error:  # a listener's timeout cancels it, and an application's block may raise
                    _set_failed(span, type(error).__qualname__, str(error), error)
                    raise
        finally:
            context.detach(token)

    def received(self, messages: Sequence[ReceivedMessage], *, group: str, seconds: float) -> None:
        """See :class:`TracingHook`. The span is linked to the send of each message."""
        topics = {message.topic for message in messages}
        attributes = _attributes("poll", "receive", topics.pop() if len(topics) == 1 else "")
        attributes |= {"messaging.batch.message_count": len(messages), "messaging.consumer.group.name": group}
        if len(messages) == 1:
            attributes |= _of_one(messages[0])
        topic = attributes.get("messaging.destination.name")
        self._tracer.start_span(
            f"poll {topic}" if topic else "poll",
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[trace.Link(each) for each in _creations(message.properties for message in messages)],
            # By the system clock, as the end: an injected test clock may be years off.
            start_time=round((SystemClock().utc_now().timestamp() - seconds) * 1e9),
        ).end()


class _SendSpan:
    def __init__(self, span: trace.Span, messages: Sequence[OutgoingMessage]) -> None:
        self._span = span
        current = trace.set_span_in_context(span)
        self.messages = [_with_context(message, current) for message in messages]
        self._token = context.attach(current)

    def end(
        self, outcome: str, *, addr: str, queue: MessageQueue | None = None, error: BaseException | None = None
    ) -> None:
        """See :class:`~pointsman_client.tracing_hook.SendSpan`."""
        self._span.set_attribute(OUTCOME, outcome)
        if queue is not None:
            self._span.set_attribute("messaging.destination.partition.id", _partition_of(queue))
        host, _, port = addr.rpartition(":")
        if host and port.isdecimal():
            self._span.set_attributes({"server.address": host.strip("[]"), "server.port": int(port)})
        if error is not None:
            kind = error.code if isinstance(error, PointsmanError) else type(error).__qualname__
            _set_failed(self._span, kind, str(error), error)
        context.detach(self._token)
        self._span.end()


def _noting_end_of(span: trace.Span) -> NoteEnd:
    def note_end(outcome: str, problem: str, error: BaseException | None) -> None:
        span.set_attribute(OUTCOME, outcome)
        if outcome == "raised":
            _set_failed(span, outcome if error is None else type(error).__qualname__, problem, error)

    return note_end


def _creations(of: Iterable[Mapping[str, str]]) -> Iterator[trace.SpanContext]:
    """Yield the trace contexts of the sends from the messages' properties."""
    for properties in of:
        carried = trace.get_current_span(propagate.extract(properties, context=context.Context())).get_span_context()
        if carried.is_valid:
            yield carried


def _with_context(outgoing: OutgoingMessage, current: context.Context) -> OutgoingMessage:
    properties = outgoing.message.properties
    if any(_creations([properties])):
        return outgoing
    carrier = dict(properties)
    propagate.inject(carrier, context=current)
    return outgoing._replace(message=replace(outgoing.message, properties=carrier))


def _set_failed(span: trace.Span, kind: str, problem: str, error: BaseException | None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR, problem)
    if error is not None:
        span.record_exception(error)


def _attributes(operation: str, operation_type: str, topic: str) -> Attributes:
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
    }
    if topic:
        attributes["messaging.destination.name"] = topic
    return attributes


def _of_one(message: ReceivedMessage) -> Attributes:
    attributes: Attributes = {"messaging.message.id": message.message_id}
    # A retried message was read from a queue of the retry topic.
    if message.queue.topic == message.topic:
        attributes["messaging.destination.partition.id"] = _partition_of(message.queue)
    return attributes


def _partition_of(queue: MessageQueue) -> str:
    """Return an unambiguous id: queue ids are unique per broker, broker names per cluster."""
    return f"{queue.cluster}/{queue.broker_name}/{queue.queue_id}"
