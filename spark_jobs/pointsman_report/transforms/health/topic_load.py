"""How a topic was filled, summed over its brokers.

A report names its broker's twenty topics and its twenty queues that fill fastest. What a report does not name counts as
filled with nothing in that time: a day's rate is at most too low, and for brokers of up to twenty topics it is exact.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas.health import TOPIC_LOAD
from pointsman_report.transforms.health.queue_reports import count, last_told, mean_rate, millionths, rate

_BROKER = ("dt", "cluster", "broker_name")


def topic_load(reports: DataFrame) -> DataFrame:
    """Sum up `queue_reports.queue_reports` by topic."""
    named = reports.filter("leads").select(*_BROKER, "at", "period_ms", "led_ms", F.inline(_topics_and_queues()))
    of_broker = named.filter(F.col("topic").isNotNull()).groupBy(*_BROKER, "topic", "is_queue", "queue_id")
    summed = of_broker.agg(
        last_told("queues").alias("queues"),
        F.min("idle_queues").alias("idle_queues"),
        mean_rate(F.try_sum(_put("put_rate")), F.max("led_ms")).alias("put_rate"),
        mean_rate(F.try_sum(_put("highest_put_rate")), F.max("led_ms")).alias("highest_put_rate"),
    )
    is_queue, of_rate = F.col("is_queue"), F.col("put_rate")
    hottest = F.struct((-of_rate).alias("less"), "broker_name", "queue_id")
    topics = summed.groupBy("dt", "cluster", "topic").agg(
        F.count(F.when(~is_queue, 1)).alias("brokers"),
        F.try_sum("queues").alias("queues"),
        F.try_sum("idle_queues").alias("idle_queues"),
        _sum_of_rates(F.when(~is_queue, of_rate)).alias("put_rate"),
        F.max("highest_put_rate").alias("highest_put_rate"),
        F.min(F.when(is_queue & of_rate.isNotNull() & F.col("queue_id").isNotNull(), hottest)).alias("hottest"),
    )
    mean = F.try_divide("put_rate", "queues")
    skewed = topics.filter(F.col("brokers") > 0).withColumns(
        {
            "skew": F.try_divide(F.col("highest_put_rate"), mean),
            "hottest_broker_name": F.col("hottest.broker_name"),
            "hottest_queue_id": F.col("hottest.queue_id"),
            "hottest_put_rate": -F.col("hottest.less"),
        }
    )
    return skewed.select(*TOPIC_LOAD.fieldNames())


def _topics_and_queues() -> Column:
    """Both lists of a report as one, so that they are read and summed once."""
    nothing = F.lit(None)

    def topic(each: Column) -> Column:
        return F.struct(
            F.lit(False).alias("is_queue"),
            each["topic"].alias("topic"),
            nothing.cast("long").alias("queue_id"),
            count(each["queue_count"]).alias("queues"),
            count(each["idle_queue_count"]).alias("idle_queues"),
            rate(each["put_rate"]).alias("put_rate"),
            rate(each["highest_put_rate"]).alias("highest_put_rate"),
        )

    def queue(each: Column) -> Column:
        return F.struct(
            F.lit(True).alias("is_queue"),
            each["topic"].alias("topic"),
            count(each["queue_id"]).alias("queue_id"),
            nothing.cast("long").alias("queues"),
            nothing.cast("long").alias("idle_queues"),
            rate(each["put_rate"]).alias("put_rate"),
            nothing.cast("double").alias("highest_put_rate"),
        )

    topics, queues = F.transform("top_topics", topic), F.transform("top_put_rates", queue)
    return F.concat(F.coalesce(topics, F.array()), F.coalesce(queues, F.array()))


def _put(name: str) -> Column:
    return millionths(F.col(name), F.col("period_ms"))


def _sum_of_rates(put_rate: Column) -> Column:
    # As integers: a sum of floats would depend on the order of the rows.
    return F.try_sum(F.round(put_rate * 1e6).cast("long")) / 1e6
