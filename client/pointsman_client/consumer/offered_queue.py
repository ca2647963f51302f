"""What the listener pool needs of a queue: one that was assigned and pulled, or messages that are leased."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import Destination


class OfferedMessages(Protocol):
    """Messages that wait, and those in flight; see :class:`~pointsman_client.core.process_queue.ProcessQueue`."""

    @property
    def is_dropped(self) -> bool:
        """Whether no further message may be handed out."""
        ...

    @property
    def in_flight(self) -> int:
        """Number of messages that the listener has."""
        ...

    @property
    def unfinished(self) -> int:
        """Number of messages that wait or are in flight."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether further messages are not read until some are finished."""
        ...

    def peek(self) -> ReceivedMessage | None:
        """Return the message that :meth:`take` would return."""
        ...

    def take(self) -> ReceivedMessage | None:
        """Return the next message and mark it as in flight; None: no message waits."""
        ...


class OfferedQueue(Protocol):
    """A queue with messages for a listener."""

    @property
    def queue(self) -> MessageQueue:
        """Where the messages are from."""
        ...

    @property
    def process_queue(self) -> OfferedMessages | None:
        """Its messages; None: it has not begun."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether the application does not want its messages now."""
        ...

    @property
    def is_released(self) -> bool:
        """Whether failed messages are no longer of this member."""
        ...

    def is_locked(self, *, now: float) -> bool:
        """Whether this member alone may hand out its messages."""
        ...

    def finish(self, message: ReceivedMessage) -> None:
        """Record that a message is finished."""
        ...

    def give_back(self, message: ReceivedMessage) -> None:
        """Let a message be handed out here again."""
        ...


class SendsFailed(Protocol):
    """Has messages delivered again whose listener call failed, or makes them dead letters."""

    @property
    def sent(self) -> Mapping[Destination, int]:
        """Number of messages, by what became of them."""
        ...

    async def send(self, failed: ReceivedMessage, error: str, *, is_rejected: bool = False) -> bool:
        """Return False if the message must be handed out here again. ``is_rejected``: it is a dead letter now."""
        ...
