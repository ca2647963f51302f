"""Availability of the last UTC days up to the report's last date, from the tables of earlier runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial, reduce
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse, days_from
from pointsman_report.report.drawing import (
    CURVE_COLOURS,
    FAINT,
    INK,
    WIDE_INCHES,
    drawn_twice,
    figure,
    legend,
    svg,
    time_axis,
)
from pointsman_report.report.section import Section, section
from pointsman_report.report.sections.broker_scores import FLAPPING_NOW
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Row, collect, ratio, total_seconds
from pointsman_report.transforms.utc_days import end_of, start_of

DAYS = 30
WEEK = 7
MAX_CLUSTERS = 20
LINES = len(CURVE_COLOURS)
MAX_OBJECTIVES = 3
_COUNTED = ("computed_days", "flapping", "incidents", "topics_at_risk")


@dataclass(frozen=True, slots=True)
class ClusterDay:
    """A cluster's availability and objective on a day."""

    availability: float | None
    slo: float | None
    up_seconds: float = 0.0
    down_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TrendDay:
    """A UTC day in the warehouse, for all clusters together and for each."""

    date: str
    brokers: int
    availability: float | None
    up_seconds: float
    down_seconds: float
    outages: int
    flapping: int
    incidents: int
    topics_at_risk: int
    clusters: dict[str, ClusterDay]


@dataclass(frozen=True, slots=True)
class TrendSum:
    """The sum of several days; ``days``: the number of them in the warehouse."""

    days: int
    availability: float | None
    down_seconds: float
    outages: int
    flapping_broker_days: int
    incidents: int


@dataclass(frozen=True, slots=True)
class Trend:
    """Each day, and the sums of the last 7 and 30 days."""

    days: list[TrendDay]
    seven_days: TrendSum
    thirty_days: TrendSum


def trend(warehouse: Warehouse, span: Span) -> Trend:
    """Read the trend of the last 30 days."""
    by_cluster = _by_cluster(span.back(warehouse, "cluster_health", days=DAYS))
    counts = _counts(warehouse, span)
    days = []
    for day in days_from(span.last_day - timedelta(days=DAYS - 1), span.last_day):
        of_day = [row for row in by_cluster if row["dt"] == day]
        if of_day or counts["computed_days"][day]:
            days.append(_day(day, of_day, {name: rows[day] for name, rows in counts.items()}))
    return Trend(days, _summed(days, span, WEEK), _summed(days, span, DAYS))


def _by_cluster(health: DataFrame) -> list[Row]:
    """Each cluster's days; with many clusters, their sum."""
    most = MAX_CLUSTERS * DAYS
    known = health.select("dt", "cluster", "up_seconds", "down_seconds", "outages", "slo", "brokers")
    rows = collect(known.orderBy("dt", "cluster").limit(most + 1))
    if len(rows) <= most:
        return rows
    seconds = map(total_seconds, ("up_seconds", "down_seconds"))
    counts = (F.sum(name).alias(name) for name in ("outages", "brokers"))
    summed = health.groupBy("dt").agg(F.lit("all").alias("cluster"), *seconds, *counts, F.min("slo").alias("slo"))
    return collect(summed.orderBy("dt"))


def _counts(warehouse: Warehouse, span: Span) -> dict[str, Counter[date]]:
    """The number of rows of each table and day, of ``flapping`` those that flapped; in one query."""
    tables = {name: span.back(warehouse, name, days=DAYS) for name in _COUNTED}
    tables["flapping"] = tables["flapping"].filter(F.col("class").isin(*FLAPPING_NOW))
    rows = reduce(DataFrame.unionAll, (rows.select(F.lit(name).alias("of"), "dt") for name, rows in tables.items()))
    found: dict[str, Counter[date]] = {name: Counter() for name in _COUNTED}
    for row in collect(rows.groupBy("of", "dt").count()):
        found[row["of"]][row["dt"]] = row["count"]
    return found


