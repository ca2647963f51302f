"""Queues that are worth a line, the groups that fall behind, the busiest topics; of whole UTC days."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import Row, collect, listed, worst
from pointsman_report.report.span import Span

MOST_HOT = 100
MOST_GROUPS = 50
MOST_BEHIND = 20
MOST_TOPICS = 20

KINDS = ("falling_behind", "key_skew", "too_few_queues", "idle_members", "too_many_queues")
"""What costs most first."""
BEHIND = ("falling_behind", "too_few_queues")
"""Of a group that falls behind: with members or time to spare, and with none."""


def queues(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Of several days: what each said last."""
    rows = span.named(warehouse, "hot_queues")
    which = ("cluster", "kind", "topic", "consumer_group", "broker_name", "queue_id")
    latest = rows.groupBy(*which).agg(
        *(F.max_by(name, "dt").alias(name) for name in ("value", "limit", "says", "cure")), F.count("*").alias("days")
    )
    place = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    times = F.try_divide("value", "limit").desc_nulls_last()
    hot = listed(worst(latest, MOST_HOT, F.when(place > 0, place).otherwise(len(KINDS) + 1), times, *which))
    kinds = collect(latest.groupBy("kind").agg(F.count("*").alias("found"))) if hot["in_all"] else []
    return {
        "hot": hot
        | {"by_kind": {row["kind"]: row["found"] for row in sorted(kinds, key=lambda row: str(row["kind"]))}},
        "behind": listed(_behind(rows) if hot["in_all"] else []),
        "groups": _groups(warehouse, span),
        "topics": _topics(warehouse, span),
    }


def _behind(hot: DataFrame) -> list[Row]:
    """Groups that fall behind, each once: over some days the queue that is farthest behind may be another."""
    which = ("cluster", "consumer_group", "topic")
    lag = F.max(F.when(F.col("kind") == "falling_behind", F.col("value"))).alias("lag")
    groups = hot.filter(F.col("kind").isin(*BEHIND)).groupBy(*which).agg(F.max_by("cure", "dt").alias("cure"), lag)
    return worst(groups, MOST_BEHIND, F.col("lag").desc_nulls_last(), *which)


def _groups(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    which = ("cluster", "consumer_group", "topic")
    groups = (
        span.named(warehouse, "group_lag")
        .groupBy(*which)
        .agg(
            F.max_by("queues", "dt").alias("queues"),
            F.max_by("members", "dt").alias("members"),
            F.min_by("lag_first", "dt").alias("lag_first"),
            F.max_by("lag_last", "dt").alias("lag_last"),
            F.max("lag_max").alias("lag_max"),
            F.max_by("highest_lag", "dt").alias("highest_lag"),
        )
    )
    behind = groups.filter(F.col("lag_max") > 0)
    return listed(worst(behind, MOST_GROUPS, F.col("lag_last").desc_nulls_last(), F.col("lag_max").desc(), *which))


def _topics(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    which = ("cluster", "topic")
    measured = ("brokers", "queues", "idle_queues", "put_rate", "highest_put_rate", "skew")
    topics = (
        span.named(warehouse, "topic_load")
        .groupBy(*which)
        .agg(*(F.max_by(name, F.struct("put_rate", "dt")).alias(name) for name in measured))
    )
    return listed(worst(topics, MOST_TOPICS, F.col("put_rate").desc_nulls_last(), *which))
