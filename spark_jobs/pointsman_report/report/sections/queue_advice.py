"""Findings about queues, consumer groups with lag, and the busiest topics; for whole UTC days."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.section import Section, first, section
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Listing, collect, worst

MAX_HOT = 100
MAX_GROUPS = 50
MAX_BEHIND = 20
MAX_TOPICS = 20
MAX_SHOWN = 10

KINDS = ("falling_behind", "key_skew", "too_few_queues", "idle_members", "too_many_queues")
"""By cost, the highest first."""
BEHIND = ("falling_behind", "too_few_queues")
"""Kinds of findings about a group that falls behind: one that can be scaled, and one that needs more queues."""


@dataclass(frozen=True, slots=True)
class HotQueue:
    """A row of ``hot_queues``, as of its last day, and the number of days with it."""

    cluster: str
    kind: str
    topic: str | None
    consumer_group: str | None
    broker_name: str | None
    queue_id: int | None
    value: float | None
    limit: float | None
    says: str | None
    cure: str | None
    days: int


@dataclass(frozen=True, slots=True)
class HotQueues(Listing[HotQueue]):
    """By cost, the highest first."""

    by_kind: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """A consumer group that falls behind on a topic; listed once, even if the queue with the highest lag changes."""

    cluster: str
    consumer_group: str
    topic: str
    cure: str | None
    lag: float | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Rows of ``group_lag``, summed."""

    cluster: str
    consumer_group: str
    topic: str
    queues: int | None
    members: int | None
    lag_first: int | None
    lag_last: int | None
    lag_max: int
    highest_lag: int | None


@dataclass(frozen=True, slots=True)
class BusyTopic:
    """A topic on its busiest day (``topic_load``)."""

    cluster: str
    topic: str
    brokers: int | None
    queues: int | None
    idle_queues: int | None
    put_rate: float | None
    highest_put_rate: float | None
    skew: float | None


@dataclass(frozen=True, slots=True)
class Queues:
    """Findings and figures of the queues."""

    hot: HotQueues = field(default_factory=HotQueues)
    behind: Listing[GroupBehind] = field(default_factory=Listing)
    groups: Listing[GroupLag] = field(default_factory=Listing)
    topics: Listing[BusyTopic] = field(default_factory=Listing)


def queues(warehouse: Warehouse, span: Span) -> Queues:
    """Read the findings about queues, and the largest groups and topics."""
    rows = span.named(warehouse, "hot_queues")
    which = ("cluster", "kind", "topic", "consumer_group", "broker_name", "queue_id")
    latest = rows.groupBy(*which).agg(
        *(F.max_by(name, "dt").alias(name) for name in ("value", "limit", "says", "cure")), F.count("*").alias("days")
    )
    place = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    times = F.try_divide("value", "limit").desc_nulls_last()
    hot = worst(HotQueue, latest, MAX_HOT, F.when(place > 0, place).otherwise(len(KINDS) + 1), times, *which)
    by_kind: dict[str, int] = {}
    if hot.rows:
        kinds = collect(latest.groupBy("kind").agg(F.count("*").alias("found")).orderBy("kind"))
        by_kind = {row["kind"]: row["found"] for row in kinds}
    return Queues(
        hot=HotQueues(hot.rows, hot.in_all, hot.left_out, by_kind),
        behind=_behind(rows) if hot.rows else Listing(),
        groups=_groups(warehouse, span),
        topics=_topics(warehouse, span),
    )


def _behind(hot: DataFrame) -> Listing[GroupBehind]:
    which = ("cluster", "consumer_group", "topic")
    lag = F.max(F.when(F.col("kind") == "falling_behind", F.col("value"))).alias("lag")
    groups = hot.filter(F.col("kind").isin(*BEHIND)).groupBy(*which).agg(F.max_by("cure", "dt").alias("cure"), lag)
    return worst(GroupBehind, groups, MAX_BEHIND, F.col("lag").desc_nulls_last(), *which)


def _groups(warehouse: Warehouse, span: Span) -> Listing[GroupLag]:
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
    return worst(GroupLag, behind, MAX_GROUPS, F.col("lag_last").desc_nulls_last(), F.col("lag_max").desc(), *which)


def _topics(warehouse: Warehouse, span: Span) -> Listing[BusyTopic]:
    which = ("cluster", "topic")
    measured = ("brokers", "queues", "idle_queues", "put_rate", "highest_put_rate", "skew")
    topics = (
        span.named(warehouse, "topic_load")
        .groupBy(*which)
        .agg(*(F.max_by(name, F.struct("put_rate", "dt")).alias(name) for name in measured))
    )
    return worst(BusyTopic, topics, MAX_TOPICS, F.col("put_rate").desc_nulls_last(), *which)


def queues_section(found: Queues) -> Section:
    """Return the section."""
    return section(
        "queues",
        "Queues",
        hot=first(found.hot, "findings", "report.json or the table hot_queues"),
        groups=first(found.groups, "groups", "report.json or the table group_lag", most=MAX_SHOWN),
        topics=first(found.topics, "topics", "report.json or the table topic_load", most=MAX_SHOWN),
    ).empty_without(found.hot.rows, found.groups.rows, found.topics.rows)
