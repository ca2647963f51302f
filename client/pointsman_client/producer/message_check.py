"""Whether a message may be sent at all: RocketMQ's ``Validators.checkMessage``, and what tags and keys need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pointsman_client.address import check_name
from pointsman_client.errors import InvalidMessageError, MessageTooLargeError
from pointsman_client.message import Message, OutgoingMessage


def check_message(message: Message) -> None:
    """Raise :class:`InvalidNameError` for the topic and :class:`InvalidMessageError` for any other field."""
    given: object = message
    if not isinstance(given, Message):
        raise InvalidMessageError("message", given, "must be a Message")
    check_name("topic", message.topic)
    body: object = message.body
    if not isinstance(body, bytes):
        raise InvalidMessageError("body", type(body).__name__, "must be bytes")
    if not message.body:
        raise InvalidMessageError("body", message.body, "must not be empty: brokers refuse it (MESSAGE_ILLEGAL)")
    _check_tag(message.tags)
    keys: object = message.keys
    if not isinstance(keys, tuple | list):
        raise InvalidMessageError("keys", keys, "must be a tuple of texts")
    for key in message.keys:
        if not _is_text(key) or " " in key:
            raise InvalidMessageError("keys", key, "must hold texts without spaces and control characters, none empty")
    properties: object = message.properties
    if not isinstance(properties, Mapping):
        raise InvalidMessageError("properties", properties, "must be a mapping of texts to texts")
    for name, value in message.properties.items():
        if not _is_text(name):
            raise InvalidMessageError("properties", name, "must have names without control characters, none empty")
        if not _is_utf8(value):
            raise InvalidMessageError(f"properties[{name!r}]", value, "must be a text that UTF-8 can write")


def check_size(messages: Sequence[OutgoingMessage], *, max_message_size: int) -> None:
    """Raise :class:`MessageTooLargeError` if they are larger together than one message may be."""
    size = sum(message.size for message in messages)
    if size > max_message_size:
        raise MessageTooLargeError(messages[0].message.topic, size, max_message_size)


def check_key(key: str, *, name: str = "key") -> None:
    """Raise :class:`InvalidMessageError` for a sharding key that no map can place."""
    if not key or not _is_utf8(key):
        raise InvalidMessageError(name, key, "must be a text that UTF-8 can write, not empty")


def check_batch(messages: Sequence[Message]) -> None:
    """Raise :class:`InvalidMessageError` unless they are at least one, all of one topic; checks each."""
    given: object = messages
    if not isinstance(given, Sequence) or not given:
        raise InvalidMessageError("messages", given, "must be a list with at least one message")
    for message in messages:
        check_message(message)
        if message.topic != messages[0].topic:
            raise InvalidMessageError("topic", message.topic, f"differs from {messages[0].topic!r} in the same batch")


def _check_tag(tags: str) -> None:
    if tags == "":
        return
    if not _is_text(tags) or " " in tags:
        raise InvalidMessageError("tags", tags, "must be one tag without spaces and control characters")
    if "|" in tags or tags == "*":
        raise InvalidMessageError("tags", tags, "must be one tag: * and | belong to subscriptions")


def _is_text(text: object) -> bool:
    return isinstance(text, str) and text != "" and text.isprintable()


def _is_utf8(text: object) -> bool:
    try:
        return isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        return False
