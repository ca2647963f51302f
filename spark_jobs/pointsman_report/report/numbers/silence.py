"""Whether somebody watched, and if not, whether the name servers had said that they would stop.

A day that nobody watched is an alarm, but not every day for a week: when all name servers had stopped politely, the
first day without them is told, the days after it are only noted.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse, days_from
from pointsman_report.report.numbers.rows import Row, collect
from pointsman_report.report.span import Span
from pointsman_report.report.wording import rfc3339
from pointsman_report.schemas import OBSERVER

LOOK_BACK_DAYS = 30


def fell_silent(windows: list[Row], stopped: set[tuple[str, str]], *, until_us: int | None) -> Row | None:
    """Return the last observer to watch if nobody watched at the end and that one did not stop politely.

    ``until_us`` is that end; None: it is still to come, and nobody could have watched it.
    """
    watched = [window for window in windows if window["from_us"] is not None]
    if until_us is None or not watched or any(w["open"] or w["to_us"] >= until_us for w in watched):
        return None
    last = max(watched, key=lambda window: (window["to_us"], window["node"], window["boot_id"]))
    if (last["node"], last["boot_id"]) in stopped:
        return None
    return {"node": last["node"], "boot_id": last["boot_id"], "to_at": rfc3339(last["to_us"])}


def planned_stops(warehouse: Warehouse, span: Span) -> set[tuple[str, str]]:
    said = span.touched(warehouse, "registration_events").filter(_is_planned_stop())
    return {(row["node"], row["boot_id"]) for row in collect(said.select(*OBSERVER).distinct())}


def unwatched_clusters(warehouse: Warehouse, span: Span) -> tuple[dict[str, list[str]], dict[str, Any] | None]:
    """Days on which a cluster was known and not one of its brokers was seen, by cluster; and who had stopped before.

    Days that follow a first day without any name server are left out if the last one had stopped politely.
    """
    watched = span.named(warehouse, "availability").filter("up_seconds + down_seconds + planned_seconds > 0")
    known = span.named(warehouse, "flapping").select("cluster", "dt").distinct()
    seen = watched.select("cluster", "dt").distinct().withColumn("seen", F.lit(True))
    rows = collect(known.join(seen, on=["cluster", "dt"], how="left"))
    unwatched = sorted((row["cluster"], row["dt"]) for row in rows if not row["seen"])
    days = sorted({day for _, day in unwatched} | ({span.last_day} if not rows else set()))
    told_before, stop = _stopped_before(warehouse, span, days)
    by_cluster: dict[str, list[str]] = {}
    for cluster, day in unwatched:
        if day not in told_before:
            by_cluster.setdefault(cluster, []).append(day.isoformat())
    return by_cluster, stop


def _stopped_before(warehouse: Warehouse, span: Span, days: list[date]) -> tuple[set[date], dict[str, Any] | None]:
    """Return the days that need no telling again, and the polite stop if it lies before the whole span."""
    if not days:
        return set(), None
    first = span.first_day - timedelta(days=LOOK_BACK_DAYS)
    windows = warehouse.read("observer_windows", first_day=first, last_day=span.last_day)
    lives = windows.filter(F.col("from_at").isNotNull()).select(
        "dt", *OBSERVER, F.unix_micros("to_at").alias("to_us"), "open"
    )
    by_day: dict[date, list[Row]] = {}
    for row in collect(lives):
        by_day.setdefault(row["dt"], []).append(row)
    told: set[date] = set()
    before_span = None
    for day in days:
        last_watched = max((other for other in by_day if other < day), default=None)
        if day in by_day or last_watched is None or any(row["open"] for row in by_day[last_watched]):
            continue
        last = max(by_day[last_watched], key=lambda row: (row["to_us"], row["node"], row["boot_id"]))
        if not _said_that_it_stopped(warehouse, last_watched, last):
            continue
        if day - last_watched > timedelta(days=1):
            told.add(day)
        if last_watched < span.first_day:
            before_span = {
                "node": last["node"],
                "to_at": rfc3339(last["to_us"]),
                "told_before": all(other in told for other in days_from(span.first_day, day)),
            }
    return told, before_span


def _said_that_it_stopped(warehouse: Warehouse, day: date, life: Row) -> bool:
    said = warehouse.read("registration_events", first_day=day, last_day=day).filter(
        _is_planned_stop() & (F.col("node") == life["node"]) & (F.col("boot_id") == life["boot_id"])
    )
    return bool(said.limit(1).count())


def _is_planned_stop() -> Column:
    """An observer of another name server that lost it stops too, and its row names the problem."""
    return (F.col("event") == "NAMESRV_STOPPED") & F.get_json_object("detail", "$.problem").isNull()
