"""Whether messages may be sent at all: what is given, sizes, sharding keys and batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman_client.errors import InvalidMessageError, MessageTooLargeError
from pointsman_client.message import Message, OutgoingMessage, is_utf8


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
