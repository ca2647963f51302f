"""An observer's own pauses, and the periods of its expiry guard of a cluster.

A paused name server receives nothing, so it has no vote on any broker in that time (`votes`). In a guard's period it
records of each broker what it knows (`opinions`); the period itself is for readers, and late heartbeats in it count
against no broker.

A guard is on from the first GUARD_ON to the next GUARD_OFF of that cluster in that run of the name server, whatever
their reasons; LIMIT and a changed mode only repeat that it is on. It keeps every broker that neither a maintenance
window covers nor strong evidence removes, so any other EXPIRED ends a guard whose GUARD_OFF was lost. A pause is known
at its end alone, and a finished day is not written again: one that lasted over midnight counts from midnight.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import OBSERVER
from pointsman_report.schemas.liveness import BLIND_PERIODS
from pointsman_report.transforms import days
from pointsman_report.transforms.days import lit_day

LONGEST_PAUSE_SECONDS = 86_400.0
_PERIOD = (*OBSERVER, "cluster", "why", "from_us", "to_us")


def blind_periods(
    events: DataFrame, windows: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """A row for each period and each day it touches.

    ``windows`` are the observer windows of the days, ``yesterday`` the blind periods of the day before the first.
    """
    ended = windows.groupBy(*OBSERVER).agg(F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("life_end"))
    periods = _guards(events, yesterday).unionByName(_pauses(events)).join(F.broadcast(ended), on=list(OBSERVER))
    cut = periods.withColumn("to_us", F.least("to_us", "life_end")).filter(_lasts())
    return by_day(cut, first_day=first_day, last_day=last_day).select(*BLIND_PERIODS.fieldNames())


def by_day(periods: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Put periods (``from_us``, ``to_us`` or null) under each of the days they touch: ``from_at``, ``to_at``, ``open``.

    One that ends at midnight is still open at the end of the day: that is all the day itself can know.
    """
    first = F.greatest(days.day_of(F.col("from_us")), lit_day(first_day))
    last = F.least(F.coalesce(days.day_of(F.col("to_us")), lit_day(last_day)), lit_day(last_day))
    each = periods.select("*", F.explode(days.days_between(first, last)).alias("dt"))
    ends = days.ends(F.col("dt"))
    return each.withColumns(
        {
            "from_at": F.timestamp_micros("from_us"),
            "to_at": F.timestamp_micros(F.least("to_us", ends)),
            "open": F.col("to_us").isNull() | (F.col("to_us") >= ends),
        }
    )


def _lasts() -> Column:
    return F.col("to_us").isNull() | (F.col("to_us") > F.col("from_us"))


def _guards(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    evidence = F.coalesce(F.get_json_object("detail", "$.evidence"), F.lit("WEAK"))
    unguarded = (F.col("event") == "EXPIRED") & ~F.coalesce("planned", F.lit(False)) & (evidence != "STRONG")
    turned = events.filter((F.col("event").isin("GUARD_ON", "GUARD_OFF") | unguarded) & F.col("cluster").isNotNull())
    said = turned.select(
        *OBSERVER, "cluster", F.unix_micros("event_at").alias("at"), "seq", (F.col("event") == "GUARD_ON").alias("on")
    )
    carried = yesterday.filter(F.col("open") & (F.col("why") == "GUARD")).select(
        *OBSERVER,
        "cluster",
        F.unix_micros("from_at").alias("at"),
        F.lit(0).cast("long").alias("seq"),
        F.lit(True).alias("on"),
    )
    story = Window.partitionBy(*OBSERVER, "cluster").orderBy("at", "seq")
    told = said.unionByName(carried).withColumn("was_on", F.lag("on", 1, False).over(story))
    turns = told.filter(F.col("on") != F.col("was_on")).withColumn("to_us", F.lead("at").over(story))
    on = turns.filter("on").withColumns({"why": F.lit("GUARD"), "from_us": F.col("at")})
    return on.select(*_PERIOD)


def _pauses(events: DataFrame) -> DataFrame:
    seconds = F.get_json_object("detail", "$.seconds").try_cast("double")
    paused = events.filter((F.col("event") == "NAMESRV_PAUSED") & seconds.between(0.0, LONGEST_PAUSE_SECONDS))
    at = F.unix_micros("event_at")
    told = paused.select(*OBSERVER, at.alias("to_us"), "seq", F.round(seconds * days.SECOND).cast("long").alias("us"))
    before = F.lag("to_us").over(Window.partitionBy(*OBSERVER).orderBy("to_us", "seq"))
    # greatest() skips the null of the first; two pauses never overlap.
    began = F.greatest(F.col("to_us") - F.col("us"), days.starts(days.day_of(F.col("to_us"))), before)
    none = F.lit(None).cast("string")
    return told.withColumns({"from_us": began, "cluster": none, "why": F.lit("PAUSED")}).select(*_PERIOD)
