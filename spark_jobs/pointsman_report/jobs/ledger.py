"""Which files of history have been read, and which hold something that is wanted now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from pyspark.sql import functions as F

from pointsman_report.files import RawFile
from pointsman_report.io import Warehouse
from pointsman_report.schemas.history import INGESTED_FILES
from pointsman_report.transforms.history_rows import SCHEMA_VERSION

_FOLDER_DAY = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")


@dataclass(frozen=True, slots=True)
class Window:
    """The days whose rows a run may store; rows before and after them are left in their files."""

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
    misdated_rows: int | None = 0
    """None: a warehouse of an older version did not count them."""
    schema_version: int = SCHEMA_VERSION

    def says_enough(self, window: Window) -> bool:
        """Say whether the file need not be read again for these days."""
        if self.bad_lines > 0 and self.schema_version < SCHEMA_VERSION:
            return False
        wanted_older = self.older_to is not None and self.older_to >= window.first_day
        wanted_ahead = self.ahead_from is not None and self.ahead_from <= window.last_day
        return not wanted_older and not wanted_ahead


Key = tuple[str, int, int]
Ledger = Mapping[Key, Entry]


def plain_name(file: RawFile) -> str:
    """A file and its gzip are one."""
    return file.path.removesuffix(".gz")


def key(file: RawFile) -> Key:
    return plain_name(file), file.size, modified_ms(file)


def modified_ms(file: RawFile) -> int:
    return round(file.modified_at.timestamp() * 1_000)


def file_day(file: RawFile) -> date:
    """The folder's day, else that of the file; as the transforms find it."""
    try:
        day = date.fromisoformat(_FOLDER_DAY.findall(file.path)[0])
    except (IndexError, ValueError):
        return file.modified_at.date()
    return day if day >= date(1970, 1, 1) else file.modified_at.date()


def ledger(warehouse: Warehouse, files: Iterable[RawFile]) -> dict[Key, Entry]:
    """Everything the warehouse knows of the days that these files stand under."""
    days = {file_day(file) for file in files}
    names = [name for name in INGESTED_FILES.fieldNames() if name != "modified_at"]
    rows = warehouse.read_days("ingested_files", days)
    found = rows.select(*names, F.unix_millis("modified_at").alias("modified_ms")).collect()
    entries = (Entry(**row.asDict()) for row in found)
    return {(entry.file, entry.size, entry.modified_ms): entry for entry in entries}


def unread(files: Iterable[RawFile], known: Ledger, window: Window) -> list[RawFile]:
    """The files to read: of a file that lies there plain and packed, both or none."""

    def is_read(file: RawFile) -> bool:
        entry = known.get(key(file))
        return entry is not None and entry.says_enough(window)

    files = list(files)
    names = {plain_name(file) for file in files if not is_read(file)}
    return [file for file in files if plain_name(file) in names]


def most_by_name(entries: Iterable[Entry], count: str) -> int:
    """Add up a count over files, a plain one and its gzip as one."""
    most: dict[str, int] = {}
    for entry in entries:
        most[entry.file] = max(most.get(entry.file, 0), getattr(entry, count) or 0)
    return sum(most.values())
