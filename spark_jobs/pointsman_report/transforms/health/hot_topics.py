"""Topics whose queues are filled unevenly, or of which most are not filled at all, and what to do about it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.parameters import HealthParameters
from pointsman_report.schemas.health import HOT_QUEUES

OF_A_GROUP = ("%RETRY%", "%DLQ%")
"""Topics of a consumer group's own, whose queues are delays: they are uneven by design."""

MANY_QUEUES = 32
MOSTLY_IDLE = 0.9


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
