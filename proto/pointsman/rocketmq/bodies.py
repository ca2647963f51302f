"""Parser for the bodies of responses of RocketMQ's servers, and readers of their fields. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

MAX_SHOWN = 100
MAX_ITEMS = 600_000
"""Maximum number of brackets, commas and colons of a body, and of its texts: 20,000 replica groups or 500,000 topics
have fewer. JSON without such a limit takes up to 70 times its bytes, and seconds in which no other thread runs."""
_TEXT_OR_BARE_KEY = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|(?<=[{,])(-?\w++)(?=:)', re.DOTALL)
"""Without backtracking, and a text without an end is one match: linear in time for any bytes."""


class TooManyItemsError(ValueError):
    """A body with more items than are read."""


def read_json(body: bytes, *, max_items: int = MAX_ITEMS) -> object:
    """Parse JSON as RocketMQ's own name server writes it: number keys without quotes (fastjson).

    Raises ValueError; TooManyItemsError before it parses a body with more than ``max_items``.
    """
    for what, number in (
        ("brackets, commas and colons", sum(map(body.count, (b"{", b"[", b",", b":")))),
        ("texts", body.count(b'"') // 2),
    ):
        if number > max_items:
            raise TooManyItemsError(f"has {number} {what}, at most {max_items} are read")
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


def read_object(body: bytes, *, max_items: int = MAX_ITEMS) -> Mapping[str, object]:
    """Read a body that is a JSON object. Raises BadBodyError."""
    try:
        value = read_json(body, max_items=max_items)
    except TooManyItemsError as error:
        raise BadBodyError(f"the body {shown(body[:MAX_SHOWN])} {error}") from error
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


def list_of(data: Mapping[str, object], name: str) -> list[object]:
    """Return a field that is a list. Raises BadBodyError."""
    value = data.get(name)
    if not isinstance(value, list):
        raise BadBodyError(f"{name} = {shown(value)}, must be a list")
    return value


def text_of(
    data: Mapping[str, object], name: str, where: str = "", *, problem_of: Callable[[str], str | None] = lambda _: None
) -> str:
    """Return a field that is a string, an empty one for null; ``where``: the path of ``data``. Raises BadBodyError."""
    value = data.get(name) or ""
    problem = problem_of(value) if isinstance(value, str) else "must be a string"
    if problem:
        raise BadBodyError(f"{_path(where, name)} = {shown(data.get(name))}, {problem}")
    return str(value)


def number_of(data: Mapping[str, object], name: str, where: str = "", *, most: int) -> int:
    """Return a field that is a whole number from 0 to ``most``; ``where`` as for a text. Raises BadBodyError."""
    value = data.get(name)
    if not is_whole(value, 0, most):
        raise BadBodyError(f"{_path(where, name)} = {shown(value)}, must be a whole number from 0 to {most}")
    return value


def is_whole(value: object, least: float, most: float) -> TypeGuard[int]:
    """Whether a value of JSON is a whole number within the bounds; true, false and 1.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def shown(value: object) -> str:
    """Return the ``repr`` of a value of JSON as error messages show it, cut to MAX_SHOWN characters.

    The rest of the value is not read.
    """
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > MAX_SHOWN:
            return f"{text[:MAX_SHOWN]}..."
    return text


def _pieces(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for place, (key, member) in enumerate(value.items()):
            yield ", " if place else ""
            yield from _pieces(key)
            yield ": "
            yield from _pieces(member)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for place, member in enumerate(value):
            yield ", " if place else ""
            yield from _pieces(member)
        yield "]"
    else:
        yield repr(value[: MAX_SHOWN + 1] if isinstance(value, str | bytes) else value)
