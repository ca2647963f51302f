"""What the report rests on: rows, lost rows, lines that could not be read, who watched, which code computed it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import GZIP_FAULT, Warehouse, days_from
from pointsman_report.jobs.pipeline import Run
from pointsman_report.report.numbers.rows import Row, collect, ratio, without
from pointsman_report.report.numbers.silence import fell_silent, planned_stops, unwatched_clusters
from pointsman_report.report.span import Span
from pointsman_report.report.wording import rfc3339
from pointsman_report.schemas import OBSERVER
from pointsman_report.validation import known_events

MOST_LIVES = 200
MOST_KINDS = 50
MOST_FILES = 100


def completeness(warehouse: Warehouse, span: Span, run: Run) -> dict[str, Any]:
    """Everything that limits what the report can say; ``observers`` are the name servers' lives."""
    events = span.touched(warehouse, "registration_events")
    if not span.is_whole_utc_days:
        events = events.filter(span.holds("event_at"))
    day = F.to_date(F.from_utc_timestamp("event_at", span.zone.key)) if not span.is_whole_utc_days else F.col("dt")
    counted = collect(events.groupBy(day.alias("day"), "event").agg(F.count("*").alias("rows")))
    by_event: dict[str, int] = {}
    for row in counted:
        by_event[row["event"]] = by_event.get(row["event"], 0) + row["rows"]
    with_rows = {row["day"] for row in counted}
    windows = _windows(warehouse, span)
    numbered, missing = (sum(window[name] for window in windows) for name in ("rows", "rows_missing"))
    unwatched, excused = unwatched_clusters(warehouse, span)
    return {
        "files": run.files,
        "last_day": span.last_day.isoformat(),
        "rows": sum(by_event.values()),
        "rows_missing": missing,
        "rows_arrived": ratio(numbered, numbered + missing),
        "rows_ahead": run.rows_ahead,
        "rows_too_late": run.rows_too_late,
        "rows_misdated": run.rows_misdated,
        "stale_after": run.stale_after.isoformat() if run.stale_after else None,
        **_quarantine(warehouse, span),
        "events": _most(by_event),
        "unknown_events": _most({name: rows for name, rows in by_event.items() if name not in known_events()}),
        "days_without_rows": [
            day.isoformat() for day in days_from(span.first_day, span.last_day) if day not in with_rows
        ],
        "watched_seconds": _watched_seconds(windows, span),
        "span_seconds": span.seconds,
        "continues_day_before": run.continues_yesterday,
        "warehouse_ends_on": run.ends_before.isoformat() if run.ends_before else None,
        "unwatched_clusters": unwatched,
        "stopped_before": excused,
        "sources": _sources(events),
        "fell_silent": fell_silent(
            windows, planned_stops(warehouse, span), until_us=span.to_us if span.is_over else None
        ),
        "lives": len(windows),
        "observers": [_life(window) for window in windows[:MOST_LIVES]],
    }


def _sources(events: DataFrame) -> dict[str, list[str]]:
    """Nodes whose rows are not a name server's own, by what they were made from (``detail.source``)."""
    own = events.filter(F.col("event").isin("NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_ALIVE", "NAMESRV_STOPPED"))
    named = own.select("node", F.get_json_object("detail", "$.source").alias("source")).filter("source is not null")
    found: dict[str, list[str]] = {}
    for row in collect(named.distinct().orderBy("source", "node").limit(MOST_LIVES)):
        found.setdefault(row["source"], []).append(row["node"])
    return found


def _most(counts: dict[str, int]) -> dict[str, int]:
    kept = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:MOST_KINDS]
    return dict(sorted(kept, key=lambda item: str(item[0])))


def _quarantine(warehouse: Warehouse, span: Span) -> Row:
    quarantine = span.named(warehouse, "quarantine")
    counts = quarantine.groupBy("reason").agg(F.count("*").alias("lines"), F.min("file").alias("first_file"))
    quarantined = collect(counts.orderBy(F.col("lines").desc(), "reason"))
    damaged = quarantine.filter(F.col("reason").startswith(GZIP_FAULT)).select("file").distinct()
    has_damaged = any(row["reason"].startswith(GZIP_FAULT) for row in quarantined)
    files = [row["file"] for row in collect(damaged.orderBy("file").limit(MOST_FILES))] if has_damaged else []
    return {
        "unreadable_files": files,
        "unreadable_files_in_all": damaged.count() if len(files) == MOST_FILES else len(files),
        "quarantined_lines": sum(row["lines"] for row in quarantined),
        "quarantined": quarantined[:MOST_KINDS],
    }


def _windows(warehouse: Warehouse, span: Span) -> list[Row]:
    named = F.col("dt").between(F.lit(span.first_day), F.lit(span.last_day))
    gaps = F.transform("gaps", lambda gap: F.struct(gap["from_seq"].alias("from_seq"), gap["to_seq"].alias("to_seq")))
    lives = (
        span.touched(warehouse, "observer_windows")
        .groupBy(*OBSERVER)
        .agg(
            F.unix_micros(F.min("from_at")).alias("from_us"),
            F.unix_micros(F.max("to_at")).alias("to_us"),
            F.max_by("open", "dt").alias("open"),
            F.sum(F.when(named, F.col("rows"))).alias("rows"),
            F.sum(F.when(named, F.col("rows_missing"))).alias("rows_missing"),
            F.slice(F.flatten(F.sort_array(F.collect_list(F.when(named, gaps)))), 1, 20).alias("gaps"),
        )
    )
    rows = collect(lives)
    touching = [row for row in rows if row["from_us"] is None or span.is_whole_utc_days or row["to_us"] > span.from_us]
    counted = [row | {"rows": row["rows"] or 0, "rows_missing": row["rows_missing"] or 0} for row in touching]
    return sorted(counted, key=lambda row: (row["node"], row["from_us"] or 0, row["boot_id"]))


def _life(window: Row) -> Row:
    told = {"from_at": rfc3339(window["from_us"]), "to_at": rfc3339(window["to_us"])}
    return without(window, "from_us", "to_us") | told


def _watched_seconds(windows: Iterable[Row], span: Span) -> float:
    """Time of the span in which at least one name server watched."""
    watches = sorted((w["from_us"], w["to_us"]) for w in windows if w["from_us"] is not None)
    total, until = 0, span.from_us
    for start, end in watches:
        total += max(0, min(end, span.to_us) - max(start, until))
        until = max(until, min(end, span.to_us))
    return total / 1e6
