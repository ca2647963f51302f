"""Data quality: rows, lost rows, unreadable lines, coverage, and the code versions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import GZIP_FAULT, Warehouse, days_from
from pointsman_report.parameters import Parameters
from pointsman_report.report.formatting import counted, percent, some
from pointsman_report.report.section import TOP, Section, section
from pointsman_report.report.sections.availability_trend import DAYS
from pointsman_report.report.sections.watch_gaps import (
    FellSilent,
    NameServerRun,
    SeqGap,
    StoppedBefore,
    Watch,
    fell_silent,
    planned_stops,
    unwatched_clusters,
    watched_seconds,
    without_holes,
)
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Row, collect, ratio, typed
from pointsman_report.row_validation import known_events
from pointsman_report.run import Run
from pointsman_report.schemas import OBSERVER
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.observer_windows import has_missing_rows

MAX_RUNS = 200
MAX_KINDS = 50
MAX_FILES = 100
MIN_COVERAGE_SECONDS = 3_600.0
"""With less coverage a report shows no rates per day and no ranks: they would mean nothing."""

_UNKNOWN = "heartbeats, probes, processes and versions are missing, so most causes are unknown"
_SOURCES = {
    "observe": f"polled from RocketMQ's own name servers; {_UNKNOWN}, and a planned shutdown counts as an outage",
    "rocketmq-log": f"imported from the logs of RocketMQ's own name servers (to the second); {_UNKNOWN}",
}


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Unreadable lines with the same reason."""

    reason: str
    lines: int
    first_file: str | None


