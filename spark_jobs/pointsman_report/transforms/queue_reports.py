"""What agents reported of queues, summed up by broker, by topic and by consumer group.

`queue_reports`: what agents reported of their brokers' queues, each report once, with whatever cannot be set to null.

A report goes to every name server, and each writes it. The same text of the same broker is counted as often as the
name server that heard it most often heard it, and dated when the first of them heard it: a report that one name server
missed counts, and clocks that differ make no second report.

`queue_stats`: a broker's queues over the day, as its agent reported them.

`topic_load`: how a topic was filled, summed over its brokers.

A report names its broker's twenty topics and its twenty queues that fill fastest. What a report does not name counts as
filled with nothing in that time: a day's rate is at most too low, and for brokers of up to twenty topics it is exact.

`group_lag`: how far consumer groups were behind, summed over brokers.

A report names its broker's twenty groups that are farthest behind, each with what it has of one topic. At the end of
the day a group counts as far behind as each broker's last report has it: not at all where that does not name it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.health_tables import GROUP_LAG, QUEUE_STATS, TOPIC_LOAD
from pointsman_report.transforms import utc_days

SLOT = 1_200 * utc_days.SECOND
"""Agents report each ten minutes, give or take one: in twice that, every living one has."""

MOST_PERIOD_MS = 86_400_000
MOST_RATE = 1e7
"""Messages a second; what is above is none. A day of so many still has a sum."""

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
    """Columns: ``dt``, instance, ``at`` (microseconds), ``slot``, the report's fields, and what they count for.

    ``leads``: of the replicas of its broker name that reported in that time this has the lowest id, so that a slave's
    copies of its master's queues are not counted again. ``is_last``: the broker name's last leading report of the day.
    ``led_ms``: how long all its leading reports measured.
    """
    rows = events.filter(
        (F.col("event") == "QUEUE_STATS") & F.col("broker_id").isNotNull() & F.col("detail").isNotNull()
    )
    # One exchange: all that follows keeps the rows of a broker name together.
    together = rows.select("dt", *INSTANCE, "node", "boot_id", "seq", F.unix_micros("event_at").alias("at"), "detail")
    together = together.repartition("dt", "cluster", "broker_name")
    # Texts are long, and a sort by them slow.
    told = together.withColumn("text", F.xxhash64("detail"))
    told_by = Window.partitionBy("dt", *INSTANCE, "text", "node").orderBy("at", "boot_id", "seq")
    heard_by = Window.partitionBy("dt", *INSTANCE, "text", "nth").orderBy("at", "node", "boot_id", "seq")
    numbered = told.withColumn("nth", F.row_number().over(told_by))
    once = numbered.withColumn("copy", F.row_number().over(heard_by)).filter(F.col("copy") == 1)
    group = Window.partitionBy("dt", "cluster", "broker_name")
    in_slot = Window.partitionBy("dt", "cluster", "broker_name", "slot")
    period = F.from_json("detail", "struct<period_ms:bigint>")["period_ms"]
    usable = F.when(period > 0, F.least(period, F.lit(MOST_PERIOD_MS)))
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
    return F.when(value >= 0, value)


def rate(value: Column) -> Column:
    """Messages a second; JSON's readers take 'NaN' and 'Infinity' for numbers."""
    return F.when(~F.isnan(value) & value.between(0.0, MOST_RATE), value)


def millionths(put_rate: Column, period_ms: Column) -> Column:
    """Millionths of a message that came at a rate in a time: sums of them do not depend on the order of the rows."""
    return F.round(put_rate * period_ms * 1e3).cast("long")


def mean_rate(millionths_: Column, period_ms: Column) -> Column:
    """Messages a second, to a millionth."""
    return F.round(F.try_divide(millionths_, period_ms * 1e3), 6)


def last_told(name: str) -> Column:
    """The last of a group's values that is one; of several at one moment the highest."""
    value = F.col(name)
    return F.max(F.when(value.isNotNull(), F.struct("at", value.alias("told"))))["told"]


def queue_stats(reports: DataFrame) -> DataFrame:
    """Sum up each replica's day of `queue_reports`."""
    rated = F.col("put_rate").isNotNull() & F.col("period_ms").isNotNull()
    summed = reports.groupBy("dt", *INSTANCE).agg(
        F.count("*").alias("samples"),
        F.try_sum("period_ms").alias("ms"),
        F.try_sum(F.when(rated, F.col("period_ms"))).alias("rated_ms"),
        F.try_sum(F.when(rated, millionths(F.col("put_rate"), F.col("period_ms")))).alias("put"),
        last_told("queue_count").alias("queues"),
        last_told("topic_count").alias("topics"),
        last_told("depth").alias("depth"),
        F.max("put_rate").alias("put_rate_max"),
        last_told("lag").alias("lag"),
        F.max("lag").alias("lag_max"),
    )
    rates = summed.withColumns(
        {
            "measured_seconds": F.coalesce(F.col("ms"), F.lit(0)) / 1e3,
            "put_rate": mean_rate(F.col("put"), F.col("rated_ms")),
        }
    )
    return rates.select(*QUEUE_STATS.fieldNames())


def topic_load(reports: DataFrame) -> DataFrame:
    """Sum up `queue_reports` by topic."""
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


def group_lag(reports: DataFrame) -> DataFrame:
    """Sum up `queue_reports` by group and topic."""
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
