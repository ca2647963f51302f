"""From the sweep's steps to the intervals of each day, and to what each broker is at each day's end."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.liveness import BROKER_INTERVALS
from pointsman_report.transforms import days
from pointsman_report.transforms.days import lit_day


def _story() -> WindowSpec:
    return Window.partitionBy(*INSTANCE).orderBy("at", "node", "boot_id", "seq")


def broker_intervals(sweep: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Put each interval under the day it ended on, and a copy cut at midnight under each day it outlasted."""
    changes = sweep.filter("changes").withColumns(
        {"end_us": F.lead("at").over(_story()), "end_seen": F.lead(F.col("start").isNotNull()).over(_story())}
    )
    known = changes.filter(F.col("start").isNotNull())
    ended_on = days.day_of(F.col("end_us"))
    last_open_day = F.coalesce(F.date_sub(ended_on, 1), lit_day(last_day))
    first_open_day = F.greatest(F.to_date("start.start_at"), lit_day(first_day))
    shared = (*INSTANCE, "start.*")
    closed = known.filter(F.col("end_us").isNotNull()).select(
        ended_on.alias("dt"),
        *shared,
        F.timestamp_micros("end_us").alias("end_at"),
        (~F.col("end_seen")).alias("end_censored"),
        F.lit(False).alias("open"),
    )
    outlasted = known.select("*", F.explode(days.days_between(first_open_day, last_open_day)).alias("dt"))
    still_open = outlasted.select(
        "dt",
        *shared,
        F.timestamp_micros(days.ends(F.col("dt"))).alias("end_at"),
        F.lit(True).alias("end_censored"),
        F.lit(True).alias("open"),
    )
    return closed.unionByName(still_open).select(*BROKER_INTERVALS.fieldNames())


def state_at_day_end(sweep: DataFrame, *, last_day: date) -> DataFrame:
    """One row for each known broker and day: ``current``, ``last_state``, ``last_loss`` as of its end."""
    until = F.coalesce(F.lead("at").over(_story()), F.lit(days.end_of(last_day)))
    held_on = days.days_between(days.day_of(F.col("at")), F.date_sub(days.day_of(F.col("until")), 1))
    held = sweep.withColumn("until", until).select("*", F.explode(held_on).alias("dt"))
    return held.select("dt", *INSTANCE, F.col("start").alias("current"), "last_state", "last_loss")
