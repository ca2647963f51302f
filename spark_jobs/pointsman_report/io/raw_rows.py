"""Rows of raw history files without Spark, by the rules of `transforms.history_rows`: bad lines are left out."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from types import NoneType
from typing import Any

from pyspark.sql import types as T

from pointsman_report.hadoop_files import RawFile
from pointsman_report.io.past import ROUTINE, Row, microseconds
from pointsman_report.io.warehouse import days_from
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.history_tables import HISTORY_ROW_JSON, REGISTRATION_EVENTS
from pointsman_report.transforms.history_rows import (
    ABOUT_A_REPLICA,
    EVENT,
    MAY_BE_ABOUT_ONE,
    REQUIRED,
    ROW_TIME,
    SCHEMA_VERSION,
    STATES,
)

Number = tuple[date, str, str, int]
"""The day of a row, its node, boot_id and seq."""

_BEGIN = re.compile(r'{"schema_version": \d, "event_at": "(\d{4}-\d\d-\d\d)T[\d:.]+Z", ')
"""As name servers begin a line; the day is that of the row."""
_TIME, _EVENT = re.compile(ROW_TIME), re.compile(EVENT)
_SPACE = " \t\r\n"
_KEYS = ("dt", "node", "boot_id", "seq")
_COUNTED = (*_KEYS, "at", "event", "cluster", "broker_name")
_NO_FIELDS = dict.fromkeys(HISTORY_ROW_JSON.fieldNames())
_FIELDS = {
    kind: tuple(field.name for field in HISTORY_ROW_JSON.fields if isinstance(field.dataType, kind))
    for kind in (T.IntegerType, T.LongType, T.BooleanType, T.StringType)
}
_INTEGERS, _LONGS, _FLAGS, _TEXTS = _FIELDS.values()


def rows_of(files: Iterable[RawFile], *, first_day: date, last_day: date) -> dict[Number, Row]:
    """Return the good rows of the days by their number; of several with one number the smallest.

    A row has the fields of the JSON (``detail`` as an object), its day ``dt`` and its time ``at`` (microseconds since
    1970); one of `ROUTINE`, which are nine in ten, only those that are counted.

    Raises:
        FileNotFoundError: a file was compressed or removed in the meantime.
        OSError: a file cannot be read.
    """
    days = {day.isoformat() for day in days_from(first_day, last_day)}
    found: dict[Number, Row] = {}
    for file in files:
        for line in _lines(Path(file.path.removeprefix("file:"))):
            # Most lines of other days need not be parsed.
            begin = _BEGIN.match(line)
            row = good_row(line) if begin is None or begin[1] in days else None
            if row is None or not first_day <= row["dt"] <= last_day:
                continue
            number = (row["dt"], row["node"], row["boot_id"], row["seq"])
            if row["event"] in ROUTINE:
                row = {name: row[name] for name in _COUNTED}
            known = found.setdefault(number, row)
            if known is not row and known != row:
                found[number] = min(known, row, key=_order)
    return found


def good_row(line: str) -> Row | None:
    """Return the row of a line; None if it is not a history row."""
    text = line.strip(_SPACE)
    if not text.startswith("{"):
        return None
    try:
        row: Row = _NO_FIELDS | json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if _is_typed(row) and _is_good(row) else None


def _lines(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as file:
        try:
            yield from file
        except (EOFError, zlib.error, gzip.BadGzipFile):
            # The lines before the damage are used.
            return


def _is_typed(row: Row) -> bool:
    for names, bound in ((_INTEGERS, 2**31), (_LONGS, 2**63)):
        for name in names:
            value = row[name]
            if value is not None and (type(value) is not int or not -bound <= value < bound):
                return False
    for name in _FLAGS:
        if type(row[name]) not in (bool, NoneType):
            return False
    for name in _TEXTS:
        value = row[name]
        # Few rows of a kind need their detail as text.
        if value is not None and type(value) is not str and name != "detail":
            row[name] = as_text(value)
    return True


def as_text(value: object) -> str:
    """Return a value of JSON as the text that Spark makes of it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _is_good(row: Row) -> bool:
    """Whether a typed row is one of history; adds ``dt`` and ``at``."""
    if None in (row[name] for name in REQUIRED) or row["schema_version"] != SCHEMA_VERSION or row["seq"] < 1:
        return False
    at, event = _moment(row["event_at"]), row["event"]
    if at is None or not _EVENT.fullmatch(event):
        return False
    about_one = event in ABOUT_A_REPLICA
    if about_one and any(row[name] is None for name in INSTANCE):
        return False
    has_state = about_one or (event in MAY_BE_ABOUT_ONE and row["broker_id"] is not None)
    if has_state and row["state"] not in STATES:
        return False
    row["dt"], row["at"] = at.date(), microseconds(at)
    return True


def _moment(text: str) -> datetime | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _order(row: Row) -> list[tuple[bool, Any]]:
    """As Spark sorts the columns of a table: nulls first."""
    names = (name for name in REGISTRATION_EVENTS.columns if name not in (*_KEYS, "event_at"))
    values = (row["at"], *(row.get(name) for name in names))
    return [(value is not None, as_text(value) if isinstance(value, dict | list) else value) for value in values]
