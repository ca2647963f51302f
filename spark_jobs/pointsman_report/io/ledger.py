"""The ledger of the raw files that a warehouse has read, as its table ``ingested_files`` holds it.

It says which files need not be read again, and which have skipped rows that are needed now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from pointsman.history.row_format import SCHEMA_VERSION, Row
from pointsman_report.hadoop_files import RawFile
from pointsman_report.io.past import Past
from pointsman_report.schemas.history_tables import INGESTED_FILES

_FOLDER_DAY = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")


@dataclass(frozen=True, slots=True)
class Window:
    """The days whose rows a run may store; earlier and later rows are skipped."""

    first_day: date
    last_day: date


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of ``ingested_files``, the time in milliseconds."""

    dt: date
    file: str
    size: int
    modified_ms: int
    rows: int = 0
    bad_lines: int = 0
    fault: str | None = None
    ahead_rows: int = 0
    ahead_from: date | None = None
    older_rows: int = 0
    older_to: date | None = None
    late_rows: int = 0
    misdated_rows: int = 0
    schema_version: int = SCHEMA_VERSION

    def is_sufficient(self, window: Window) -> bool:
        """Return whether the file need not be read again for these days."""
        if self.bad_lines > 0 and self.schema_version < SCHEMA_VERSION:
            return False
        wanted_older = self.older_to is not None and self.older_to >= window.first_day
        wanted_ahead = self.ahead_from is not None and self.ahead_from <= window.last_day
        return not wanted_older and not wanted_ahead


Key = tuple[str, int, int]
Ledger = Mapping[Key, Entry]


def plain_name(file: RawFile) -> str:
    """Return the path without ``.gz``: a file and its gzip count as one."""
    return file.path.removesuffix(".gz")


def key(file: RawFile) -> Key:
    """Return what identifies the content of a file in the ledger."""
    return plain_name(file), file.size, modified_ms(file)


def modified_ms(file: RawFile) -> int:
    """Return the time of modification in milliseconds since 1970."""
    return round(file.modified_at.timestamp() * 1_000)


def file_day(file: RawFile) -> date:
    """Return the day of the folder, else of the file, as the transforms do."""
    try:
        day = date.fromisoformat(_FOLDER_DAY.findall(file.path)[0])
    except (IndexError, ValueError):
        return file.modified_at.date()
    return day if day >= date(1970, 1, 1) else file.modified_at.date()


def read_ledger(past: Past, files: Iterable[RawFile]) -> dict[Key, Entry]:
    """Return the entries of the days of these files."""
    days = {file_day(file) for file in files}
    if not days:
        return {}
    rows = past.rows(INGESTED_FILES, INGESTED_FILES.columns, first_day=min(days), last_day=max(days))
    entries = (_entry(row) for row in rows if row["dt"] in days)
    return {(entry.file, entry.size, entry.modified_ms): entry for entry in entries}


def _entry(row: Row) -> Entry:
    values = {name: value for name, value in row.items() if name != "modified_at"}
    return Entry(**values, modified_ms=round(row["modified_at"].timestamp() * 1_000))


def unread(files: Iterable[RawFile], known: Ledger, window: Window) -> list[RawFile]:
    """Return the files to read; of a file that exists plain and compressed, both or none."""

    def is_read(file: RawFile) -> bool:
        entry = known.get(key(file))
        return entry is not None and entry.is_sufficient(window)

    files = list(files)
    names = {plain_name(file) for file in files if not is_read(file)}
    return [file for file in files if plain_name(file) in names]


def most_by_name(entries: Iterable[Entry], count: str) -> int:
    """Sum a count over files; a plain file and its gzip count once."""
    most: dict[str, int] = {}
    for entry in entries:
        most[entry.file] = max(most.get(entry.file, 0), getattr(entry, count) or 0)
    return sum(most.values())
