"""Topics at risk, and topics whose registration changed."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import collect, listed, micros, total_seconds, with_times, worst
from pointsman_report.report.span import Span

MOST_TOPICS = 200

_SECONDS = ("unwritable_seconds", "no_master_seconds", "one_broker_seconds")
_CHANGES = ("created", "removed", "queue_changes", "perm_changes")


def topics_at_risk(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Topics that nobody could write to first, then those that were one fault away from it; of whole UTC days."""
    rows = span.named(warehouse, "topics_at_risk")
    order = F.array_position(F.array(*map(F.lit, ("unwritable", "no_master", "one_broker"))), F.col("worst"))
    summed = rows.withColumn("order", order).groupBy("cluster", "topic")
    topics = summed.agg(
        F.max("brokers").alias("brokers"),
        *map(total_seconds, _SECONDS),
        F.min("first_at").alias("first_at"),
        F.min_by("worst", "order").alias("worst"),
    ).select("cluster", "topic", "brokers", *_SECONDS, *micros("first_at"), "worst")
    few = worst(topics, MOST_TOPICS, *(F.col(name).desc_nulls_last() for name in _SECONDS), "cluster", "topic")
    cut = F.count(F.when(F.col("unwritable_seconds") > 0, 1)).alias("unwritable")
    counts = topics.groupBy("worst").agg(F.count("*").alias("topics"), cut, total_seconds("unwritable_seconds"))
    by_worst = {row["worst"]: row for row in collect(counts)} if few else {}
    return listed(with_times(few, "first_at")) | {
        "by_worst": {name: row["topics"] for name, row in sorted(by_worst.items())},
        # Those that slaves were left of too: their worst is no_master.
        "unwritable": sum(row["unwritable"] for row in by_worst.values()),
        "unwritable_seconds": sum(row["unwritable_seconds"] for row in by_worst.values()),
    }


def topic_churn(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Topics created, removed or changed most often; of whole UTC days."""
    rows = span.named(warehouse, "topic_churn")
    summed = rows.groupBy("cluster", "topic").agg(
        F.max("brokers").alias("brokers"), *(F.sum(name).alias(name) for name in _CHANGES)
    )
    changes = sum((F.coalesce(name, F.lit(0)) for name in _CHANGES), F.lit(0))
    return listed(worst(summed.withColumn("changes", changes), 50, F.col("changes").desc(), "cluster", "topic"))
