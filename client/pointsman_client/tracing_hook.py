"""Hook interface for spans around sends and listener calls. ``opentelemetry.py`` has an implementation.

Methods are called in the event loop; they must not block or raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.transactions import HalfMessage, TransactionState

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
        """Record that a pull or simple consumer returned messages after ``seconds``."""
        ...


@runtime_checkable
class TracesTransactions(Protocol):
    """A tracer that also records how transactions ended."""

    def transaction_ended(
        self, half: HalfMessage, state: TransactionState, *, message: Message | None, group: str, is_checked: bool
    ) -> None:
        """Record an end that the broker has confirmed, or a state that is not known.

        ``message``: None for a check that could not read it. ``is_checked``: the broker has asked.
        """
        ...
