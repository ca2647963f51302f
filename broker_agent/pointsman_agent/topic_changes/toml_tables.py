"""The ``[[topics.topic]]`` tables of a configuration, changed in its text: comments, order and layout stay. Pure.

Each changed text is parsed and compared with what it must mean, so what this does not understand is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

_HEADER = re.compile(r"\s*\[")
_TOPIC_HEADER = re.compile(r"\s*\[\[\s*topics\s*\.\s*topic\s*\]\]\s*(?:#.*)?")
_BLANK_OR_COMMENT = re.compile(r"\s*(?:#.*)?")

Row = Mapping[str, int | str]


class CannotEditError(Exception):
    """The tables are written in a way that is not changed here; the text says why."""


def with_row(text: str, name: str, row: Row) -> str:
    """Return the text with these keys in the table of topic ``name``; appended if there is none.

    Raises CannotEditError.
    """
    tables = _rows(text)
    position = _position(tables, name)
    lines = text.splitlines(keepends=True)
    end = "\r\n" if "\r\n" in text else "\n"
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    if position is None:
        block = [f"{line}{end}" for line in table_lines(name, row)]
        expected = [*tables, {"name": name, **row}]
        blocks = _blocks(lines, tables)
        at = blocks[-1][1] if blocks else len(lines)
        changed = [*lines[:at], end, *block, *lines[at:]]
    else:
        expected = [*tables]
        expected[position] = {**tables[position], **row}
        start, stop = _blocks(lines, tables)[position]
        changed = [*lines[:start], *_with_keys(lines[start:stop], row, end), *lines[stop:]]
    return _checked(text, "".join(changed), expected)


def without_row(text: str, name: str) -> str:
    """Return the text without the table of topic ``name`` and the comment right above it. Raises CannotEditError."""
    tables = _rows(text)
    position = _position(tables, name)
    if position is None:
        return text
    lines = text.splitlines(keepends=True)
    start, stop = _blocks(lines, tables)[position]
    above = start
    while above and lines[above - 1].lstrip().startswith("#"):
        above -= 1
    if above == 0 or not lines[above - 1].strip():
        start = above
    while stop < len(lines) and not lines[stop].strip():
        stop += 1
    return _checked(text, "".join([*lines[:start], *lines[stop:]]), [*tables[:position], *tables[position + 1 :]])


def table_lines(name: str, row: Row) -> list[str]:
    """Return a table as it is written to a file."""
    return ["[[topics.topic]]", *(f"{key} = {_to_value(value)}" for key, value in {"name": name, **row}.items())]


def _to_value(value: int | str) -> str:
    # Names and permissions have neither quotes nor backslashes.
    return f'"{value}"' if isinstance(value, str) else str(value)


def _rows(text: str) -> list[dict[str, Any]]:
    try:
        topics = tomllib.loads(text).get("topics", {})
    except tomllib.TOMLDecodeError as error:
        raise CannotEditError(f"it is not TOML: {error}") from error
    rows = topics.get("topic", []) if isinstance(topics, dict) else None
    if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
        raise CannotEditError("topics.topic is not a list of tables")
    return rows


def _position(tables: Sequence[Mapping[str, Any]], name: str) -> int | None:
    return next((position for position, each in enumerate(tables) if each.get("name") == name), None)


def _blocks(lines: Sequence[str], tables: Sequence[object]) -> list[tuple[int, int]]:
    """Return first and last line of each table, without the blank lines and comments behind it."""
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    blocks: list[tuple[int, int]] = []
    for number, after in pairwise([*headers, len(lines)]):
        if _TOPIC_HEADER.fullmatch(lines[number].rstrip("\r\n")):
            stop = after
            while _BLANK_OR_COMMENT.fullmatch(lines[stop - 1].rstrip("\r\n")):
                stop -= 1
            blocks.append((number, stop))
    if len(blocks) != len(tables):
        raise CannotEditError("topics are not written as [[topics.topic]] tables")
    return blocks


def _with_keys(block: Sequence[str], row: Row, end: str) -> list[str]:
    changed = [*block]
    for key, value in row.items():
        line = re.compile(rf"(\s*{key}\s*=\s*)[^#\r\n]*?(\s*(?:#[^\r\n]*)?[\r\n]*)")
        for number, held in enumerate(changed):
            if match := line.fullmatch(held):
                changed[number] = f"{match[1]}{_to_value(value)}{match[2]}"
                break
        else:
            changed.append(f"{key} = {_to_value(value)}{end}")
    return changed


def _checked(old: str, new: str, rows: list[dict[str, Any]]) -> str:
    """Return the new text, if it differs from the old one in these tables alone."""
    expected = tomllib.loads(old)
    expected.setdefault("topics", {})["topic"] = rows
    try:
        found = tomllib.loads(new)
    except tomllib.TOMLDecodeError as error:
        raise CannotEditError(f"the changed text is not TOML: {error}") from error
    if not rows:
        found.setdefault("topics", {}).setdefault("topic", [])
    if found != expected:
        raise CannotEditError("its tables have a layout that is not understood")
    return new
