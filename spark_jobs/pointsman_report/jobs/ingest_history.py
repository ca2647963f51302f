"""Read new history files into the warehouse without computing: run hourly, it shortens the nightly run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from pointsman_report.io import History, Warehouse
from pointsman_report.io.ledger import Window
from pointsman_report.jobs.history_reading import LATE_DAYS, Progress
from pointsman_report.jobs.intake import Taken, counted, take
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS

OLDEST_DAYS = 3_700
"""Older rows are skipped: a broken clock must not create a folder for each day since 1970."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Statistics of an ingest."""

    files: int
    """Files read by this run."""
    rows: int
    """Good rows in them."""
    new_rows: int
    """Rows that were not in the warehouse before."""
    bad_lines: int
    days: list[date]
    """Days of the rows."""
    late_days: list[date]
    """Days that were computed without these rows, too long ago for a nightly run to recompute them."""
    rows_ahead: int
    """Rows dated in the future, not ingested."""
    rows_misdated: int
    """Rows older than accepted and dated days before their folder, not ingested."""

    def as_dict(self) -> dict[str, Any]:
        days = {name: [day.isoformat() for day in getattr(self, name)] for name in ("days", "late_days")}
        return asdict(self) | days


def ingest(spark: SparkSession, histories: list[str], warehouse: str, *, log: Progress) -> IngestResult:
    """Publish the rows and bad lines of every file that was not read before.

    Raises:
        ReportError: the warehouse cannot be written or is in use, or a history directory does not exist.
    """
    to = Warehouse(spark, warehouse)
    today = datetime.now(tz=UTC).date()
    window = Window(today - timedelta(days=OLDEST_DAYS), today + timedelta(days=1))
    with to.locked():
        try:
            taken = take(History(spark, histories), to, window, log=log)
            result = _result(to, taken, today)
            to.publish_own()
        finally:
            to.discard()
    log(f"{result.new_rows:,} new rows of {len(result.days)} days")
    return result


def _result(warehouse: Warehouse, taken: Taken, today: date) -> IngestResult:
    before, after = ({}, {}) if not taken.days else _counts(warehouse, taken.days)
    grown = {day for day in taken.days if after.get(day, 0) > before.get(day, 0)}
    computed = warehouse.computed_days()
    too_old = sorted(day for day in grown & computed if day < today - timedelta(days=LATE_DAYS + 1))
    read = taken.entries_of(taken.read)
    return IngestResult(
        files=len(taken.read),
        rows=taken.rows,
        new_rows=sum(after.values()) - sum(before.values()),
        bad_lines=taken.bad_lines,
        days=sorted(taken.days),
        late_days=too_old,
        rows_ahead=sum(entry.ahead_rows for entry in read),
        rows_misdated=sum(entry.misdated_rows for entry in read),
    )


def _counts(warehouse: Warehouse, days: frozenset[date]) -> tuple[dict[date, int], dict[date, int]]:
    before = counted(warehouse.read_days(REGISTRATION_EVENTS, days))
    staged = counted(warehouse.rows_after_run(REGISTRATION_EVENTS, first_day=min(days), last_day=max(days)))
    return before, {day: rows for day, rows in staged.items() if day in days}
