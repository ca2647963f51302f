"""Where the library opens spans around sends and listeners. ``opentelemetry.py`` has an adapter.

Without a hook none of this runs. Methods are called in the event loop, must return quickly and raise nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue

NoteEnd = Callable[[str, str, BaseException | None], None]
"""Takes how a call of a listener ended (as ``MetricsHook.consumed`` has it), what went wrong, and what it raised."""


class SendSpan(Protocol):
    """A send that has begun."""

    @property
    def messages(self) -> Sequence[OutgoingMessage]:
        """What is sent: the messages with the trace's context in their properties."""
        ...

    def end(
        self, outcome: str, *, addr: str, queue: MessageQueue | None = None, error: BaseException | None = None
    ) -> None:
        """End it. ``outcome``: as ``MetricsHook.sent`` has it; ``addr``: of the broker that has the messages, or was
        tried last, empty if there is none; ``queue``: where they are, or wait to be sent to; ``error``: why not.
        """
        ...


class TracingHook(Protocol):
    """What a tracer has to do."""

    def sending(self, messages: Sequence[OutgoingMessage]) -> SendSpan:
        """Begin the span of a send with all its tries; more than one message is a batch."""
        ...

    def processing(self, message: ReceivedMessage, *, group: str) -> AbstractContextManager[NoteEnd]:
        """Return the span around one call of a listener."""
        ...

    def received(self, messages: Sequence[ReceivedMessage], *, group: str, seconds: float) -> None:
        """Record that a pull consumer handed out messages, after this time."""
        ...
