"""Nagios' percentage of state changes, and the longest time without one.

The state is sampled on a grid that begins at midnight; of the last 21 samples each of the 20 steps that changed weighs
0.75 (the oldest) to 1.25 (the newest), and their sum over 20 is the percentage (base/flapping.c of Nagios Core). Down
is an outage; a polite leave and a time that nobody watched change nothing. An outage between two samples is not seen.
The first samples of a day look back over midnight, twenty steps and no further. Only changes are looked at: the
percentage is highest at one.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import RankingParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import days
from pointsman_report.transforms.liveness.availability import is_outage

STEPS = 20
OLDEST, NEWEST = 0.75, 1.25

_BROKER = ("dt", *INSTANCE)


def state_changes(intervals: DataFrame, *, first_day: date, last_day: date, parameters: RankingParameters) -> DataFrame:
    """``percent_state_change`` of each broker and day that has a change in reach; ``intervals`` from the day before."""
    grid = int(parameters.grid_seconds * days.SECOND)
    changes = _changes(_bad_samples(_within_reach(intervals, first_day, last_day, grid), grid), -(-days.DAY // grid))
    # The day's first sample sees what changed before midnight.
    at_midnight = changes.select(*_BROKER).distinct().select(*_BROKER, F.lit(0).alias("sample"), F.lit(0).alias("n"))
    looked_at = changes.unionByName(at_midnight)
    last_steps = Window.partitionBy(*_BROKER).orderBy("sample").rangeBetween(-(STEPS - 1), Window.currentRow)
    n, ages = F.sum("n").over(last_steps), F.sum(F.col("n") * F.col("sample")).over(last_steps)
    older = n * F.col("sample") - ages
    slope = (NEWEST - OLDEST) / (STEPS - 1)
    percent = (n * F.lit(NEWEST) - older * F.lit(slope)) * (100.0 / STEPS)
    scored = looked_at.withColumn("percent", percent).filter(F.col("sample") >= 0)
    return scored.groupBy(*_BROKER).agg(F.max("percent").alias("percent_state_change"))


def longest_stable(intervals: DataFrame) -> DataFrame:
    """``longest_stable_seconds``: the most that one interval took of the day."""
    of_day = F.unix_micros("end_at") - F.greatest(F.unix_micros("start_at"), days.starts(F.col("dt")))
    return intervals.groupBy(*_BROKER).agg(days.seconds(F.max(of_day)).alias("longest_stable_seconds"))


def _within_reach(intervals: DataFrame, first_day: date, last_day: date, grid: int) -> DataFrame:
    """The intervals of each day, and those of the day before that ended within reach of its first sample."""
    told = intervals.select(
        *_BROKER,
        is_outage().alias("bad"),
        "open",
        F.unix_micros("start_at").alias("start"),
        F.unix_micros("end_at").alias("end"),
    )
    late = told.filter(~F.col("open") & (F.col("end") >= days.ends(F.col("dt")) - STEPS * grid))
    both = told.unionByName(late.withColumn("dt", F.date_add("dt", 1)))
    return both.filter(F.col("dt").between(days.lit_day(first_day), days.lit_day(last_day)))


def _bad_samples(intervals: DataFrame, grid: int) -> DataFrame:
    """Ranges of samples that found the broker down: ``from_sample``, and ``to_sample`` behind them."""
    story = Window.partitionBy(*_BROKER).orderBy("start", "end", "open")
    until = F.coalesce(F.lead("start").over(story), days.ends(F.col("dt")))

    def first_sample_from(at: str) -> Column:
        return F.ceil((F.col(at) - days.starts(F.col("dt"))) / grid)

    ranges = intervals.withColumn("until", until).filter("bad")
    sampled = ranges.select(
        *_BROKER, first_sample_from("start").alias("from_sample"), first_sample_from("until").alias("to_sample")
    )
    return sampled.filter(F.col("to_sample") > F.col("from_sample"))


def _changes(bad: DataFrame, samples: int) -> DataFrame:
    """The samples that differ from the one before."""
    story = Window.partitionBy(*_BROKER).orderBy("from_sample")
    falls = F.coalesce(F.lag("to_sample").over(story) < F.col("from_sample"), F.lit(True))
    rises = F.coalesce(F.lead("from_sample").over(story) > F.col("to_sample"), F.lit(True))
    both = F.array(F.when(falls, F.col("from_sample")), F.when(rises, F.col("to_sample")))
    changed = bad.withColumn("both", both).select(*_BROKER, F.explode("both").alias("sample"))
    in_reach = F.col("sample").between(-(STEPS - 1), samples - 1)
    return changed.filter(in_reach).select(*_BROKER, F.col("sample").cast("int").alias("sample"), F.lit(1).alias("n"))
