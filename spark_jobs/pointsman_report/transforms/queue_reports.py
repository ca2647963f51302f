"""Queue reports of the agents, summed by broker, by topic and by consumer group.

`queue_reports`: each report of an agent about its broker's queues once; impossible values are null.

A report goes to every name server, and each writes it. Identical reports of a broker count as often as the name server
with the most copies wrote them, dated by the first copy. So a report missed by one name server still counts, and clocks
that differ do not duplicate it.

`queue_stats`: a broker's queues over the day, as its agent reported them.

`topic_load`: messages into a topic, summed over its brokers.

A report names the twenty fastest topics and queues of its broker. Anything it does not name counts as 0 for that
period: a day's rate can be too low, but is exact for brokers of up to twenty topics.

`group_lag`: lag of consumer groups, summed over brokers.

A report names the twenty groups with the highest lag on its broker, each with one topic. The lag at the end of the day
is that of each broker's last report: 0 if that does not name the group.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.health_tables import GROUP_LAG, QUEUE_STATS, TOPIC_LOAD
from pointsman_report.transforms import utc_days

SLOT = 1_200 * utc_days.SECOND
"""Agents report every ten minutes, plus or minus one: within twice that time every running agent has reported."""

MAX_PERIOD_MS = 86_400_000
MAX_RATE = 1e7
"""Messages per second; higher values are ignored. The sum of a day at this rate does not overflow."""

_REPORT = (
    "struct<queue_count:bigint,topic_count:bigint,depth:bigint,put_rate:double,lag:bigint,"
    "top_put_rates:array<struct<topic:string,queue_id:bigint,put_rate:double>>,"
    "top_lags:array<struct<`group`:string,topic:string,queue_id:bigint,lag:bigint>>,"
    "top_topics:array<struct<topic:string,queue_count:bigint,idle_queue_count:bigint,put_rate:double,"
    "highest_put_rate:double>>,"
    "top_groups:array<struct<`group`:string,topic:string,queue_count:bigint,lag:bigint,highest_lag:bigint,"
    "member_count:bigint>>>"
)
_BROKER = ("dt", "cluster", "broker_name")
_GROUP = ("dt", "cluster", "consumer_group", "topic")


def queue_reports(events: DataFrame) -> DataFrame:
    """Columns: ``dt``, instance, ``at`` (microseconds), ``slot``, the report's fields, and how they count.

    ``leads``: this replica has the lowest id of all replicas of its broker name that reported in the slot; a slave's
    copies of its master's queues are so not counted twice. ``is_last``: the broker name's last leading report of the
    day. ``led_ms``: total period of its leading reports.

    One row per report of a replica; no key, because two reports may be equal.
    """
    rows = events.filter(
        (F.col("event") == "QUEUE_STATS") & F.col("broker_id").isNotNull() & F.col("detail").isNotNull()
    )
    # One exchange: all following steps keep the rows of a broker name together.
    together = rows.select("dt", *INSTANCE, "node", "boot_id", "seq", F.unix_micros("event_at").alias("at"), "detail")
    together = together.repartition("dt", "cluster", "broker_name")
    # The JSON texts are long, and sorting by them is slow.
    hashed = together.withColumn("text", F.xxhash64("detail"))
    by_observer = Window.partitionBy("dt", *INSTANCE, "text", "node").orderBy("at", "boot_id", "seq")
    by_time = Window.partitionBy("dt", *INSTANCE, "text", "nth").orderBy("at", "node", "boot_id", "seq")
    numbered = hashed.withColumn("nth", F.row_number().over(by_observer))
    once = numbered.withColumn("copy", F.row_number().over(by_time)).filter(F.col("copy") == 1)
    group = Window.partitionBy("dt", "cluster", "broker_name")
    in_slot = Window.partitionBy("dt", "cluster", "broker_name", "slot")
    period = F.from_json("detail", "struct<period_ms:bigint>")["period_ms"]
    usable = F.when(period > 0, F.least(period, F.lit(MAX_PERIOD_MS)))
    slotted = once.withColumns({"slot": F.floor(F.col("at") / SLOT), "period_ms": usable})
    led = slotted.withColumn("leads", F.col("broker_id") == F.min("broker_id").over(in_slot))
    last = F.max(F.when(F.col("leads"), F.struct("at", "text"))).over(group)
    led_ms = F.try_sum(F.when(F.col("leads"), F.col("period_ms"))).over(group)
    marked = led.withColumns({"last": last, "led_ms": led_ms}).withColumn(
        "is_last", F.col("leads") & (F.col("at") == F.col("last.at")) & (F.col("text") == F.col("last.text"))
    )
    parsed = marked.withColumn("report", F.from_json("detail", _REPORT))
    return parsed.select(
        "dt",
        *INSTANCE,
        "at",
        "slot",
        "leads",
        "is_last",
        "led_ms",
        "period_ms",
        *(count(F.col(f"report.{name}")).alias(name) for name in ("queue_count", "topic_count", "depth", "lag")),
        rate(F.col("report.put_rate")).alias("put_rate"),
        *(f"report.{name}" for name in ("top_put_rates", "top_lags", "top_topics", "top_groups")),
    )


def count(value: Column) -> Column:
    """The count, or null if it is negative."""
    return F.when(value >= 0, value)


def rate(value: Column) -> Column:
    """Messages per second, or null: JSON readers accept 'NaN' and 'Infinity' as numbers."""
    return F.when(~F.isnan(value) & value.between(0.0, MAX_RATE), value)


def millionths(put_rate: Column, period_ms: Column) -> Column:
    """Messages of a period in millionths: a sum of integers does not depend on the order of the rows."""
    return F.round(put_rate * period_ms * 1e3).cast("long")


def mean_rate(millionths_: Column, period_ms: Column) -> Column:
    """Messages per second, to a millionth."""
    return F.round(F.try_divide(millionths_, period_ms * 1e3), 6)


def last_known(name: str) -> Column:
    """The last value of a group that is not null; of several at one moment the highest."""
    value = F.col(name)
    return F.max(F.when(value.isNotNull(), F.struct("at", value.alias("value"))))["value"]


def queue_stats(reports: DataFrame) -> DataFrame:
    """Sum `queue_reports` by replica. One row per broker and day; key: ``dt``, instance."""
    rated = F.col("put_rate").isNotNull() & F.col("period_ms").isNotNull()
    summed = reports.groupBy("dt", *INSTANCE).agg(
        F.count("*").alias("samples"),
        F.try_sum("period_ms").alias("ms"),
        F.try_sum(F.when(rated, F.col("period_ms"))).alias("rated_ms"),
        F.try_sum(F.when(rated, millionths(F.col("put_rate"), F.col("period_ms")))).alias("put"),
        last_known("queue_count").alias("queues"),
        last_known("topic_count").alias("topics"),
        last_known("depth").alias("depth"),
        F.max("put_rate").alias("put_rate_max"),
        last_known("lag").alias("lag"),
        F.max("lag").alias("lag_max"),
    )
    rates = summed.withColumns(
        {
            "measured_seconds": F.coalesce(F.col("ms"), F.lit(0)) / 1e3,
            "put_rate": mean_rate(F.col("put"), F.col("rated_ms")),
        }
    )
    return rates.select(*QUEUE_STATS.columns)


def topic_load(reports: DataFrame) -> DataFrame:
    """Sum `queue_reports` by topic. One row per topic and day; key: ``dt``, ``cluster``, ``topic``."""
    named = reports.filter("leads").select(*_BROKER, "at", "period_ms", "led_ms", F.inline(_topics_and_queues()))
    of_broker = named.filter(F.col("topic").isNotNull()).groupBy(*_BROKER, "topic", "is_queue", "queue_id")
    summed = of_broker.agg(
        last_known("queues").alias("queues"),
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
    return skewed.select(*TOPIC_LOAD.columns)


def _topics_and_queues() -> Column:
    """Both lists of a report as one, so that they are parsed and summed once."""
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


def group_lag(reports: DataFrame) -> DataFrame:
    """Sum `queue_reports` by group and topic.

    One row per group, topic and day; key: ``dt``, ``cluster``, ``consumer_group``, ``topic``.
    """
    broker = ("dt", "cluster", "broker_name")
    named = reports.filter("leads").select(*broker, "at", "slot", "is_last", F.inline(_groups_and_queues()))
    each = named.filter(F.col("consumer_group").isNotNull() & F.col("topic").isNotNull())
    farthest = F.struct((-F.col("queue_lag")).alias("less"), "broker_name", "queue_id")
    of_slot = each.groupBy(*_GROUP, "broker_name", "slot").agg(
        F.count(F.when(~F.col("is_queue"), 1)).alias("reports"),
        F.max("lag").alias("slot_lag"),
        F.min(F.when(F.col("lag").isNotNull(), F.struct("at", "lag"))).alias("first"),
        F.max(F.when(F.col("is_last") & ~F.col("is_queue"), F.struct("lag", "highest_lag"))).alias("last"),
        F.max("at").alias("at"),
        last_known("queues").alias("queues"),
        last_known("members").alias("members"),
        F.min(F.when((F.col("queue_lag") > 0) & F.col("queue_id").isNotNull(), farthest)).alias("farthest"),
    )
    # One exchange for the three sums that follow.
    together = of_slot.filter(F.col("reports") > 0).repartition(*_GROUP)
    all_brokers = F.try_sum("slot_lag").over(Window.partitionBy(*_GROUP, "slot"))
    of_broker = (
        together.withColumn("slot_lag", all_brokers)
        .groupBy(*_GROUP, "broker_name")
        .agg(
            F.max("slot_lag").alias("slot_max"),
            F.min("first")["lag"].alias("lag_first"),
            F.max("last").alias("last"),
            last_known("queues").alias("queues"),
            last_known("members").alias("members"),
            F.min("farthest").alias("farthest"),
        )
    )
    summed = of_broker.groupBy(*_GROUP).agg(
        F.try_sum("queues").alias("queues"),
        # Every broker knows all members; a roll-out adds some for a while, so the day's maximum is not used.
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
    return whole.select(*GROUP_LAG.columns)


def _groups_and_queues() -> Column:
    """The groups of a report and, for the day's last one, their queues with the highest lag: parsed and summed once."""
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
