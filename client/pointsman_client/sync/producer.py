"""The producer for programs without an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pointsman_client.core.checks import check_function
from pointsman_client.core.message import NO_PROPERTIES, Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.errors import TooManyInFlightError
from pointsman_client.producer import producer as async_producer
from pointsman_client.producer.producer import SelectQueue
from pointsman_client.producer.producer_options import OnUnavailable, ProducerOptions
from pointsman_client.sync.background_threads import MAX_PENDING_CALLBACKS
from pointsman_client.sync.client import NameServerClient, client_for, inner_options
from pointsman_client.sync.facade import CallOptions, Facade

SendCallback = Callable[[SendResult | Exception], object]
"""Called on a thread of the producer with the result of a send, or with the error that :meth:`Producer.send` raises."""


@dataclass(frozen=True, kw_only=True)
class SyncProducerOptions(ProducerOptions, CallOptions):
    """Options of :class:`Producer`: those of the async one, and the call timeout."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which the caller closes."""


class Producer(Facade):
    """Sends messages, with blocking calls.

    ::

        with Producer(["10.0.0.1:9876"], transport=RedisStreamsTransport) as producer:
            producer.send(Message("orders", b"4711"))

    Methods, errors and guarantees are those of :class:`pointsman_client.Producer`. Share it between threads.
    """

    @takes_options(SyncProducerOptions)
    def __init__(self, options: SyncProducerOptions) -> None:
        """See :class:`pointsman_client.Producer`.

        Pass a callable that makes the transport, such as ``transport=RedisStreamsTransport``; it is then closed, too.
        """
        self._wrap(options, ProducerOptions, async_producer.Producer)

    def _wrap(
        self,
        options: SyncProducerOptions,
        kind: type[ProducerOptions],
        make: Callable[..., async_producer.Producer],
    ) -> None:
        """Make the async producer, from those of the options that ``kind`` has."""
        seconds = options.call_timeout_seconds
        self._client = client_for(options, zone=options.zone, call_timeout_seconds=seconds)
        dependency = None if self._client is options.name_servers else self._client
        self._producer = make(**inner_options(kind, options, self._client))
        self._pending = _PendingCallbacks(most=min(options.back_pressure_for_async_send_num, MAX_PENDING_CALLBACKS))
        super().__init__(self._producer, call_timeout_seconds=seconds, dependency=dependency)

    @property
    def client(self) -> NameServerClient:
        """The client that it gets routes from; ``client.describe(topic)`` also has its isolations."""
        return self._client

    @property
    def inner(self) -> async_producer.Producer:
        """The async producer; only usable in the background loop, such as by a :class:`MessageTrace`."""
        return self._producer

    @property
    def parked(self) -> int:
        """Number of messages in its outboxes."""
        return self._invoke(lambda: self._producer.parked)

    def message(
        self,
        topic: str,
        value: Any,  # noqa: ANN401  of the application
        *,
        tags: str = "",
        keys: tuple[str, ...] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        deliver_at: datetime | None = None,
    ) -> Message:
        """Return the message whose body the ``serializer`` encodes from ``value``, for any method that sends."""
        return self._producer.message(topic, value, tags=tags, keys=keys, properties=properties, deliver_at=deliver_at)

    def send(self, message: Message, *, timeout_seconds: float | None = None) -> SendResult:
        """Send, with retries at other brokers; return when a broker has stored the message."""
        return self._call(
            lambda: self._producer.send(message, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def send_batch(
        self, messages: Sequence[Message], *, timeout_seconds: float | None = None
    ) -> tuple[SendResult, ...]:
        """Send messages of one topic to one queue, all or none; ``max_message_size`` limits their total size."""
        return self._call(
            lambda: self._producer.send_batch(messages, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def send_async(self, message: Message, callback: SendCallback, *, timeout_seconds: float | None = None) -> None:
        """Send in the background; returns immediately. ``callback``, a plain function, runs on the producer's thread.

        A message counts against ``back_pressure_for_async_send_num`` until its callback has returned.
        """
        check_function("callback", callback, "must be a function of the result")
        call, settle = self._pending.add(callback, size=_bytes_of(message))
        called_back = self._called_back(call)
        with ExitStack() as undo:
            undo.callback(settle)
            self._invoke(lambda: self._producer.send_async(message, called_back, timeout_seconds=timeout_seconds))
            undo.pop_all()

    def send_oneway(self, message: Message, *, timeout_seconds: float | None = None) -> None:
        """Send in the background, in one attempt; the result is only reported to the metrics hook."""
        self._invoke(lambda: self._producer.send_oneway(message, timeout_seconds=timeout_seconds))

    def request(self, message: Message, *, timeout_seconds: float | None = None) -> ReceivedMessage:
        """Send a message and return the reply to it."""
        return self._call(
            lambda: self._producer.request(message, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def reply(self, request: ReceivedMessage, body: bytes, *, timeout_seconds: float | None = None) -> SendResult:
        """Send the reply to a received request; return when its sender has it."""
        return self._call(
            lambda: self._producer.reply(request, body, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def recall(self, handle: str, *, timeout_seconds: float | None = None) -> None:
        """Have the broker drop a delayed message, named by ``SendResult.recall_handle``, before it delivers it."""
        self._call(
            lambda: self._producer.recall(handle, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def send_to(
        self,
        queue: MessageQueue,
        message: Message,
        *,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to this queue, in one attempt; ``on_unavailable``: what to do while it cannot be written."""
        return self._call(
            lambda: self._producer.send_to(
                queue, message, on_unavailable=on_unavailable, timeout_seconds=timeout_seconds
            ),
            seconds=timeout_seconds or 0.0,
        )

    def send_selected(
        self,
        message: Message,
        selector: SelectQueue,
        argument: Any = None,  # noqa: ANN401  only the selector uses it
        *,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to the queue that ``selector(queues, message, argument)`` returns; it runs in the background loop."""
        return self._call(
            lambda: self._producer.send_selected(
                message, selector, argument, on_unavailable=on_unavailable, timeout_seconds=timeout_seconds
            ),
            seconds=timeout_seconds or 0.0,
        )

    def send_by_key(
        self,
        message: Message,
        key: str,
        *,
        second: str | None = None,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to the queue of a sharding key: messages of a key stay in order."""
        return self._call(
            lambda: self._producer.send_by_key(
                message, key, second=second, on_unavailable=on_unavailable, timeout_seconds=timeout_seconds
            ),
            seconds=timeout_seconds or 0.0,
        )

    def drop_absent_brokers(self, topic: str) -> None:
        """Make :meth:`send_by_key` use only the brokers in the route, after others were removed permanently."""
        self._invoke(lambda: self._producer.drop_absent_brokers(topic))


def _bytes_of(message: object) -> int:
    """Return the bytes that an error shows; the argument is checked by the async producer."""
    return len(message.body) if isinstance(message, Message) and isinstance(message.body, bytes) else 0


class _PendingCallbacks:
    """Callbacks that have not returned, at most ``most``: slow callbacks block new sends instead of being dropped."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._sizes: dict[object, int] = {}

    def add(self, callback: SendCallback, *, size: int) -> tuple[SendCallback, Callable[[], None]]:
        """Return a function that calls ``callback``, and one to call if that will not happen.

        Raises :class:`TooManyInFlightError`.
        """
        entry = object()
        with self._lock:
            if len(self._sizes) >= self._most:
                raise TooManyInFlightError(len(self._sizes), sum(self._sizes.values()))
            self._sizes[entry] = size

        def settle() -> None:
            with self._lock:
                self._sizes.pop(entry, None)

        def call(ended: SendResult | Exception) -> None:
            try:
                callback(ended)
            finally:
                settle()

        return call, settle
