"""When the expiry guard of a cluster was on, at which name server, and how many brokers it kept in the routes.

A period lasts from the first GUARD_ON to the next GUARD_OFF of that cluster in that run of the name server; GUARD_ON
again (reason LIMIT, a changed mode) continues it. It ends with the run at the latest.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.flapping import GUARD_PERIODS
from pointsman_report.transforms import days
from pointsman_report.transforms.liveness.blind import by_day

_WATCH = (*OBSERVER, "cluster")
_FACTS = ("mode", "lost", "baseline", "up")


def guard_periods(
    events: DataFrame, windows: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """A row for each period and day; ``yesterday``: those of the day before the first."""
    ended = windows.groupBy(*OBSERVER).agg(F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("run_end"))
    periods = _periods(events, yesterday).join(F.broadcast(ended), on=list(OBSERVER), how="left")
    # least() skips the null of a period that is still on, and of a run that is.
    cut = periods.withColumn("to_us", F.least("to_us", "run_end"))
    daily = by_day(cut, first_day=first_day, last_day=last_day)
    said = _kept(events, daily)
    limit = F.col("limit_us") < days.ends(F.col("dt"))
    known = daily.join(said, on=["dt", *_WATCH, "from_at"], how="left").withColumns(
        {"kept": F.coalesce("kept", F.lit(0)).cast("long"), "over_limit": F.coalesce(limit, F.lit(False))}
    )
    return known.select(*GUARD_PERIODS.fieldNames())


def _periods(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    turned = events.filter(F.col("event").isin("GUARD_ON", "GUARD_OFF") & F.col("cluster").isNotNull())
    at = F.unix_micros("event_at")
    said = turned.select(
        *_WATCH,
        at.alias("at"),
        "seq",
        (F.col("event") == "GUARD_ON").alias("on"),
        F.when((F.col("event") == "GUARD_ON") & (F.col("reason") == "LIMIT"), at).alias("limit_us"),
        _detail("mode").alias("mode"),
        _detail("lost").try_cast("long").alias("lost"),
        # Called "lived" by rows of schema version 1.
        F.coalesce(_detail("baseline"), _detail("lived")).try_cast("long").alias("baseline"),
        _detail("up").try_cast("long").alias("up"),
    )
    carried = yesterday.filter("open").select(
        *_WATCH,
        F.unix_micros("from_at").alias("at"),
        F.lit(0).cast("long").alias("seq"),
        F.lit(True).alias("on"),
        F.when(F.col("over_limit"), F.unix_micros("from_at")).alias("limit_us"),
        *_FACTS,
    )
    story = Window.partitionBy(*_WATCH).orderBy("at", "seq")
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    both = said.unionByName(carried).withColumn("begins", F.col("on") & ~F.lag("on", 1, False).over(story))
    numbered = both.withColumn("period", F.sum(F.col("begins").cast("long")).over(to_here)).filter("period > 0")
    first = F.struct("at", "seq")
    return numbered.groupBy(*_WATCH, "period").agg(
        F.min(F.when(F.col("on"), F.col("at"))).alias("from_us"),
        F.min(F.when(~F.col("on"), F.col("at"))).alias("to_us"),
        F.min("limit_us").alias("limit_us"),
        *(F.min_by(name, F.when(F.col("on"), first)).alias(name) for name in _FACTS),
    )


def _kept(events: DataFrame, daily: DataFrame) -> DataFrame:
    """``kept``: brokers that the period's name server marked PROTECTED while it lasted."""
    protected = events.filter((F.col("event") == "PROTECTED") & F.col("broker_name").isNotNull())
    said = protected.select("dt", *OBSERVER, *INSTANCE, F.unix_micros("event_at").alias("at"))
    periods = daily.select("dt", *_WATCH, "from_at", F.unix_micros("from_at").alias("since"), "to_at")
    # The row of a broker that turns the guard on is written just before or after GUARD_ON, at the same moment.
    within = F.col("at").between(F.col("since"), F.unix_micros("to_at"))
    joined = said.join(F.broadcast(periods), on=["dt", *_WATCH], how="inner").filter(within)
    return joined.groupBy("dt", *_WATCH, "from_at").agg(F.count_distinct("broker_name", "broker_id").alias("kept"))


def _detail(name: str) -> Column:
    return F.get_json_object("detail", f"$.{name}")
