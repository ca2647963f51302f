"""What producers send and consumers get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Self

from pointsman.wire.tag_expression import tag_problem
from pointsman_client.core.checks import check_name
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import InvalidMessageError, MessageTooLargeError

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send, checked when it is made and again when it is sent.

    The constructor raises :class:`InvalidNameError` for the topic and :class:`InvalidMessageError` for any other field
    (RocketMQ's ``Validators.checkMessage``, and what tags and keys need).
    """

    topic: str
    body: bytes
    tags: str = ""
    """One tag, by which consumers choose; empty: none (only ``*`` matches)."""
    keys: tuple[str, ...] = ()
    """What it may be looked up by, such as an order's number; without spaces."""
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    """Whatever else travels with it."""

    def __post_init__(self) -> None:
        self.check()

    @classmethod
    def unchecked(
        cls,
        topic: str,
        body: bytes,
        tags: str = "",
        keys: tuple[str, ...] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> Self:
        """Make a message as a transport read it: other programs write to queues too, and may write anything."""
        message = object.__new__(cls)
        put = object.__setattr__
        put(message, "topic", topic)
        put(message, "body", body)
        put(message, "tags", tags)
        put(message, "keys", keys)
        put(message, "properties", properties)
        return message

    def check(self) -> None:
        """Raise :class:`InvalidNameError` or :class:`InvalidMessageError` unless the message may be sent."""
        check_name("topic", self.topic)
        body: object = self.body
        if not isinstance(body, bytes):
            raise InvalidMessageError("body", body, "must be bytes", of_type=True)
        if not body:
            raise InvalidMessageError("body", body, "must not be empty: brokers refuse it (MESSAGE_ILLEGAL)")
        tags: object = self.tags
        if not isinstance(tags, str):
            raise InvalidMessageError("tags", tags, "must be a str", of_type=True)
        if tags and (problem := tag_problem(tags)):
            raise InvalidMessageError("tags", tags, f"must be one tag: it {problem}")
        keys: object = self.keys
        if not isinstance(keys, tuple | list):
            raise InvalidMessageError("keys", keys, "must be a tuple of str", of_type=True)
        for key in keys:
            if not _is_text(key) or " " in key:
                raise InvalidMessageError(
                    "keys", key, "must hold str without spaces and control characters, none empty"
                )
        properties: object = self.properties
        if not isinstance(properties, Mapping):
            raise InvalidMessageError("properties", properties, "must be a mapping of str to str", of_type=True)
        for name, value in properties.items():
            if not _is_text(name):
                raise InvalidMessageError("properties", name, "must have names without control characters, none empty")
            if not is_utf8(value):
                raise InvalidMessageError(f"properties[{name!r}]", value, "must be a str that UTF-8 can encode")


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
    origin: str = ""
    """As :class:`OutgoingMessage` has it; empty for a message that no listener failed on."""
    error: str = ""
    """Of a dead letter: the last error of its listener."""
    offset_message_id: str = ""
    """RocketMQ's ``offsetMsgId``: the broker that stored it, and where in its commit log; empty on other brokers."""

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
    origin: str = ""
    """Of a message that a listener failed on: where it was first read, as ``cluster/broker/topic/queue@offset``."""
    error: str = ""
    """Of a dead letter: the last error of its listener."""

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


def is_utf8(text: object) -> bool:
    """Whether it is a str that UTF-8 can encode."""
    try:
        return isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_text(text: object) -> bool:
    return isinstance(text, str) and text != "" and text.isprintable()


def check_message(message: Message) -> None:
    """Raise :class:`InvalidNameError` for the topic and :class:`InvalidMessageError` for any other field."""
    given: object = message
    if not isinstance(given, Message):
        raise InvalidMessageError("message", given, "must be a Message", of_type=True)
    message.check()


def check_size(messages: Sequence[OutgoingMessage], *, max_message_size: int) -> None:
    """Raise :class:`MessageTooLargeError` if they are larger together than one message may be."""
    size = sum(message.size for message in messages)
    if size > max_message_size:
        raise MessageTooLargeError(messages[0].message.topic, size, max_message_size)


def check_key(key: str, *, name: str = "key") -> None:
    """Raise :class:`InvalidMessageError` for a sharding key that no map can place."""
    if not key or not is_utf8(key):
        raise InvalidMessageError(name, key, "must be a str that UTF-8 can encode, not empty")


def check_batch(messages: Sequence[Message]) -> None:
    """Raise :class:`InvalidMessageError` unless they are at least one, all of one topic; checks each."""
    given: object = messages
    if not isinstance(given, Sequence) or not given:
        raise InvalidMessageError("messages", given, "must be a list with at least one message")
    for message in messages:
        check_message(message)
        if message.topic != messages[0].topic:
            raise InvalidMessageError("topic", message.topic, f"differs from {messages[0].topic!r} in the same batch")
