"""Fields of a request. RocketMQ reads a missing field as null and fails later; here the error names it."""

from __future__ import annotations

import json

from pointsman.rocketmq.frames import Command
from pointsman.wire.refusals import FieldViolation, InvalidRequest, shown

MAX_JSON_BYTES = 64 * 1024
"""Size of a body that is read in one step."""


def text(command: Command, field: str) -> str:
    """Return a required string of extFields. Raises InvalidRequest."""
    value = command.ext.get(field)
    if value is None:
        raise InvalidRequest([FieldViolation(field, "is missing in extFields")])
    return value


def number(command: Command, field: str) -> int:
    """Return a required number of extFields. Raises InvalidRequest."""
    return _number(field, text(command, field))


def optional_number(command: Command, field: str) -> int | None:
    """Return an optional number of extFields. Raises InvalidRequest."""
    value = command.ext.get(field)
    return None if not value else _number(field, value)


def flag(command: Command, field: str) -> bool:
    """Return a boolean of extFields, as Java reads it: all but "true" is false."""
    return command.ext.get(field, "").lower() == "true"


def read_json(body: bytes, field: str) -> object:
    """Parse a short body. Raises InvalidRequest."""
    try:
        if len(body) <= MAX_JSON_BYTES:
            return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest([FieldViolation(field, "is not JSON")]) from error
    raise InvalidRequest([FieldViolation(field, f"has {len(body)} bytes, at most {MAX_JSON_BYTES} are read")])


def _number(field: str, value: str) -> int:
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise InvalidRequest([FieldViolation(field, f"must be a whole number, not {shown(value)}")])
    return int(value)
