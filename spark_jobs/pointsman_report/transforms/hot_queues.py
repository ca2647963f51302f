"""Queues and consumer groups that need action, and the action.

`key_skew`, `too_many_queues`: topics whose queues fill unevenly, or most of whose queues are idle, and the remedy.

`hot_groups`: consumer groups that fall behind or have idle members, and the remedy.

A group falls behind if its lag exceeds `lag_above`, grew by more than `lag_above` since the day's first reports, and is
near the day's highest at its end. This excludes groups that are catching up, and groups whose topics get no messages.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman import queue_findings
from pointsman_report.parameters import HealthParameters
from pointsman_report.schemas.health_tables import HOT_QUEUES

OF_A_GROUP = ("%RETRY%", "%DLQ%")
"""Retry and dead letter topics of consumer groups: uneven by design."""

MANY_QUEUES = 32
MOSTLY_IDLE = 0.9
NEAR_THE_HIGHEST = 0.9
ONE_QUEUE = 0.8
"""A single queue with this share of a group's lag is reported as the problem."""

_TOPIC = ("dt", "cluster", "topic")


def of_applications(topic: Column) -> Column:
    """Whether a topic is neither a retry nor a dead letter topic."""
    of_a_group = [topic.startswith(prefix) for prefix in OF_A_GROUP]
    return ~(of_a_group[0] | of_a_group[1])


def key_skew(topics: DataFrame, *, parameters: HealthParameters) -> DataFrame:
    """Topics with one queue that fills far faster than the mean, and that queue.

    One row per such topic and day; key: ``dt``, ``cluster``, ``topic``.
    """
    busy = topics.filter(of_applications(F.col("topic")) & (F.col("put_rate") > parameters.put_rate_above))
    uneven = busy.filter((F.col("queues") > 1) & (F.col("skew") > parameters.skew_above))
    # With few messages in many queues one is always ahead, a different one each time.
    value = F.col("hottest_put_rate") * F.col("queues") / F.col("put_rate")
    says = F.format_string(
        queue_findings.SKEW,
        "hottest_queue_id",
        "topic",
        "hottest_broker_name",
        "hottest_put_rate",
        "put_rate",
        value,
        "queues",
    )
    hot = uneven.filter(value > parameters.skew_above).select(
        "dt",
        "cluster",
        F.lit("key_skew").alias("kind"),
        "topic",
        F.lit(None).cast("string").alias("consumer_group"),
        F.col("hottest_broker_name").alias("broker_name"),
        F.col("hottest_queue_id").alias("queue_id"),
        value.alias("value"),
        F.lit(float(parameters.skew_above)).alias("limit"),
        says.alias("says"),
        cure_of_skew(value, F.col("queues")).alias("cure"),
    )
    return hot.select(*HOT_QUEUES.columns)


def cure_of_skew(skew: Column, queues: Column) -> Column:
    """Advice for a skewed topic, as text."""
    return F.format_string(queue_findings.CURE_OF_SKEW, F.least(F.ceil(skew), queues).cast("long"))


def too_many_queues(topics: DataFrame, *, parameters: HealthParameters) -> DataFrame:
    """Topics with many queues, nearly all of them idle.

    One row per such topic and day; key: ``dt``, ``cluster``, ``topic``.
    """
    value = F.try_divide("idle_queues", "queues")
    slow = (F.col("put_rate") > 0) & (F.col("put_rate") <= parameters.put_rate_above)
    idle = topics.filter(of_applications(F.col("topic")) & slow & (F.col("queues") >= MANY_QUEUES))
    says = F.format_string(
        "%d of %d queues of topic %s got no message all day; the topic gets about %.0f messages per day",
        "idle_queues",
        "queues",
        "topic",
        F.col("put_rate") * 86_400,
    )
    cure = (
        "each queue costs a stream, a waiting pull, a lock and an offset: lower write_queues, and read_queues once the "
        "others are consumed to their end; 8 to 16 are enough"
    )
    return (
        idle.filter(value >= MOSTLY_IDLE)
        .select(
            "dt",
            "cluster",
            F.lit("too_many_queues").alias("kind"),
            "topic",
            F.lit(None).cast("string").alias("consumer_group"),
            F.lit(None).cast("string").alias("broker_name"),
            F.lit(None).cast("long").alias("queue_id"),
            value.alias("value"),
            F.lit(MOSTLY_IDLE).alias("limit"),
            says.alias("says"),
            F.lit(cure).alias("cure"),
        )
        .select(*HOT_QUEUES.columns)
    )


