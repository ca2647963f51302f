"""Serializers: how the values of an application become the bodies of messages, and back."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from pointsman_client.errors import InvalidMessageError, InvalidOptionError, UndecodableMessageError


class Serializer(Protocol):
    """Encodes and decodes the bodies of messages: any object with these two methods.

    They are called in the event loop, so they must not block. Any exception means that the value is refused.
    """

    def encode(self, value: Any) -> bytes:  # noqa: ANN401  of the application
        """Return the body for a value."""
        ...

    def decode(self, body: bytes) -> Any:  # noqa: ANN401  of the application
        """Return the value of a body."""
        ...


class Decoded(NamedTuple):
    """Result of decoding a body."""

    value: Any
    error: UndecodableMessageError | None = None
    """None: it was decoded."""


def check_serializer(option: str, given: object) -> None:
    """Raise :class:`InvalidOptionError` unless it is None or has both methods."""
    if given is not None and not (
        callable(getattr(given, "encode", None)) and callable(getattr(given, "decode", None))
    ):
        problem = "must have the methods encode(value) -> bytes and decode(body) -> value"
        raise InvalidOptionError(option, type(given).__name__, problem)


def encoded(serializer: Serializer | None, value: object) -> bytes:
    """Return the body for a value. Raises :class:`InvalidMessageError`, which does not show the value."""
    if serializer is None:
        raise InvalidOptionError("serializer", None, "must be set to make messages of values")
    try:
        return serializer.encode(value)
    except Exception as error:  # of the application: a refusal of its value
        problem = f"cannot be encoded ({type(error).__name__})"
        raise InvalidMessageError("value", value, problem, of_type=True) from error


def decoded(serializer: Serializer, body: bytes, *, message_id: str) -> Decoded:
    """Return the value of a body, or why it has none."""
    try:
        return Decoded(serializer.decode(body))
    except Exception as error:  # noqa: BLE001  # of the application: a refusal is a result
        undecodable = UndecodableMessageError(message_id, f"{type(error).__name__}: {error}")
        undecodable.__cause__ = error
        return Decoded(None, undecodable)