def _day(day: date, clusters: list[Row], counts: dict[str, int]) -> TrendDay:
    up, down = (sum(row[name] or 0.0 for row in clusters) for name in ("up_seconds", "down_seconds"))
    return TrendDay(
        date=day.isoformat(),
        brokers=sum(row["brokers"] or 0 for row in clusters),
        availability=ratio(up, up + down),
        up_seconds=up,
        down_seconds=down,
        outages=sum(row["outages"] or 0 for row in clusters),
        flapping=counts["flapping"],
        incidents=counts["incidents"],
        topics_at_risk=counts["topics_at_risk"],
        clusters={row["cluster"]: _of_cluster(row) for row in clusters},
    )


def _of_cluster(row: Row) -> ClusterDay:
    up, down = row["up_seconds"] or 0.0, row["down_seconds"] or 0.0
    return ClusterDay(ratio(up, up + down), row["slo"], up, down)


def _summed(days: list[TrendDay], span: Span, most: int) -> TrendSum:
    first = (span.last_day - timedelta(days=most - 1)).isoformat()
    held = [day for day in days if day.date >= first]

    def total(of: Callable[[TrendDay], float]) -> float:
        return sum(map(of, held))

    up, down = total(lambda day: day.up_seconds), total(lambda day: day.down_seconds)
    return TrendSum(
        days=len(held),
        availability=ratio(up, up + down),
        down_seconds=down,
        outages=sum(day.outages for day in held),
        flapping_broker_days=sum(day.flapping for day in held),
        incidents=sum(day.incidents for day in held),
    )


def trend_section(found: Trend) -> Section | None:
    """Return the section; None with fewer than two days."""
    if len(found.days) < 2:
        return None
    rows = {"Last 7 days": found.seven_days, "Last 30 days": found.thirty_days}
    return section("trend", "Trend", rows=rows, **drawn_twice(partial(availability_plot, found.days)))


def availability_plot(days: list[TrendDay], *, width: float = WIDE_INCHES) -> str:
    """Draw a line for each cluster, those with the most downtime first; missing days are gaps."""
    clusters = [(name, day.date, of_day) for day in days for name, of_day in day.clusters.items()]
    known = {(name, day): of_day.availability for name, day, of_day in clusters if of_day.availability is not None}
    if len({day for _, day in known}) < 2:
        return ""
    missing = {name: 0.0 for name, _ in sorted(known)}
    for (name, _), share in known.items():
        missing[name] += 1 - share
    worst = sorted(missing, key=lambda name: (-missing[name], name))[:LINES]
    first, last = date.fromisoformat(days[0].date), date.fromisoformat(days[-1].date)
    slos = sorted({of_day.slo for _, _, of_day in clusters if of_day.slo is not None})
    with figure(width=width, height=3.0) as (drawn, axes):
        lines = []
        for name, colour in zip(worst, CURVE_COLOURS, strict=False):
            line = [100 * known.get((name, day.isoformat()), math.nan) for day in days_from(first, last)]
            noons = [(start_of(day) + end_of(day)) / 2 / 86_400e6 for day in days_from(first, last)]
            lines += axes.plot(noons, line, color=colour, linewidth=1.4, marker="o", markersize=3)
        for slo in slos[:MAX_OBJECTIVES]:
            lines.append(axes.axhline(100 * slo, color=INK, linewidth=1.0, linestyle=(0, (4, 3))))
        least = min([100 * share for (name, _), share in known.items() if name in worst] + [100 * s for s in slos])
        margin = max((100 - least) * 0.12, 0.01)
        axes.set_ylim(least - margin, 100 + margin)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g} %")
        time_axis(axes, (start_of(first), end_of(last)), ZoneInfo("UTC"))
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        legend(axes, lines, [*worst, *(f"objective {100 * slo:g} %" for slo in slos[:MAX_OBJECTIVES])])
        return svg(drawn, "Availability of each day against the objective")