@dataclass(frozen=True, slots=True)
class Completeness:
    """Everything that limits the validity of the report."""

    files: int
    last_day: date
    rows: int
    rows_missing: int
    rows_arrived: float | None
    """Share of the numbered rows that arrived."""
    rows_ahead: int
    rows_too_late: int
    rows_misdated: int
    stale_after: date | None
    unreadable_files: list[str]
    unreadable_files_in_all: int
    quarantined_lines: int
    quarantined: list[Quarantined]
    events: dict[str, int]
    unknown_events: dict[str, int]
    days_without_rows: list[date]
    watched_seconds: float
    span_seconds: int
    continues_day_before: bool
    warehouse_ends_on: date | None
    """If the days before these are missing: the last earlier day in the warehouse."""
    unwatched_clusters: dict[str, list[date]]
    stopped_before: StoppedBefore | None
    sources: dict[str, list[str]]
    """Nodes with rows from another source, by ``detail.source``."""
    fell_silent: FellSilent | None
    lives: int

    @property
    def coverage(self) -> Coverage:
        is_short = bool(self.rows) and self.watched_seconds < MIN_COVERAGE_SECONDS
        return Coverage(self.watched_seconds, self.span_seconds, is_short)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Time with a name server running; ``is_short``: less than an hour."""

    seconds: float
    span_seconds: int
    is_short: bool

    @property
    def share(self) -> float:
        return self.seconds / self.span_seconds


@dataclass(frozen=True, slots=True)
class ComputedBy:
    """Days computed by the same code version and warehouse version."""

    code_version: str
    warehouse_version: int
    days: int
    first: date
    last: date


@dataclass(frozen=True, slots=True)
class ComputedDays:
    """The days of the trend: what computed them, and which have more rows now than when they were computed."""

    by: list[ComputedBy] = field(default_factory=list)
    other_parameters: list[date] = field(default_factory=list)
    stale: list[date] = field(default_factory=list)


def completeness(warehouse: Warehouse, span: Span, run: Run) -> tuple[Completeness, list[NameServerRun]]:
    """Return the data quality, and the first runs of the name servers."""
    events = span.touched(warehouse, "registration_events")
    day = F.col("dt")
    if not span.is_whole_utc_days:
        events = events.filter(span.holds("event_at"))
        day = F.to_date(F.from_utc_timestamp("event_at", span.zone.key))
    counts = collect(events.groupBy(day.alias("day"), "event").agg(F.count("*").alias("rows")))
    by_event: Counter[str] = Counter()
    for row in counts:
        by_event[row["event"]] += row["rows"]
    with_rows = {row["day"] for row in counts}
    watches = _watches(warehouse, span)
    numbered, missing = sum(watch.rows for watch in watches), sum(watch.rows_missing for watch in watches)
    unwatched, stopped_before = unwatched_clusters(warehouse, span)
    quarantine = span.named(warehouse, "quarantine")
    quarantined = _quarantined(quarantine)
    unreadable, unreadable_in_all = _unreadable_files(quarantine, quarantined)
    until_us = span.to_us if span.is_over else None
    found = Completeness(
        files=run.files,
        last_day=span.last_day,
        rows=by_event.total(),
        rows_missing=missing,
        rows_arrived=ratio(numbered, numbered + missing),
        rows_ahead=run.rows_ahead,
        rows_too_late=run.rows_too_late,
        rows_misdated=run.rows_misdated,
        stale_after=run.stale_after,
        unreadable_files=unreadable,
        unreadable_files_in_all=unreadable_in_all,
        quarantined_lines=sum(row.lines for row in quarantined),
        quarantined=quarantined[:MAX_KINDS],
        events=_most(by_event),
        unknown_events=_most({name: rows for name, rows in by_event.items() if name not in known_events()}),
        days_without_rows=[day for day in days_from(span.first_day, span.last_day) if day not in with_rows],
        watched_seconds=watched_seconds(watches, span),
        span_seconds=span.seconds,
        continues_day_before=run.continues_yesterday,
        warehouse_ends_on=run.ends_before,
        unwatched_clusters=unwatched,
        stopped_before=stopped_before,
        sources=_sources(events),
        fell_silent=fell_silent(watches, planned_stops(warehouse, span), until_us=until_us),
        lives=len(watches),
    )
    return found, [watch.as_run for watch in watches[:MAX_RUNS]]


def _sources(events: DataFrame) -> dict[str, list[str]]:
    own = events.filter(F.col("event").isin("NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_ALIVE", "NAMESRV_STOPPED"))
    named = own.select("node", F.get_json_object("detail", "$.source").alias("source")).filter("source is not null")
    found: dict[str, list[str]] = {}
    for row in collect(named.distinct().orderBy("source", "node").limit(MAX_RUNS)):
        found.setdefault(row["source"], []).append(row["node"])
    return found


def _most(counts: dict[str, int]) -> dict[str, int]:
    kept = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:MAX_KINDS]
    return dict(sorted(kept, key=lambda item: str(item[0])))


def _quarantined(quarantine: DataFrame) -> list[Quarantined]:
    counts = quarantine.groupBy("reason").agg(F.count("*").alias("lines"), F.min("file").alias("first_file"))
    return typed(Quarantined, counts.orderBy(F.col("lines").desc(), "reason"))


def _unreadable_files(quarantine: DataFrame, quarantined: list[Quarantined]) -> tuple[list[str], int]:
    if not any(row.reason.startswith(GZIP_FAULT) for row in quarantined):
        return [], 0
    damaged = quarantine.filter(F.col("reason").startswith(GZIP_FAULT)).select("file").distinct()
    files = [row["file"] for row in collect(damaged.orderBy("file").limit(MAX_FILES))]
    return files, damaged.count() if len(files) == MAX_FILES else len(files)


def _watches(warehouse: Warehouse, span: Span) -> list[Watch]:
    named = F.col("dt").between(F.lit(span.first_day), F.lit(span.last_day))
    missing = F.filter("gaps", has_missing_rows)
    gaps = F.transform(missing, lambda gap: F.struct(gap["from_seq"].alias("from_seq"), gap["to_seq"].alias("to_seq")))
    # A run without its first rows has a hole without a row before it.
    begins = utc_days.starts(F.col("dt"))
    holes = F.transform(
        "gaps",
        lambda gap: F.struct(
            F.coalesce(F.unix_micros(gap["after_at"]), begins).alias("from_us"),
            F.unix_micros(gap["before_at"]).alias("to_us"),
        ),
    )
    day = F.struct(
        F.greatest(F.unix_micros("from_at"), begins).alias("from_us"),
        F.unix_micros("to_at").alias("to_us"),
        holes.alias("holes"),
    )
    runs = (
        span.touched(warehouse, "observer_windows")
        .groupBy(*OBSERVER)
        .agg(
            F.unix_micros(F.min("from_at")).alias("from_us"),
            F.unix_micros(F.max("to_at")).alias("to_us"),
            F.max_by("open", "dt").alias("open"),
            F.coalesce(F.sum(F.when(named, F.col("rows"))), F.lit(0)).alias("rows"),
            F.coalesce(F.sum(F.when(named, F.col("rows_missing"))), F.lit(0)).alias("rows_missing"),
            F.slice(F.array_distinct(F.flatten(F.sort_array(F.collect_list(F.when(named, gaps))))), 1, 20).alias(
                "gaps"
            ),
            F.collect_list(F.when(F.col("from_at").isNotNull(), day)).alias("days"),
        )
    )
    found = [_watch(row) for row in collect(runs)]
    touching = [
        watch for watch in found if watch.from_us is None or watch.to_us > span.from_us or span.is_whole_utc_days
    ]
    return sorted(touching, key=lambda watch: (watch.node, watch.from_us or 0, watch.boot_id))


def _watch(row: Row) -> Watch:
    days = row.pop("days")
    whole = [
        time
        for day in days
        for time in without_holes(
            day["from_us"], day["to_us"], ((hole["from_us"], hole["to_us"]) for hole in day["holes"])
        )
    ]
    return Watch(**row | {"gaps": [SeqGap(**gap) for gap in row["gaps"]], "whole": whole})


def computed_days(warehouse: Warehouse, span: Span, parameters: Parameters) -> ComputedDays:
    """Read which code and parameters computed the days."""
    first = min(span.first_utc_day, span.last_day - timedelta(days=DAYS - 1))
    days = warehouse.read("computed_days", first_day=first, last_day=span.last_utc_day)
    rows = sorted(collect(days), key=lambda row: row["dt"])
    groups: dict[tuple[str, int], list[date]] = {}
    for row in rows:
        groups.setdefault((row["code_version"], row["warehouse_version"]), []).append(row["dt"])
    return ComputedDays(
        by=[ComputedBy(code, version, len(of), of[0], of[-1]) for (code, version), of in groups.items()],
        other_parameters=[row["dt"] for row in rows if _differs(row["parameters"], parameters)],
        stale=_stale(warehouse, span, rows),
    )


def _differs(text: str | None, parameters: Parameters) -> bool:
    """Compare parameters that affect the tables; those of the report's presentation do not."""
    try:
        used = json.loads(text or "")
    except ValueError:
        return True
    own = json.loads(json.dumps(parameters.as_dict()))
    return any(used.get(name) != value for name, value in own.items() if name != "report")


