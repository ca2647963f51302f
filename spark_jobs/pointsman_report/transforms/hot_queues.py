"""Queues that need something done, and what.

`key_skew`: topics whose queues are filled unevenly, or of which most are not filled at all, and what to do about it.

`hot_groups`: consumer groups that fall behind, or have members with nothing to do, and what to do about it.

Falling behind is: farther behind than `lag_above`, by more than `lag_above` farther than in the day's first reports,
and at the day's end near the day's highest. That is no group that catches up, and none whose topic nobody fills.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import HealthParameters
from pointsman_report.schemas.health_tables import HOT_QUEUES

OF_A_GROUP = ("%RETRY%", "%DLQ%")
"""Topics of a consumer group's own, whose queues are delays: they are uneven by design."""

MANY_QUEUES = 32
MOSTLY_IDLE = 0.9
NEAR_THE_HIGHEST = 0.9
ONE_QUEUE = 0.8
"""A queue with this share of a group's lag is its trouble."""

_TOPIC = ("dt", "cluster", "topic")


def of_applications(topic: Column) -> Column:
    """Whether a topic is no group's own."""
    mine = [topic.startswith(prefix) for prefix in OF_A_GROUP]
    return ~(mine[0] | mine[1])


def key_skew(topics: DataFrame, *, parameters: HealthParameters) -> DataFrame:
    """Topics one of whose queues is filled far faster than the mean, with that queue."""
    busy = topics.filter(of_applications(F.col("topic")) & (F.col("put_rate") > parameters.put_rate_above))
    uneven = busy.filter((F.col("queues") > 1) & (F.col("skew") > parameters.skew_above))
    # Of few messages in many queues one is always ahead, and another one each time.
    value = F.col("hottest_put_rate") * F.col("queues") / F.col("put_rate")
    says = F.format_string(
        "queue %d of topic %s on %s takes %.1f of its %.1f messages a second, %.1f times the mean of its %d queues",
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
    return hot.select(*HOT_QUEUES.fieldNames())


def cure_of_skew(skew: Column, queues: Column) -> Column:
    """What spreads a key that is too large; order then holds within a sub-shard alone."""
    return F.format_string(
        "one large key: send_by_key with sharding=SubShards({key: %d}) and second=, which keeps order within a second "
        "value; a few large ones: ExplicitTable gives each a queue; else shard by a key that has more values",
        F.least(F.ceil(skew), queues).cast("long"),
    )


def too_many_queues(topics: DataFrame, *, parameters: HealthParameters) -> DataFrame:
    """Topics with many queues of which hardly one is filled."""
    value = F.try_divide("idle_queues", "queues")
    slow = (F.col("put_rate") > 0) & (F.col("put_rate") <= parameters.put_rate_above)
    idle = topics.filter(of_applications(F.col("topic")) & slow & (F.col("queues") >= MANY_QUEUES))
    says = F.format_string(
        "%d of %d queues of topic %s got nothing in every report of the day, and the topic about %.0f messages a day",
        "idle_queues",
        "queues",
        "topic",
        F.col("put_rate") * 86_400,
    )
    cure = (
        "each queue costs a stream, a waiting pull, a lock and an offset: lower write_queues, and read_queues when the "
        "others are read to their end; 8 to 16 will do"
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
        .select(*HOT_QUEUES.fieldNames())
    )


def hot_groups(
    groups: DataFrame, topics: DataFrame, intervals: DataFrame, *, parameters: HealthParameters
) -> DataFrame:
    """One line at most a group and topic. ``intervals`` are the topics' registered queues."""
    grown = F.col("lag_last") - F.col("lag_first") > parameters.lag_above
    at_its_highest = F.col("lag_last") >= F.col("lag_max") * NEAR_THE_HIGHEST
    falls_behind = (F.col("lag_last") > parameters.lag_above) & grown & at_its_highest
    of_topic = topics.select(*_TOPIC, F.col("queues").alias("topic_queues"), "skew")
    judged = groups.filter(of_applications(F.col("topic"))).withColumn("falls_behind", _surely(falls_behind))
    # Reports are cut after twenty entries; only who registered the queues knows them all.
    full = (
        judged.join(of_topic, on=list(_TOPIC), how="left")
        .join(_registered(intervals, judged), on=list(_TOPIC), how="left")
        .withColumn("all_queues", F.greatest("queues", "topic_queues", "registered"))
    )
    of_group = Window.partitionBy("dt", "cluster", "consumer_group")
    widest = F.row_number().over(of_group.orderBy(F.desc("all_queues"), "topic")) == 1
    # Members share each topic anew: who has a queue of the widest has something to do.
    idle = widest & (F.col("members") > F.col("all_queues")) & ~F.max("falls_behind").over(of_group)
    found = full.withColumn("has_idle_members", _surely(idle))
    return _told(found.filter(F.col("falls_behind") | F.col("has_idle_members")), parameters)


def _registered(intervals: DataFrame, groups: DataFrame) -> DataFrame:
    read = groups.filter(F.col("members") > 0).select(*_TOPIC)
    of_broker = intervals.join(read, on=list(_TOPIC), how="left_semi").groupBy(*_TOPIC, "broker_name")
    most = of_broker.agg(F.max("read_queues").cast("long").alias("queues"))
    return most.groupBy(*_TOPIC).agg(F.try_sum("queues").alias("registered"))


def _surely(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _told(found: DataFrame, parameters: HealthParameters) -> DataFrame:
    falls, lag = F.col("falls_behind"), F.col("lag_last")
    nobody = F.coalesce(F.col("members"), F.lit(0)) == 0
    in_one = (F.col("queues") > 1) & (F.col("highest_lag") >= lag * ONE_QUEUE) & F.col("farthest_queue_id").isNotNull()
    one = _surely(falls & ~nobody & in_one)
    too_few = _surely(falls & ~nobody & ~one & (F.col("members") >= F.col("all_queues")))
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
        _cure(falls, nobody, one, too_few, parameters).alias("cure"),
    ).select(*HOT_QUEUES.fieldNames())


def _says(falls: Column, one: Column, too_few: Column) -> Column:
    idle = F.format_string(
        "%d of %d members of group %s have no queue of topic %s, which has %d",
        F.col("members") - F.col("all_queues"),
        "members",
        "consumer_group",
        "topic",
        "all_queues",
    )
    behind = F.format_string(
        "group %s is %d messages behind in topic %s, %d when the day's reports began",
        "consumer_group",
        "lag_last",
        "topic",
        "lag_first",
    )
    in_one = F.format_string(
        "; %d of them in queue %d on %s", "highest_lag", "farthest_queue_id", "farthest_broker_name"
    )
    shared = F.format_string("; its %d members have a queue each of %d", "members", "all_queues")
    return (
        F.when(~falls, idle)
        .when(one, F.concat(behind, in_one))
        .when(too_few, F.concat(behind, shared))
        .otherwise(behind)
    )


def _cure(falls: Column, nobody: Column, one: Column, too_few: Column, parameters: HealthParameters) -> Column:
    more = F.format_string(
        "start more members, up to %d have a queue each; or raise consume_concurrency, or do less in the listener",
        "all_queues",
    )
    stuck = F.lit(
        "look for a message that its listener fails on: an ordered consumer tries it without end unless "
        "max_reconsume_times is set; else that listener is slow: raise consume_concurrency"
    )
    skewed = one & (F.col("skew") > parameters.skew_above)
    return (
        F.when(~falls, "add queues (write_queues and read_queues) or stop members")
        .when(nobody, "no member is known: start the group's consumers")
        .when(skewed, cure_of_skew(F.col("skew"), F.col("topic_queues")))
        .when(one, stuck)
        .when(too_few, "more members would be idle: add queues, and then members; or raise consume_concurrency")
        .otherwise(more)
    )