def hot_groups(
    groups: DataFrame, topics: DataFrame, intervals: DataFrame, *, parameters: HealthParameters
) -> DataFrame:
    """At most one finding per group and topic. ``intervals`` are the topics' registered queues.

    One row per group, topic and day with a finding; key: ``dt``, ``cluster``, ``consumer_group``, ``topic``.
    """
    grown = F.col("lag_last") - F.col("lag_first") > parameters.lag_above
    at_its_highest = F.col("lag_last") >= F.col("lag_max") * NEAR_THE_HIGHEST
    falls_behind = (F.col("lag_last") > parameters.lag_above) & grown & at_its_highest
    of_topic = topics.select(*_TOPIC, F.col("queues").alias("topic_queues"), "skew")
    judged = groups.filter(of_applications(F.col("topic"))).withColumn("falls_behind", _or_false(falls_behind))
    # Reports are limited to twenty entries; only the registrations name all queues.
    full = (
        judged.join(of_topic, on=list(_TOPIC), how="left")
        .join(_registered(intervals, judged), on=list(_TOPIC), how="left")
        .withColumn("all_queues", F.greatest("queues", "topic_queues", "registered"))
    )
    of_group = Window.partitionBy("dt", "cluster", "consumer_group")
    widest = F.row_number().over(of_group.orderBy(F.desc("all_queues"), "topic")) == 1
    # Each topic is assigned separately: a member with a queue of the topic that has most queues is not idle.
    idle = widest & (F.col("members") > F.col("all_queues")) & ~F.max("falls_behind").over(of_group)
    found = full.withColumn("has_idle_members", _or_false(idle))
    return _findings(found.filter(F.col("falls_behind") | F.col("has_idle_members")), parameters)


def _registered(intervals: DataFrame, groups: DataFrame) -> DataFrame:
    read = groups.filter(F.col("members") > 0).select(*_TOPIC)
    of_broker = intervals.join(read, on=list(_TOPIC), how="left_semi").groupBy(*_TOPIC, "broker_name")
    most = of_broker.agg(F.max("read_queues").cast("long").alias("queues"))
    return most.groupBy(*_TOPIC).agg(F.try_sum("queues").alias("registered"))


def _or_false(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _findings(found: DataFrame, parameters: HealthParameters) -> DataFrame:
    falls, lag = F.col("falls_behind"), F.col("lag_last")
    no_members = F.coalesce(F.col("members"), F.lit(0)) == 0
    in_one = (F.col("queues") > 1) & (F.col("highest_lag") >= lag * ONE_QUEUE) & F.col("farthest_queue_id").isNotNull()
    one = _or_false(falls & ~no_members & in_one)
    too_few = _or_false(falls & ~no_members & ~one & (F.col("members") >= F.col("all_queues")))
    about_members = too_few | ~falls
    kind = F.when(~falls, "idle_members").when(too_few, "too_few_queues").otherwise("falling_behind")
    return found.select(
        "dt",
        "cluster",
        kind.alias("kind"),
        "topic",
        "consumer_group",
        F.when(one, F.col("farthest_broker_name")).alias("broker_name"),
        F.when(one, F.col("farthest_queue_id")).alias("queue_id"),
        F.when(about_members, F.col("members")).otherwise(lag).cast("double").alias("value"),
        F.when(about_members, F.col("all_queues")).otherwise(parameters.lag_above).cast("double").alias("limit"),
        _says(falls, one, too_few).alias("says"),
        _cure(falls, no_members, one, too_few, parameters).alias("cure"),
    ).select(*HOT_QUEUES.columns)


def _says(falls: Column, one: Column, too_few: Column) -> Column:
    idle = F.format_string(
        queue_findings.IDLE_MEMBERS,
        F.col("members") - F.col("all_queues"),
        "members",
        "consumer_group",
        "topic",
        "all_queues",
    )
    behind = F.format_string(
        "group %s lags by %d messages in topic %s (%d in the day's first reports)",
        "consumer_group",
        "lag_last",
        "topic",
        "lag_first",
    )
    in_one = F.format_string(
        "; %d of them in queue %d on %s", "highest_lag", "farthest_queue_id", "farthest_broker_name"
    )
    shared = F.format_string(queue_findings.TOO_FEW_QUEUES, "members", "all_queues")
    return (
        F.when(~falls, idle)
        .when(one, F.concat(behind, in_one))
        .when(too_few, F.concat(behind, shared))
        .otherwise(behind)
    )


def _cure(falls: Column, no_members: Column, one: Column, too_few: Column, parameters: HealthParameters) -> Column:
    more = F.format_string(queue_findings.CURE_OF_FALLING_BEHIND, "all_queues")
    stuck = F.lit(
        "check for a message that the listener fails on: an ordered consumer retries it indefinitely unless "
        "max_reconsume_times is set; otherwise the listener is slow: raise consume_concurrency"
    )
    skewed = one & (F.col("skew") > parameters.skew_above)
    return (
        F.when(~falls, queue_findings.CURE_OF_IDLE_MEMBERS)
        .when(no_members, queue_findings.CURE_OF_NO_MEMBERS)
        .when(skewed, cure_of_skew(F.col("skew"), F.col("topic_queues")))
        .when(one, stuck)
        .when(too_few, queue_findings.CURE_OF_TOO_FEW_QUEUES)
        .otherwise(more)
    )
