"""What producers send and consumers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from pointsman_client.message_queue import MessageQueue

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. Checked when it is sent, not when it is made."""

    topic: str
    body: bytes
    tags: str = ""
    """One tag, by which consumers choose; empty: none (only ``*`` matches)."""
    keys: tuple[str, ...] = ()
    """What it may be looked up by, such as an order's number; without spaces."""
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    """Whatever else travels with it."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as it stands in a queue."""

    message: Message
    """As it was sent; its topic is the original one, also for a message that is tried again."""
    queue: MessageQueue
    """Where it was read."""
    queue_offset: int
    message_id: str
    """Given by the producer; the same for every try of a send and for every try of a listener."""
    born_at: datetime | None
    """When it was made, UTC, by the producer's clock; None if whoever wrote it did not say."""
    reconsume_times: int = 0
    """How often a listener has failed on it."""
    due_at: datetime | None = None
    """As :class:`OutgoingMessage` has it. A transport gives it on, and may give the message early: consumers wait."""

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.message.topic

    @property
    def body(self) -> bytes:
        """What it carries."""
        return self.message.body

    @property
    def tags(self) -> str:
        """Its tag; empty: none."""
        return self.message.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """What it may be looked up by."""
        return self.message.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """Whatever else travels with it."""
        return self.message.properties


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message on its way into a queue, with what the library adds. ``message.topic`` is the topic that the
    application named; the queue that it goes to may be another topic's, such as a group's retry topic."""

    message: Message
    message_id: str
    born_at: datetime
    reconsume_times: int = 0
    due_at: datetime | None = None
    """Not to be given to a listener before; None: at once."""

    @property
    def size(self) -> int:
        """Bytes that count against ``max_message_size``: body, keys, tags and properties."""
        return len(self.message.body) + sum(
            len(text.encode())
            for text in (
                self.message.tags,
                *self.message.keys,
                *self.message.properties.keys(),
                *self.message.properties.values(),
            )
        )
