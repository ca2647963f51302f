"""Hook interface for spans around sends and listener calls. ``opentelemetry.py`` has an implementation.

Methods are called in the event loop; they must not block or raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue

NoteEnd = Callable[[str, str, BaseException | None], None]
"""Called with the result of a listener call (as in ``MetricsHook.consumed``), the problem, and the exception."""


class SendSpan(Protocol):
    """The span of one send."""

    @property
    def messages(self) -> Sequence[OutgoingMessage]:
        """The messages to send, with the trace context in their properties."""
        ...

    def end(
        self, outcome: str, *, addr: str, queue: MessageQueue | None = None, error: BaseException | None = None
    ) -> None:
        """End the span.

        ``outcome``: as in ``MetricsHook.sent``. ``addr``: the broker that stored the messages or was tried last; empty:
        none. ``queue``: the queue of the messages, also of parked ones. ``error``: the cause of a failure.
        """
        ...


class TracingHook(Protocol):
    """Interface of a tracer."""

    def sending(self, messages: Sequence[OutgoingMessage]) -> SendSpan:
        """Start the span of a send with all its attempts; more than one message is a batch."""
        ...

    def processing(self, message: ReceivedMessage, *, group: str) -> AbstractContextManager[NoteEnd]:
        """Return the span around one listener call."""
        ...

    def received(self, messages: Sequence[ReceivedMessage], *, group: str, seconds: float) -> None:
        """Record that a pull consumer returned messages after ``seconds``."""
        ...
