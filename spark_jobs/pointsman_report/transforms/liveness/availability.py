"""A broker's day in seconds: up, down, away by plan; outages and how long they took to repair.

Computed from one partition of ``broker_intervals`` alone. Definitions: availability = U / (U + D); MTTR = mean length
of the outages that ended on the day with both ends seen; MTBF = U / outages that began on it. A polite leave is no
outage and its time is in neither U nor D.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.liveness import AVAILABILITY
from pointsman_report.transforms import days


def is_outage() -> Column:
    """An interval of ``broker_intervals`` that is an unplanned down."""
    return (F.col("state") == "down") & ~F.col("planned")


def began_on_its_day() -> Column:
    """Of the rows of one partition: those whose interval began on that day. Each interval is so counted once."""
    return (F.to_date("start_at") == F.col("dt")) & ~F.col("continues")


def availability(intervals: DataFrame) -> DataFrame:
    """Sum up each broker and day of ``broker_intervals``."""
    start, end = F.unix_micros("start_at"), F.unix_micros("end_at")
    of_day = end - F.greatest(start, days.starts(F.col("dt")))
    whole = end - start
    outage = is_outage()
    repaired = outage & ~F.col("start_censored") & ~F.col("end_censored")
    summed = intervals.groupBy("dt", *INSTANCE).agg(
        _seconds_where(F.col("state") == "up", of_day).alias("up_seconds"),
        _seconds_where(outage, of_day).alias("down_seconds"),
        _seconds_where(F.col("planned"), of_day).alias("planned_seconds"),
        F.count(F.when(outage & began_on_its_day(), 1)).alias("outages"),
        F.count(F.when(repaired, 1)).alias("repaired"),
        _seconds_where(repaired, whole).alias("repair_seconds"),
        days.seconds(F.max(F.when(outage, whole))).alias("longest_outage_seconds"),
    )
    up, down = F.col("up_seconds"), F.col("down_seconds")
    rated = summed.withColumns(
        {
            "availability": F.try_divide(up, up + down),
            "mttr_seconds": F.try_divide("repair_seconds", "repaired"),
            "mtbf_seconds": F.try_divide("up_seconds", "outages"),
        }
    )
    return rated.select(*AVAILABILITY.fieldNames())


def _seconds_where(condition: Column, microseconds: Column) -> Column:
    # Summed as integers: a sum of floats would depend on the order of the rows.
    return days.seconds(F.coalesce(F.sum(F.when(condition, microseconds)), F.lit(0)))
