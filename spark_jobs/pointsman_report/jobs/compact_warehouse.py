"""Rewrite the days of past months: one file per table and day, better compressed, optionally without heartbeats.

The folders stay the same, so readers of the tables need no change. A compacted day has a marker file next to its rows;
recomputing the day removes the marker, and the next run compacts it again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.jobs.history_reading import LATE_DAYS, Progress
from pointsman_report.jobs.intake import counted
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import TABLES
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS

BEATS = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS")
"""Rows that are already summed in the tables of a day: most rows of a history."""
LEVEL = 9


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Statistics of a compaction."""

    days: int
    """Number of days, counted for each table."""
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows_dropped: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compact(
    spark: SparkSession, warehouse: str, *, before: date, log: Progress, keep_heartbeats_days: int | None = None
) -> CompactResult:
    """Rewrite the months that end before a day.

    ``keep_heartbeats_days``: drop rows of heartbeats and queue measurements that are older than this at ``before``. A
    day without them cannot be recomputed from the warehouse.

    Raises:
        ReportError: the warehouse cannot be written or is in use, or nightly runs may still recompute the days.
    """
    if keep_heartbeats_days is not None and keep_heartbeats_days <= LATE_DAYS:
        raise ReportError(
            f"--keep-heartbeats-days must be above {LATE_DAYS}: nightly runs may recompute that many days"
        )
    of = Warehouse(spark, warehouse)
    beats_before = None if keep_heartbeats_days is None else before - timedelta(days=keep_heartbeats_days)
    results: list[CompactResult] = []
    try:
        with of.locked():
            for table in TABLES:
                for month, days in _months(of, table, before, beats_before).items():
                    try:
                        done = _compact(of, table, days, beats_before)
                    finally:
                        of.discard()
                    log(f"{table} {month}: {done.bytes_before / 1e6:,.1f} MB -> {done.bytes_after / 1e6:,.1f} MB")
                    results.append(done)
    except KeyboardInterrupt:
        if not of.published:
            raise
        raise ReportError(
            "interrupted; the months listed above are compacted, the others unchanged: run again"
        ) from None
    return CompactResult(
        **{part.name: sum(getattr(done, part.name) for done in results) for part in fields(CompactResult)}
    )


def _months(of: Warehouse, table: str, before: date, beats_before: date | None) -> dict[str, list[date]]:
    """Days to rewrite, by month."""
    first_of_month = before.replace(day=1)
    months: dict[str, list[date]] = defaultdict(list)
    for day in sorted(of.days(table)):
        if day < first_of_month and not _is_done(
            of.note(table, day), loses=_drops_heartbeats(table, day, beats_before)
        ):
            months[f"{day:%Y-%m}"].append(day)
    return months


def _is_done(note: str | None, *, loses: bool) -> bool:
    marker = json.loads(note) if note else {}
    return marker.get("level") == LEVEL and not (loses and marker.get("beats", True))


def _drops_heartbeats(table: str, day: date, beats_before: date | None) -> bool:
    return table == REGISTRATION_EVENTS and beats_before is not None and day < beats_before


def _compact(of: Warehouse, table: str, days: list[date], beats_before: date | None) -> CompactResult:
    rows = of.read_days(table, days)
    counts = counted(rows)
    losing = [day for day in days if _drops_heartbeats(table, day, beats_before)]
    of.stage(table, _without_heartbeats(rows, losing), days=days, counts=counts, level=LEVEL)
    kept = counted(of.rows_after_run(table, first_day=days[0], last_day=days[-1]).filter(F.col("dt").isin(days)))
    dropped = sum(counts.values()) - sum(kept.values())
    if any(kept.get(day, 0) != count for day, count in counts.items() if day not in losing):
        raise ReportError(f"{table}: the rows written differ from the rows read; nothing was changed")
    before, after = of.sizes(table, days), of.sizes(table, days, staged=True)
    for day in kept:
        of.write_note(table, day, json.dumps({"level": LEVEL, "beats": day not in losing}))
    of.publish_own()
    return CompactResult(len(days), len(before), len(after), sum(before), sum(after), dropped)


def _without_heartbeats(rows: DataFrame, days: Iterable[date]) -> DataFrame:
    listed = list(days)
    return rows.filter(~(F.col("dt").isin(listed) & F.col("event").isin(*BEATS))) if listed else rows
