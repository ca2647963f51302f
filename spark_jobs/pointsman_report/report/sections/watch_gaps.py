"""Periods without a running name server, and whether the last one was shut down cleanly.

A day without any name server is a finding, but not every day for a week: after a clean stop of the last one, only the
first day is a finding, and later days get a notice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse, days_from
from pointsman_report.report.formatting import rfc3339
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import collect
from pointsman_report.schemas import OBSERVER

LOOKBACK_DAYS = 30


@dataclass(frozen=True, slots=True)
class SeqGap:
    """Range of missing sequence numbers, both ends included."""

    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class NameServerRun:
    """A run of a name server; ``from_at`` is None before it was ready."""

    node: str
    boot_id: str
    open: bool
    rows: int
    rows_missing: int
    gaps: list[SeqGap]
    from_at: str | None
    to_at: str | None


@dataclass(frozen=True, slots=True)
class Watch:
    """The monitoring window of a run, in microseconds, its rows, and the times in which none is missing."""

    node: str
    boot_id: str
    from_us: int | None
    to_us: int
    open: bool
    rows: int = 0
    rows_missing: int = 0
    gaps: list[SeqGap] = field(default_factory=list)
    whole: list[tuple[int, int]] = field(default_factory=list)

    @property
    def as_run(self) -> NameServerRun:
        times = rfc3339(self.from_us), rfc3339(self.to_us)
        return NameServerRun(self.node, self.boot_id, self.open, self.rows, self.rows_missing, self.gaps, *times)


@dataclass(frozen=True, slots=True)
class FellSilent:
    """The last run of all name servers, if it recorded no clean stop."""

    node: str
    boot_id: str
    to_at: str


@dataclass(frozen=True, slots=True)
class StoppedBefore:
    """The last name server that was stopped cleanly before the days; ``reported_before``: an earlier report had the
    finding."""

    node: str
    to_at: str
    reported_before: bool


def without_holes(from_us: int, to_us: int, holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the times of a window, in microseconds, that lie in none of its holes."""
    times, at = [], from_us
    for begin, end in sorted(holes):
        if begin > at:
            times.append((at, min(begin, to_us)))
        at = max(at, end)
    return [(begin, end) for begin, end in (*times, (at, to_us)) if begin < end]


def watched_seconds(watches: Iterable[Watch], span: Span) -> float:
    """Seconds of the span with at least one name server running of which no rows are missing."""
    total, until = 0, span.from_us
    for start, end in sorted(time for watch in watches for time in watch.whole):
        total += max(0, min(end, span.to_us) - max(start, until))
        until = max(until, min(end, span.to_us))
    return total / 1e6


def fell_silent(watches: list[Watch], stopped: set[tuple[str, str]], *, until_us: int | None) -> FellSilent | None:
    """Return the last run if none was running at the end and that one recorded no clean stop.

    ``until_us`` is that end; None if it is in the future.
    """
    watched = [watch for watch in watches if watch.from_us is not None]
    if until_us is None or not watched or any(watch.open or watch.to_us >= until_us for watch in watched):
        return None
    last = max(watched, key=_by_end)
    if (last.node, last.boot_id) in stopped:
        return None
    return FellSilent(last.node, last.boot_id, rfc3339(last.to_us))


def _by_end(watch: Watch) -> tuple[int, str, str]:
    return watch.to_us, watch.node, watch.boot_id


def planned_stops(warehouse: Warehouse, span: Span) -> set[tuple[str, str]]:
    """Read the runs of name servers, as node and boot id, that ended with a planned stop."""
    recorded = span.touched(warehouse, "registration_events").filter(_is_planned_stop())
    return {(row["node"], row["boot_id"]) for row in collect(recorded.select(*OBSERVER).distinct())}


def unwatched_clusters(warehouse: Warehouse, span: Span) -> tuple[dict[str, list[date]], StoppedBefore | None]:
    """Return the days without monitoring data of each known cluster, and the clean stop before them.

    Days after the first one without any name server are omitted if the last name server was stopped cleanly.
    """
    watched = span.named(warehouse, "availability").filter("up_seconds + down_seconds + planned_seconds > 0")
    known = span.named(warehouse, "flapping").select("cluster", "dt").distinct()
    seen = watched.select("cluster", "dt").distinct().withColumn("seen", F.lit(True))
    rows = collect(known.join(seen, on=["cluster", "dt"], how="left"))
    unwatched = sorted((row["cluster"], row["dt"]) for row in rows if not row["seen"])
    days = sorted({day for _, day in unwatched} | ({span.last_day} if not rows else set()))
    repeated, stop = _stopped_before(warehouse, span, days)
    by_cluster: dict[str, list[date]] = {}
    for cluster, day in unwatched:
        if day not in repeated:
            by_cluster.setdefault(cluster, []).append(day)
    return by_cluster, stop


def _stopped_before(warehouse: Warehouse, span: Span, days: list[date]) -> tuple[set[date], StoppedBefore | None]:
    """Return the days that are not reported again, and the clean stop if it was before the whole span."""
    if not days:
        return set(), None
    first = span.first_day - timedelta(days=LOOKBACK_DAYS)
    windows = warehouse.read("observer_windows", first_day=first, last_day=span.last_day)
    runs = windows.filter(F.col("from_at").isNotNull()).select(
        "dt", *OBSERVER, F.unix_micros("from_at").alias("from_us"), F.unix_micros("to_at").alias("to_us"), "open"
    )
    by_day: dict[date, list[Watch]] = {}
    for row in collect(runs):
        by_day.setdefault(row.pop("dt"), []).append(Watch(**row))
    repeated: set[date] = set()
    before_span = None
    for day in days:
        last_watched = max((other for other in by_day if other < day), default=None)
        if day in by_day or last_watched is None or any(watch.open for watch in by_day[last_watched]):
            continue
        last = max(by_day[last_watched], key=_by_end)
        if not _recorded_its_stop(warehouse, last_watched, last):
            continue
        if day - last_watched > timedelta(days=1):
            repeated.add(day)
        if last_watched < span.first_day:
            all_repeated = all(other in repeated for other in days_from(span.first_day, day))
            before_span = StoppedBefore(last.node, rfc3339(last.to_us), all_repeated)
    return repeated, before_span


def _recorded_its_stop(warehouse: Warehouse, day: date, last: Watch) -> bool:
    recorded = warehouse.read("registration_events", first_day=day, last_day=day).filter(
        _is_planned_stop() & (F.col("node") == last.node) & (F.col("boot_id") == last.boot_id)
    )
    return bool(recorded.limit(1).count())


def _is_planned_stop() -> Column:
    """Excludes an observer that stopped because it lost its name server: its row has a problem."""
    return (F.col("event") == "NAMESRV_STOPPED") & F.get_json_object("detail", "$.problem").isNull()
