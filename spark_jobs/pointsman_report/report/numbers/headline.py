"""The headline: how many brokers of which class, each cluster against its objective, who flaps, who is new or gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.classes import WORST_FIRST
from pointsman_report.report.numbers.broker_days import FLAPPING_NOW
from pointsman_report.report.numbers.rows import Row, collect, ratio, total_seconds
from pointsman_report.report.span import Span
from pointsman_report.report.wording import label
from pointsman_report.schemas import INSTANCE

GONE = ("dead", "unseen", "retired")
MOST_CLUSTERS = 100
MOST_NAMED = 20

_SECONDS = ("up_seconds", "down_seconds", "planned_seconds")
_COUNTS = ("brokers", "outages", "incident_downs")
_OBJECTIVE = ("slo", "slo_days", "budget_seconds", "budget_left_seconds")
_RATES = (
    "mttr_seconds",
    "mtbf_seconds",
    "outages_per_broker_day",
    "outages_per_broker_day_low",
    "outages_per_broker_day_high",
)
_OF_THE_LAST_DAY = (*_OBJECTIVE, *_RATES)


def headline(warehouse: Warehouse, span: Span, rows: DataFrame) -> dict[str, Any]:
    """Count everybody, listed or not."""
    clusters = _clusters(warehouse, span, rows)
    by_class = dict.fromkeys(WORST_FIRST, 0)
    for cluster in clusters:
        for name, count in cluster["by_class"].items():
            by_class[name] = by_class.get(name, 0) + count
    flapping = by_class["flapping"] + by_class["chronic"]
    return {
        "brokers_seen": sum(by_class.values()),
        "flapping_count": flapping,
        "flapping": {"now": flapping} | _flapped_before(warehouse, span),
        "outages": sum(cluster["outages"] for cluster in clusters),
        "incident_downs": sum(cluster["incident_downs"] for cluster in clusters),
        "availability": ratio(
            _sum(clusters, "up_seconds"), _sum(clusters, "up_seconds") + _sum(clusters, "down_seconds")
        ),
        "up_seconds": _sum(clusters, "up_seconds"),
        "down_seconds": _sum(clusters, "down_seconds"),
        "by_class": by_class,
        "new": _named(rows, ("new",), by_class),
        "gone": _named(rows, GONE, by_class),
        "clusters": clusters[:MOST_CLUSTERS],
        "clusters_left_out": max(0, len(clusters) - MOST_CLUSTERS),
    }


def _clusters(warehouse: Warehouse, span: Span, rows: DataFrame) -> list[Row]:
    by_class: dict[str, list[Row]] = {}
    summed = rows.groupBy("cluster", "class").agg(
        F.count("*").alias("brokers"),
        F.sum("down_count").alias("outages"),
        F.sum("incident_downs").alias("incident_downs"),
        *map(total_seconds, _SECONDS),
    )
    for row in collect(summed.orderBy("cluster", "class")):
        by_class.setdefault(row["cluster"], []).append(row)
    health = warehouse.read("cluster_health", first_day=span.last_day, last_day=span.last_day)
    objectives = {row["cluster"]: row for row in collect(health.select("cluster", *_OF_THE_LAST_DAY))}
    unknown = dict.fromkeys(_OF_THE_LAST_DAY)
    found = []
    for name, parts in by_class.items():
        objective = objectives.get(name, unknown)
        told = {column: sum(part[column] for part in parts) for column in (*_COUNTS, *_SECONDS)}
        classes = dict.fromkeys(WORST_FIRST, 0) | {part["class"]: part["brokers"] for part in parts}
        found.append(
            {
                "cluster": name,
                **told,
                "availability": ratio(told["up_seconds"], told["up_seconds"] + told["down_seconds"]),
                "flapping": sum(classes[which] for which in FLAPPING_NOW),
                "by_class": classes,
                **{column: objective[column] for column in _OF_THE_LAST_DAY},
            }
        )
    return found


def _flapped_before(warehouse: Warehouse, span: Span) -> Row:
    """How many flapped the day before and in seven days, by the tables' UTC days."""
    week = span.back(warehouse, "flapping", days=7).filter(F.col("class").isin(*FLAPPING_NOW))
    day_before = span.first_day - timedelta(days=1)
    yesterday = warehouse.read("flapping", first_day=day_before, last_day=day_before)
    return {
        "day_before": yesterday.filter(F.col("class").isin(*FLAPPING_NOW)).count(),
        "seven_days": week.select(*INSTANCE).distinct().count(),
    }


def _named(rows: DataFrame, classes: tuple[str, ...], by_class: dict[str, int]) -> Row:
    count = sum(by_class[name] for name in classes)
    if not count:
        return {"count": 0, "brokers": []}
    few = rows.filter(F.col("class").isin(*classes)).select(*INSTANCE).orderBy(*INSTANCE).limit(MOST_NAMED)
    return {"count": count, "brokers": [label(row) for row in collect(few)]}


def _sum(clusters: list[Row], name: str) -> float:
    return float(sum(cluster[name] for cluster in clusters))
