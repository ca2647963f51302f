"""What agents reported of their brokers' queues, each report once, with whatever cannot be set to null.

A report goes to every name server, and each writes it. The same text of the same broker is counted as often as the
name server that heard it most often heard it, and dated when the first of them heard it: a report that one name server
missed counts, and clocks that differ make no second report.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import days

SLOT = 1_200 * days.SECOND
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
