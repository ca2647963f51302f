"""Ingest new raw files: rows, bad lines, and the ledger of files read.

The ledger records which files have been read, and which have skipped rows that are needed now. Rows in the warehouse
stay, even if their files are removed; files only add rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.hadoop_files import RawFile
from pointsman_report.io import FILE, History, SparkPast, Warehouse
from pointsman_report.io.ledger import Entry, Key, Window, file_day, key, modified_ms, plain_name, read_ledger, unread
from pointsman_report.jobs.stage_graph import Intermediate
from pointsman_report.schemas.history_tables import INGESTED_FILES, QUARANTINE, REGISTRATION_EVENTS
from pointsman_report.schemas.table_types import TEXT, struct
from pointsman_report.transforms import history_rows

READ_FAULTS = (OSError, Py4JError, PySparkException)
PARSED = Intermediate("parsed")
MAX_READS = 3
"""Attempts to read the history if a file is compressed or removed in the meantime, or is torn."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was read by this run, and the ledger entries of all files."""

    files: list[RawFile]
    """All files that may have rows of the window."""
    read: list[RawFile]
    """The files read by this run."""
    rows: int
    bad_lines: int
    days: frozenset[date]
    """Days whose rows were staged."""
    entries: dict[Key, Entry]

    def entries_of(self, files: Iterable[RawFile]) -> list[Entry]:
        return [self.entries[key(file)] for file in files if key(file) in self.entries]


def take(
    history: History,
    warehouse: Warehouse,
    window: Window,
    *,
    reread: frozenset[date] = frozenset(),
    log: Callable[[str], None],
) -> Taken:
    """Stage ``registration_events``, ``quarantine`` and ``ingested_files`` of the days in unread files.

    ``reread``: days whose stored rows are replaced by the rows of the files.
    """
    for reads in range(1, MAX_READS + 1):
        files = history.files(first_day=window.first_day)
        known = read_ledger(SparkPast(warehouse), files)
        to_read = files if reread else unread(files, known, window)
        if not to_read and not reread:
            return Taken(files, [], 0, 0, frozenset(), known)
        log(f"reading {len(to_read):,} files of history, {sum(file.size for file in to_read) / 1e6:,.1f} MB")
        try:
            parsed = _parsed(history, warehouse, to_read)
            break
        except READ_FAULTS:
            if reads == MAX_READS or not history.any_removed(to_read):
                raise
    return _stage(warehouse, window, parsed, _Reading(files, to_read, known, reread))


def _parsed(history: History, warehouse: Warehouse, files: list[RawFile]) -> DataFrame:
    try:
        return warehouse.materialize(PARSED, history_rows.parsed_lines(history.lines(files, {})))
    except READ_FAULTS:
        # A torn gzip fails the whole read. Finding it costs a read, so it is done only after a failure.
        faults = {} if history.any_removed(files) else history.gzip_faults(files)
        if not faults:
            raise
        return warehouse.materialize(PARSED, history_rows.parsed_lines(history.lines(files, faults)))


@dataclass(frozen=True, slots=True)
class _Reading:
    files: list[RawFile]
    to_read: list[RawFile]
    known: dict[Key, Entry]
    reread: frozenset[date]


def _stage(warehouse: Warehouse, window: Window, parsed: DataFrame, reading: _Reading) -> Taken:
    days = {"first_day": window.first_day, "last_day": window.last_day}
    counts = [row.asDict() for row in history_rows.read_of_files(parsed, **days).collect()]
    rows_by_day: Counter[date] = Counter()
    for count in counts:
        if count["rows"]:
            rows_by_day[count["day"]] += count["rows"]
    touched = frozenset(rows_by_day) | reading.reread
    stored = warehouse.read_days(REGISTRATION_EVENTS, touched - reading.reread)
    stored_counts = counted(stored) if touched - reading.reread else {}
    sizes = {day: rows_by_day[day] + stored_counts.get(day, 0) for day in touched}
    events = history_rows.with_copies(parsed, stored, **days)
    if touched:

        def once(rows: DataFrame) -> DataFrame:
            return history_rows.each_once(rows, FILE)

        warehouse.stage(REGISTRATION_EVENTS, events, days=touched, counts=sizes, in_file=once)
    _stage_quarantine(warehouse, window, parsed, reading, {c["day"] for c in counts if c["bad_lines"]})
    late = _late_by_file(warehouse, window, parsed) if any(count["older_rows"] for count in counts) else {}
    entries = _stage_ledger(warehouse, reading, counts, late)
    return Taken(
        reading.files,
        reading.to_read,
        sum(rows_by_day.values()),
        sum(count["bad_lines"] for count in counts),
        touched,
        entries,
    )


