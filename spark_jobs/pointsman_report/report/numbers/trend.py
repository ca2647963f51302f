"""The last days, from what earlier nights published; UTC days, of which the report's last date is the last."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse, days_from
from pointsman_report.report.numbers.broker_days import FLAPPING_NOW
from pointsman_report.report.numbers.rows import Row, collect, ratio, total_seconds
from pointsman_report.report.span import Span

DAYS = 30
WEEK = 7
MOST_CLUSTERS = 20


def trend(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Each day in a line, and the last 7 and 30 days beside each other."""
    by_cluster = _by_cluster(span.back(warehouse, "cluster_health", days=DAYS))
    flapping = _counts(span.back(warehouse, "flapping", days=DAYS).filter(F.col("class").isin(*FLAPPING_NOW)))
    incidents = _counts(span.back(warehouse, "incidents", days=DAYS))
    computed = {row["dt"] for row in collect(span.back(warehouse, "computed_days", days=DAYS).select("dt").distinct())}
    days = []
    for day in days_from(span.last_day.fromordinal(span.last_day.toordinal() - DAYS + 1), span.last_day):
        of_day = [row for row in by_cluster if row["dt"] == day]
        if not of_day and day not in computed:
            continue
        days.append(_day(day.isoformat(), of_day, flapping.get(day, 0), incidents.get(day, 0)))
    return {
        "days": days,
        "seven_days": _together(days[-WEEK:] if days else [], span, WEEK),
        "thirty_days": _together(days, span, DAYS),
    }


def _by_cluster(health: DataFrame) -> list[Row]:
    """Each cluster's days; where there are many clusters, all of them together."""
    most = MOST_CLUSTERS * DAYS
    told = health.select("dt", "cluster", "up_seconds", "down_seconds", "outages", "slo", "brokers")
    rows = collect(told.orderBy("dt", "cluster").limit(most + 1))
    if len(rows) <= most:
        return rows
    seconds = map(total_seconds, ("up_seconds", "down_seconds"))
    counts = (F.sum(name).alias(name) for name in ("outages", "brokers"))
    summed = health.groupBy("dt").agg(F.lit("all").alias("cluster"), *seconds, *counts, F.min("slo").alias("slo"))
    return collect(summed.orderBy("dt"))


def _counts(rows: DataFrame) -> dict[Any, int]:
    return {row["dt"]: row["count"] for row in collect(rows.groupBy("dt").count())}


def _day(day: str, clusters: list[Row], flapping: int, incidents: int) -> Row:
    up, down = (sum(row[name] or 0.0 for row in clusters) for name in ("up_seconds", "down_seconds"))
    return {
        "date": day,
        "brokers": sum(row["brokers"] or 0 for row in clusters),
        "availability": ratio(up, up + down),
        "up_seconds": up,
        "down_seconds": down,
        "outages": sum(row["outages"] or 0 for row in clusters),
        "flapping": flapping,
        "incidents": incidents,
        "clusters": {
            row["cluster"]: {
                "availability": ratio(row["up_seconds"], (row["up_seconds"] or 0.0) + (row["down_seconds"] or 0.0)),
                "slo": row["slo"],
            }
            for row in clusters
        },
    }


def _together(days: list[Row], span: Span, most: int) -> Row:
    first = span.last_day.fromordinal(span.last_day.toordinal() - most + 1).isoformat()
    held = [day for day in days if day["date"] >= first]
    up, down = (sum(day[name] for day in held) for name in ("up_seconds", "down_seconds"))
    return {
        "days": len(held),
        "availability": ratio(up, up + down),
        "down_seconds": down,
        "outages": sum(day["outages"] for day in held),
        "flapping_broker_days": sum(day["flapping"] for day in held),
        "incidents": sum(day["incidents"] for day in held),
    }
