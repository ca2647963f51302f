"""Rows of raw history files without Spark, by the rules of `transforms.history_rows`: bad lines are left out."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from pointsman.history.row_format import ROUTINE, Row, as_text, good_row
from pointsman_report.hadoop_files import RawFile
from pointsman_report.io.warehouse import days_from
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS

Number = tuple[date, str, str, int]
"""The day of a row, its node, boot_id and seq."""

_BEGIN = re.compile(r'{"schema_version": \d, "event_at": "(\d{4}-\d\d-\d\d)T[\d:.]+Z", ')
"""As name servers begin a line; the day is that of the row."""
_KEYS = ("dt", "node", "boot_id", "seq")
_COUNTED = (*_KEYS, "at", "event", "cluster", "broker_name")


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


def _lines(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as file:
        try:
            yield from file
        except (EOFError, zlib.error, gzip.BadGzipFile):
            # The lines before the damage are used.
            return


def _order(row: Row) -> list[tuple[bool, Any]]:
    """As Spark sorts the columns of a table: nulls first."""
    names = (name for name in REGISTRATION_EVENTS.columns if name not in (*_KEYS, "event_at"))
    values = (row["at"], *(row.get(name) for name in names))
    return [(value is not None, as_text(value) if isinstance(value, dict | list) else value) for value in values]
