"""How far consumer groups were behind, summed over brokers.

A report names its broker's twenty groups that are farthest behind, each with what it has of one topic. At the end of
the day a group counts as far behind as each broker's last report has it: not at all where that does not name it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas.health import GROUP_LAG
from pointsman_report.transforms.health.queue_reports import count, last_told

_GROUP = ("dt", "cluster", "consumer_group", "topic")


def group_lag(reports: DataFrame) -> DataFrame:
    """Sum up `queue_reports.queue_reports` by group and topic."""
    broker = ("dt", "cluster", "broker_name")
    named = reports.filter("leads").select(*broker, "at", "slot", "is_last", F.inline(_groups_and_queues()))
    each = named.filter(F.col("consumer_group").isNotNull() & F.col("topic").isNotNull())
    farthest = F.struct((-F.col("queue_lag")).alias("less"), "broker_name", "queue_id")
    of_slot = each.groupBy(*_GROUP, "broker_name", "slot").agg(
        F.count(F.when(~F.col("is_queue"), 1)).alias("told"),
        F.max("lag").alias("slot_lag"),
        F.min(F.when(F.col("lag").isNotNull(), F.struct("at", "lag"))).alias("first"),
        F.max(F.when(F.col("is_last") & ~F.col("is_queue"), F.struct("lag", "highest_lag"))).alias("last"),
        F.max("at").alias("at"),
        last_told("queues").alias("queues"),
        last_told("members").alias("members"),
        F.min(F.when((F.col("queue_lag") > 0) & F.col("queue_id").isNotNull(), farthest)).alias("farthest"),
    )
    # One exchange for the three sums that follow.
    together = of_slot.filter(F.col("told") > 0).repartition(*_GROUP)
    all_brokers = F.try_sum("slot_lag").over(Window.partitionBy(*_GROUP, "slot"))
    of_broker = (
        together.withColumn("slot_lag", all_brokers)
        .groupBy(*_GROUP, "broker_name")
        .agg(
            F.max("slot_lag").alias("slot_max"),
            F.min("first")["lag"].alias("lag_first"),
            F.max("last").alias("last"),
            last_told("queues").alias("queues"),
            last_told("members").alias("members"),
            F.min("farthest").alias("farthest"),
        )
    )
    summed = of_broker.groupBy(*_GROUP).agg(
        F.try_sum("queues").alias("queues"),
        # Every broker knows all members; in a roll-out there are more for a while, so not the most of the day.
        F.max("members").alias("members"),
        F.try_sum("lag_first").alias("lag_first"),
        F.try_sum(F.coalesce("last.lag", F.lit(0))).alias("lag_last"),
        F.max("slot_max").alias("slot_max"),
        F.coalesce(F.max("last.highest_lag"), F.lit(0)).alias("highest_lag"),
        F.min("farthest").alias("farthest"),
    )
    whole = summed.withColumns(
        {
            "lag_max": F.greatest("slot_max", "lag_first", "lag_last"),
            "farthest_broker_name": F.col("farthest.broker_name"),
            "farthest_queue_id": F.col("farthest.queue_id"),
        }
    )
    return whole.select(*GROUP_LAG.fieldNames())


def _groups_and_queues() -> Column:
    """The groups of a report and, of the day's last one, their farthest queues: read and summed once."""
    nothing = F.lit(None)

    def group(each: Column) -> Column:
        return F.struct(
            F.lit(False).alias("is_queue"),
            each["group"].alias("consumer_group"),
            each["topic"].alias("topic"),
            count(each["queue_count"]).alias("queues"),
            count(each["lag"]).alias("lag"),
            count(each["highest_lag"]).alias("highest_lag"),
            count(each["member_count"]).alias("members"),
            nothing.cast("long").alias("queue_id"),
            nothing.cast("long").alias("queue_lag"),
        )

    def queue(each: Column) -> Column:
        return F.struct(
            F.lit(True).alias("is_queue"),
            each["group"].alias("consumer_group"),
            each["topic"].alias("topic"),
            *(nothing.cast("long").alias(name) for name in ("queues", "lag", "highest_lag", "members")),
            count(each["queue_id"]).alias("queue_id"),
            count(each["lag"]).alias("queue_lag"),
        )

    groups = F.transform("top_groups", group)
    queues = F.when(F.col("is_last"), F.transform("top_lags", queue))
    return F.concat(F.coalesce(groups, F.array()), F.coalesce(queues, F.array()))
