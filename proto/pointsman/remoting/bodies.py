"""Parser for the bodies of a RocketMQ name server's responses. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

MAX_SHOWN = 100
_TEXT_OR_BARE_KEY = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|(?<=[{,])(-?\w++)(?=:)', re.DOTALL)
"""Without backtracking, and a text without an end is one match: linear in time for any bytes."""


def read_json(body: bytes) -> object:
    """Parse JSON as RocketMQ's own name server writes it: number keys without quotes (fastjson).

    Raises ValueError.
    """
    try:
        try:
            return json.loads(body)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Expecting property name"):
                raise
            return json.loads(_TEXT_OR_BARE_KEY.sub(lambda found: found[1] or b'"%b"' % found[2], body))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


class BadBodyError(Exception):
    """A body that cannot be read; the text names the field and its value."""


def read_object(body: bytes) -> Mapping[str, object]:
    """Read a body that is a JSON object. Raises BadBodyError."""
    try:
        value = read_json(body)
    except ValueError as error:
        raise BadBodyError(f"the body {shown(body[:MAX_SHOWN])} is not JSON: {error}") from error
    return to_object(value, "the body")


def to_object(value: object, where: str) -> Mapping[str, object]:
    """Return a JSON object, an empty one for null. Raises BadBodyError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadBodyError(f"{where} = {shown(value)}, must be an object")
    return value


def shown(value: object) -> str:
    """Return a value as error messages show it, cut to MAX_SHOWN characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