def counted(events: DataFrame) -> dict[date, int]:
    """Count rows by day, with a query."""
    return {row["dt"]: row["rows"] for row in events.groupBy("dt").agg(F.count("*").alias("rows")).collect()}


def _stage_quarantine(
    warehouse: Warehouse, window: Window, parsed: DataFrame, reading: _Reading, bad_days: set[date]
) -> None:
    names = {plain_name(file) for file in reading.to_read}
    read_files = warehouse.rows([(name,) for name in sorted(names)], struct(name=TEXT))
    days = bad_days | reading.reread
    if any(entry.bad_lines for entry in reading.known.values() if entry.file in names):
        # The days of these files' earlier bad lines, which are replaced.
        every = warehouse.read_days(QUARANTINE, warehouse.days(QUARANTINE))
        of_files = every.join(F.broadcast(read_files), on=_plain(every) == read_files["name"], how="left_semi")
        days |= {row["dt"] for row in of_files.select("dt").distinct().collect()}
    if days:
        stored = warehouse.read_days(QUARANTINE, days - reading.reread)
        bad = history_rows.quarantine(stored, parsed, read_files, first_day=window.first_day, last_day=window.last_day)
        warehouse.stage(QUARANTINE, bad, days=days)


def _plain(quarantined: DataFrame) -> Column:
    return F.regexp_replace(quarantined["file"], r"\.gz$", "")


def _late_by_file(warehouse: Warehouse, window: Window, parsed: DataFrame) -> dict[str, int]:
    """Count rows that are too old to be ingested, of days that were computed without them."""
    computed = sorted(day for day in warehouse.computed_days() if day < window.first_day)
    if not computed:
        return {}
    of_days = parsed.filter(F.col("dt").isin(computed))
    unseen = history_rows.unseen_by_file(of_days, warehouse.read_days(REGISTRATION_EVENTS, computed))
    return {row["file"]: row["rows"] for row in unseen.collect()}


def _stage_ledger(
    warehouse: Warehouse,
    reading: _Reading,
    counts: Sequence[dict[str, Any]],
    late: dict[str, int],
) -> dict[Key, Entry]:
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for count in counts:
        by_file[count["file"]].append(count)
    names = {plain_name(file) for file in reading.to_read}
    entries = {at: entry for at, entry in reading.known.items() if entry.file not in names}
    for file in reading.to_read:
        blank = Entry(file_day(file), plain_name(file), file.size, modified_ms(file))
        entries[key(file)] = _entry(blank, by_file[file.path], late.get(file.path, 0))
    days = {file_day(file) for file in reading.to_read}
    rows = [_row(entry) for entry in entries.values() if entry.dt in days]
    if days:
        warehouse.stage(INGESTED_FILES, warehouse.rows(rows, INGESTED_FILES.schema), days=days)
    return entries


def _entry(blank: Entry, counts: list[dict[str, Any]], late: int) -> Entry:
    def days(name: str) -> list[date]:
        return [count[name] for count in counts if count[name] is not None]

    return replace(
        blank,
        rows=sum(count["rows"] for count in counts),
        bad_lines=sum(count["bad_lines"] for count in counts),
        fault=max((count["fault"] for count in counts if count["fault"]), default=None),
        ahead_rows=sum(count["ahead_rows"] for count in counts),
        ahead_from=min(days("ahead_from"), default=None),
        older_rows=sum(count["older_rows"] for count in counts),
        older_to=max(days("older_to"), default=None),
        late_rows=late,
        misdated_rows=sum(count["misdated_rows"] for count in counts),
    )


def _row(entry: Entry) -> tuple[Any, ...]:
    modified_at = datetime.fromtimestamp(entry.modified_ms / 1_000, tz=UTC)
    return (
        entry.dt,
        entry.file,
        entry.size,
        modified_at,
        entry.rows,
        entry.bad_lines,
        entry.fault,
        entry.ahead_rows,
        entry.ahead_from,
        entry.older_rows,
        entry.older_to,
        entry.late_rows,
        entry.misdated_rows,
        entry.schema_version,
    )
