"""Which queues of which topic each broker had registered, from when to when."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.base import TEXT, struct
from pointsman_report.schemas.topics import TOPIC_INTERVALS
from pointsman_report.transforms import days
from pointsman_report.transforms.days import lit_day
from pointsman_report.transforms.topics.statements import of_brokers

_BODY = struct(topics=T.MapType(TEXT, T.ArrayType(T.IntegerType())), removed=T.ArrayType(TEXT))
_QUEUES = ("read_queues", "write_queues", "perm")
_ENTRY = (*INSTANCE, "topic", "there", *_QUEUES, "ordinal", "at", "next_ordinal", "next_at")


def topic_intervals(
    events: DataFrame, statements: DataFrame, carried: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """Turn `statements` into intervals, each cut at every midnight.

    ``carried`` are the topic intervals of the day before the first: what was open then holds on until a statement says
    otherwise.
    """
    until = days.end_of(last_day)
    entries = _carried(carried, statements, first_day=first_day).unionByName(_said(events, statements))
    story = Window.partitionBy(*INSTANCE, "topic").orderBy("ordinal", "there", *_QUEUES)
    after = entries.withColumns({"after_ordinal": F.lead("ordinal").over(story), "after_at": F.lead("at").over(story)})
    # A whole set that does not name the topic ends it.
    left_out = F.col("next_ordinal") < F.coalesce("after_ordinal", F.lit(2**31 - 1))
    end = F.coalesce(F.when(left_out, F.col("next_at")).otherwise(F.col("after_at")), F.lit(until))
    lasting = after.withColumn("end", end).filter("there").filter(F.col("end") > F.col("at"))
    same = F.lag("end").over(story) == F.col("at")
    for name in _QUEUES:
        same &= F.lag(name).over(story) == F.col(name)
    begins = lasting.withColumn("begins", (~F.coalesce(same, F.lit(False))).cast("int"))
    counted = begins.withColumn("nth", F.sum("begins").over(story.rowsBetween(Window.unboundedPreceding, 0)))
    merged = counted.groupBy(*INSTANCE, "topic", *_QUEUES, "nth").agg(
        F.min("at").alias("at"), F.max("end").alias("end")
    )
    return _cut_at_midnight(merged, last_day=last_day)


def _said(events: DataFrame, statements: DataFrame) -> DataFrame:
    """A row for each topic that a statement names."""
    numbered = ("ordinal", "at", "next_ordinal", "next_at")
    named = statements.select(*INSTANCE, *numbered, F.explode("rows").alias("row"))
    rows = named.select(*INSTANCE, *numbered, "row.node", "row.boot_id", "row.seq")
    texts = events.filter(of_brokers()).select(*OBSERVER, "seq", "detail")
    # As a generator: a detail is long, and would else be parsed for each of the two fields.
    parsed = F.inline(F.array(F.from_json("detail", _BODY)))
    body = rows.join(texts, on=[*OBSERVER, "seq"], how="inner").select(*INSTANCE, *numbered, parsed)
    there = F.transform(
        F.map_entries("topics"),
        lambda entry: F.struct(
            entry["key"].alias("topic"),
            F.lit(True).alias("there"),
            *(F.get(entry["value"], place).alias(name) for place, name in enumerate(_QUEUES)),
        ),
    )
    gone = F.transform(
        "removed",
        lambda topic: F.struct(
            topic.alias("topic"),
            F.lit(False).alias("there"),
            *(F.lit(None).cast("int").alias(name) for name in _QUEUES),
        ),
    )
    told = body.select(*INSTANCE, *numbered, F.explode(F.array(gone, there)).alias("entries"))
    entries = told.select(*INSTANCE, *numbered, F.inline("entries"))
    usable = F.col("read_queues").isNotNull() & F.col("write_queues").isNotNull() & F.col("perm").isNotNull()
    return entries.filter(F.col("topic").isNotNull() & (usable | ~F.col("there"))).select(*_ENTRY)


def _carried(carried: DataFrame, statements: DataFrame, *, first_day: date) -> DataFrame:
    first = statements.filter("whole_set").groupBy(*INSTANCE)
    first_set = first.agg(F.min(F.struct("ordinal", "at")).alias("ahead"))
    held = carried.filter("open").join(first_set, on=list(INSTANCE), how="left")
    return held.withColumns(
        {
            "there": F.lit(True),
            "ordinal": F.lit(0),
            "at": F.lit(days.start_of(first_day)),
            "next_ordinal": F.col("ahead.ordinal"),
            "next_at": F.col("ahead.at"),
        }
    ).select(*_ENTRY)


def _cut_at_midnight(merged: DataFrame, *, last_day: date) -> DataFrame:
    # One that ends at midnight exactly has no part in the day that begins there.
    last = F.least(days.day_of(F.col("end") - 1), lit_day(last_day))
    each_day = merged.select("*", F.explode(days.days_between(days.day_of(F.col("at")), last)).alias("dt"))
    start, end = days.starts(F.col("dt")), days.ends(F.col("dt"))
    cut = each_day.withColumns(
        {
            "from_at": F.timestamp_micros(F.greatest("at", start)),
            "to_at": F.timestamp_micros(F.least("end", end)),
            "open": F.col("end") >= end,
        }
    )
    return cut.select(*TOPIC_INTERVALS.fieldNames())