def _stale(warehouse: Warehouse, span: Span, rows: list[Row]) -> list[date]:
    if not rows:
        return []
    held = warehouse.read("registration_events", first_day=rows[0]["dt"], last_day=span.last_utc_day)
    counts = {row["dt"]: row["count"] for row in collect(held.groupBy("dt").count())}
    return with_more_rows({row["dt"]: row["rows"] for row in rows}, counts)


def with_more_rows(computed: dict[date, int], held: dict[date, int]) -> list[date]:
    """Days with fewer rows need not be recomputed: compact may drop old heartbeats."""
    return [day for day, rows in computed.items() if held.get(day, 0) > rows]


def basis_section(data: Completeness, computed: ComputedDays) -> Section:
    """Return the section."""
    arrived = data.rows_arrived
    share = f" ({percent(arrived)} of the rows that the name servers wrote)" if arrived and data.rows else ""
    facts = [f"{counted(data.rows, 'row')} in {counted(data.files, 'file')}{share}."]
    if data.rows_ahead:
        facts.append(f"{counted(data.rows_ahead, 'row')} dated in the future; ignored for coverage.")
    if data.unknown_events:
        unknown = ", ".join(f"{name} ({rows:,})" for name, rows in data.unknown_events.items())
        facts.append(f"Unknown events (counted only): {unknown}.")
    if not data.continues_day_before:
        facts.append(
            "The state of the day before is missing: a broker that was already up or down counts from its first row."
        )
    for source, nodes in data.sources.items():
        facts.append(f"Rows of {some(nodes)}: {_SOURCES.get(source, f'from the source {source}')}.")
    if computed.other_parameters:
        facts.append(f"Days computed with other parameters: {some(computed.other_parameters)}.")
    bad = data.quarantined[:TOP]
    return section("basis", "Data quality", facts=" ".join(facts), by=computed.by, quarantined=bad)
