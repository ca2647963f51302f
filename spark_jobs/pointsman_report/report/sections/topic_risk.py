"""Topics at risk, and topics whose registration changed; for whole UTC days."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.section import Section, first, section
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Listing, collect, micros, total_seconds, worst

MAX_TOPICS = 200
MAX_CHANGED = 50

_SECONDS = ("unwritable_seconds", "no_master_seconds", "one_broker_seconds")
_CHANGES = ("created", "removed", "queue_changes", "perm_changes")


@dataclass(frozen=True, slots=True)
class TopicAtRisk:
    """Rows of ``topics_at_risk``, summed."""

    cluster: str
    topic: str
    brokers: int
    unwritable_seconds: float
    no_master_seconds: float
    one_broker_seconds: float
    first_at: str | None
    worst: str


@dataclass(frozen=True, slots=True)
class TopicsAtRisk(Listing[TopicAtRisk]):
    """Topics without a writable queue first. ``unwritable`` is their number, including those with slaves left
    (``worst``: no_master)."""

    by_worst: dict[str, int] = field(default_factory=dict)
    unwritable: int = 0
    unwritable_seconds: float = 0


@dataclass(frozen=True, slots=True)
class ChangedTopic:
    """Rows of ``topic_churn``, summed."""

    cluster: str
    topic: str
    brokers: int
    created: int
    removed: int
    queue_changes: int
    perm_changes: int
    changes: int


def topics_at_risk(warehouse: Warehouse, span: Span) -> TopicsAtRisk:
    """Read the topics at risk."""
    rows = span.named(warehouse, "topics_at_risk")
    order = F.array_position(F.array(*map(F.lit, ("unwritable", "no_master", "one_broker"))), F.col("worst"))
    summed = rows.withColumn("order", order).groupBy("cluster", "topic")
    topics = summed.agg(
        F.max("brokers").alias("brokers"),
        *map(total_seconds, _SECONDS),
        F.min("first_at").alias("first_at"),
        F.min_by("worst", "order").alias("worst"),
    ).select("cluster", "topic", "brokers", *_SECONDS, *micros("first_at"), "worst")
    most = (F.col(name).desc_nulls_last() for name in _SECONDS)
    few = worst(TopicAtRisk, topics, MAX_TOPICS, *most, "cluster", "topic")
    if not few.rows:
        return TopicsAtRisk()
    cut = F.count(F.when(F.col("unwritable_seconds") > 0, 1)).alias("unwritable")
    counts = topics.groupBy("worst").agg(F.count("*").alias("topics"), cut, total_seconds("unwritable_seconds"))
    by_worst = {row["worst"]: row for row in collect(counts.orderBy("worst"))}
    return TopicsAtRisk(
        few.rows,
        few.in_all,
        few.left_out,
        by_worst={name: row["topics"] for name, row in by_worst.items()},
        unwritable=sum(row["unwritable"] for row in by_worst.values()),
        unwritable_seconds=sum(row["unwritable_seconds"] for row in by_worst.values()),
    )


def topic_churn(warehouse: Warehouse, span: Span) -> Listing[ChangedTopic]:
    """The topics with the most changes (created, removed, queues, permission)."""
    rows = span.named(warehouse, "topic_churn")
    summed = rows.groupBy("cluster", "topic").agg(
        F.max("brokers").alias("brokers"), *(F.sum(name).alias(name) for name in _CHANGES)
    )
    changes = sum((F.coalesce(name, F.lit(0)) for name in _CHANGES), F.lit(0))
    counted = summed.withColumn("changes", changes)
    return worst(ChangedTopic, counted, MAX_CHANGED, F.col("changes").desc(), "cluster", "topic")


def topics_at_risk_section(found: TopicsAtRisk) -> Section:
    """Return the section."""
    listed = first(found, "topics", "report.json or the table topics_at_risk")
    rule = "a period without a writable queue, with replicas only, or with a single broker"
    return section("topics", "Topics at risk", listed=listed, rule=rule).empty_without(listed.rows)


def topic_churn_section(found: Listing[ChangedTopic]) -> Section | None:
    """Return the section; None without a changed topic."""
    listed = first(found, "topics", "report.json or the table topic_churn")
    return section("churn", "Topics that changed", listed=listed) if listed.rows else None
