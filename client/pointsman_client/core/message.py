"""Messages that producers send and consumers receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from pointsman.tag_expression import tag_problem
from pointsman_client.core.checks import check_name
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.reply_address import ReplyAddress
from pointsman_client.core.serializer import Decoded
from pointsman_client.errors import InvalidMessageError, MessageTooLargeError, UndecodableMessageError

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A message to send, checked by the constructor and again when it is sent.

    The constructor raises :class:`InvalidNameError` for the topic and :class:`InvalidMessageError` for any other field
    (RocketMQ's ``Validators.checkMessage``, and the rules for tags and keys).
    """

    topic: str
    body: bytes
    tags: str = ""
    """One tag, which subscriptions select by; empty: none (only ``*`` matches)."""
    keys: tuple[str, ...] = ()
    """Lookup keys, such as an order number; without spaces."""
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    """Further string properties of the application."""
    deliver_at: datetime | None = None
    """Earliest delivery to consumers, with a time zone; None, or in the past: immediately. Limits depend on the broker.

    RocketMQ's ``setDeliverTimeMs``, ``setDelayTimeSec`` and ``setDelayTimeLevel``.
    """

    def __init__(
        self,
        topic: str,
        body: bytes,
        tags: str = "",
        keys: tuple[str, ...] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        deliver_at: datetime | None = None,
    ) -> None:
        _SET_TOPIC(self, topic)
        _SET_BODY(self, body)
        _SET_TAGS(self, tags)
        _SET_KEYS(self, keys)
        _SET_PROPERTIES(self, properties)
        _SET_DELIVER_AT(self, deliver_at)
        self.check()

    @staticmethod
    def unchecked(
        topic: str,
        body: bytes,
        tags: str = "",
        keys: tuple[str, ...] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> Message:
        """Make a message that a transport read, without checks: other programs may write any values to a queue."""
        message: Any = _Mutable()
        message.topic = topic
        message.body = body
        message.tags = tags
        message.keys = keys
        message.properties = properties
        message.deliver_at = None
        message.__class__ = Message
        frozen: Message = message
        return frozen

    @property
    def size(self) -> int:
        """Bytes that count against ``max_message_size``: body, keys, tags and properties."""
        size = len(self.body)
        if self.tags:
            size += len(self.tags.encode())
        for key in self.keys:
            size += len(key.encode())
        if self.properties:
            for name, value in self.properties.items():
                size += len(name.encode()) + len(value.encode())
        return size

    def check(self) -> None:
        """Raise :class:`InvalidNameError` or :class:`InvalidMessageError` unless the message may be sent."""
        check_name("topic", self.topic)
        body: object = self.body
        if not isinstance(body, bytes):
            raise InvalidMessageError("body", body, "must be bytes", of_type=True)
        if not body:
            raise InvalidMessageError("body", body, "must not be empty: brokers reject it (MESSAGE_ILLEGAL)")
        tags: object = self.tags
        if not isinstance(tags, str):
            raise InvalidMessageError("tags", tags, "must be a str", of_type=True)
        if tags and (problem := tag_problem(tags)):
            raise InvalidMessageError("tags", tags, f"must be one tag: it {problem}")
        keys: object = self.keys
        if not isinstance(keys, (tuple, list)):  # `tuple | list` would make a union for each message
            raise InvalidMessageError("keys", keys, "must be a tuple of str", of_type=True)
        for key in keys:
            if not _is_text(key) or " " in key:
                raise InvalidMessageError(
                    "keys", key, "must hold str without spaces and control characters, none empty"
                )
        if self.properties is not NO_PROPERTIES:
            _check_properties(self.properties)
        if self.deliver_at is not None:
            _check_deliver_at(self.deliver_at)


_SET_TOPIC, _SET_BODY, _SET_TAGS, _SET_KEYS, _SET_PROPERTIES, _SET_DELIVER_AT = (
    getattr(Message, each.name).__set__ for each in fields(Message)
)
"""The constructor of a frozen dataclass looks ``object.__setattr__`` up for each field, which takes twice as long."""


class _Mutable:
    """What becomes a Message: to set the fields of a frozen dataclass takes four times as long, for each message."""

    __slots__ = Message.__slots__


class ReceivedMessage(NamedTuple):
    """A message read from a queue."""

    message: Message
    """The message as sent; a retried message also has its original topic."""
    queue: MessageQueue
    """The queue it was read from."""
    queue_offset: int
    message_id: str
    """Assigned by the producer; the same for every attempt of a send and every retry of a listener."""
    born_at: datetime | None
    """Creation time, UTC, by the producer's clock; None: the writer did not set it."""
    reconsume_times: int = 0
    """Number of failed listener calls."""
    due_at: datetime | None = None
    """See :class:`OutgoingMessage`. A transport may return the message earlier; the consumer then waits.

    None on RocketMQ brokers, which wait themselves.
    """
    origin: str = ""
    """See :class:`OutgoingMessage`; empty: no listener has failed on it."""
    error: str = ""
    """Of a dead letter: the last error of its listener."""
    offset_message_id: str = ""
    """RocketMQ's ``offsetMsgId``: the broker that stored it, and where in its commit log; empty on other brokers."""
    reply_address: ReplyAddress | None = None
    """Of a request: where its reply goes; None: no reply is awaited. See :meth:`Producer.reply`."""
    decoded: Decoded | None = None
    """What the consumer's serializer made of the body; None: it has no serializer."""

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self.message.topic

    @property
    def body(self) -> bytes:
        """The payload."""
        return self.message.body

    @property
    def value(self) -> Any:  # noqa: ANN401  of the application
        """What the consumer's ``serializer`` decoded from the body; without a serializer the body.

        Raises :class:`UndecodableMessageError`.
        """
        if self.decoded is None:
            return self.message.body
        if self.decoded.error is not None:
            raise self.decoded.error
        return self.decoded.value

    @property
    def decode_error(self) -> UndecodableMessageError | None:
        """Why :attr:`value` raises; None: it does not."""
        return None if self.decoded is None else self.decoded.error

    @property
    def tags(self) -> str:
        """Its tag; empty: none."""
        return self.message.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """Its lookup keys."""
        return self.message.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""
        return self.message.properties


class OutgoingMessage(NamedTuple):
    """A message to be written to a queue, with fields that the library adds.

    ``message.topic`` is the application's topic; the queue may belong to another topic, such as a group's retry topic.
    """

    message: Message
    message_id: str
    born_at: datetime
    reconsume_times: int = 0
    due_at: datetime | None = None
    """Earliest delivery to consumers: the sender's ``deliver_at``, or the time of a retry; None: immediately."""
    origin: str = ""
    """Of a message sent back by a consumer: where it was first read, as ``cluster/broker/topic/queue@offset``."""
    error: str = ""
    """Of a dead letter: the last error of its listener."""
    internal_properties: Mapping[str, str] = NO_PROPERTIES
    """Properties by RocketMQ's names, which applications cannot set: of half messages, requests, replies."""


def _check_properties(properties: object) -> None:
    # The usual classes first: the check of an abstract class is slow.
    if not isinstance(properties, (MappingProxyType, dict, Mapping)):
        raise InvalidMessageError("properties", properties, "must be a mapping of str to str", of_type=True)
    for name, value in properties.items():
        if not _is_text(name):
            raise InvalidMessageError("properties", name, "must have names without control characters, none empty")
        if not is_utf8(value):
            raise InvalidMessageError(f"properties[{name!r}]", value, "must be a str that UTF-8 can encode")


def _check_deliver_at(at: object) -> None:
    if not isinstance(at, datetime):
        raise InvalidMessageError("deliver_at", at, "must be a datetime or None", of_type=True)
    if at.utcoffset() is None:
        raise InvalidMessageError("deliver_at", at.isoformat(), "must have a time zone, as datetime.now(UTC) has")


def is_utf8(text: object) -> bool:
    """Whether it is a str that UTF-8 can encode."""
    try:
        return isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_text(text: object) -> bool:
    return isinstance(text, str) and text != "" and text.isprintable()


def check_key(key: str, *, name: str = "key") -> None:
    """Raise :class:`InvalidMessageError` for an invalid sharding key."""
    if not key or not is_utf8(key):
        raise InvalidMessageError(name, key, "must be a str that UTF-8 can encode, not empty")


def check_batch(messages: Sequence[Message], *, max_message_size: int) -> None:
    """Raise :class:`InvalidMessageError` unless there is at least one message, all of one topic; check each.

    Raises :class:`MessageTooLargeError` if their total size exceeds ``max_message_size``.
    """
    size = 0
    given: object = messages
    if not isinstance(given, (list, Sequence)) or not given:  # list first: the check of an abstract class is slow
        raise InvalidMessageError("messages", given, "must be a list with at least one message")
    topic = ""
    for message in messages:
        each: object = message
        if not isinstance(each, Message):
            raise InvalidMessageError("message", each, "must be a Message", of_type=True)
        message.check()
        topic = topic or message.topic
        if message.topic != topic:
            raise InvalidMessageError("topic", message.topic, f"differs from {topic!r} in the same batch")
        size += message.size
    if size > max_message_size:
        raise MessageTooLargeError(topic, size, max_message_size)
