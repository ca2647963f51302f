"""Partial views: when some name servers saw a broker up and others saw it down.

A few seconds at each expiry are normal, for name servers notice at different times; the report picks what lasts. Those
who have no vote (no opinion, blind, not watching) are on neither side.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness import PARTIAL_VIEWS
from pointsman_report.transforms import days
from pointsman_report.transforms.liveness.sweep import ORDER

_SETS = ("seen_up_by", "seen_down_by")
_AFTER_ALL_PHASES = 3


def partial_views(sweep: DataFrame, votes: DataFrame, *, last_day: date) -> DataFrame:
    """A row for each time and each day it touches, with who saw what."""
    told = _who_saw_what(_moments(sweep, last_day=last_day), votes)
    last = days.day_of(F.col("until") - 1)
    daily = told.select("*", F.explode(days.days_between(days.day_of(F.col("at")), last)).alias("dt"))
    cut = daily.withColumns(
        {
            "from_us": F.greatest("at", days.starts(F.col("dt"))),
            "to_us": F.least("until", days.ends(F.col("dt"))),
        }
    )
    story = Window.partitionBy("dt", *INSTANCE).orderBy("from_us")
    same = F.lit(True)
    for name in ("to_us", *_SETS):
        other = F.col("from_us") if name == "to_us" else F.col(name)
        same = same & F.coalesce(F.lag(name).over(story) == other, F.lit(False))
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    pieces = cut.withColumn("begins", (~same).cast("int")).withColumn("piece", F.sum("begins").over(to_here))
    whole = pieces.groupBy("dt", *INSTANCE, "piece", *_SETS).agg(
        F.timestamp_micros(F.min("from_us")).alias("from_at"),
        F.timestamp_micros(F.max("to_us")).alias("to_at"),
        (F.max("to_us") == days.ends(F.col("dt"))).alias("open"),
    )
    return whole.select(*PARTIAL_VIEWS.fieldNames())


def _moments(sweep: DataFrame, *, last_day: date) -> DataFrame:
    """Times between two steps in which there were votes on both sides."""
    story = Window.partitionBy(*INSTANCE).orderBy(*ORDER)
    until = F.coalesce(F.lead("at").over(story), F.lit(days.end_of(last_day)))
    lasting = sweep.withColumn("until", until).filter((F.col("up") > 0) & (F.col("down") > 0))
    return lasting.filter(F.col("until") > F.col("at")).select(*INSTANCE, "at", "until")


def _who_saw_what(moments: DataFrame, votes: DataFrame) -> DataFrame:
    """Add the two sets of nodes to each moment: ask each observer of the broker for its last vote till then."""
    divided = moments.select(*INSTANCE).distinct()
    cast = votes.select(*INSTANCE, *OBSERVER, "at", "phase", "seq", "vote").join(
        divided, on=list(INSTANCE), how="left_semi"
    )
    lives = cast.groupBy(*INSTANCE).agg(F.collect_set(F.struct(*OBSERVER)).alias("lives"))
    asked = moments.join(lives, on=list(INSTANCE), how="inner").select(
        *INSTANCE,
        F.inline("lives"),
        "at",
        F.lit(_AFTER_ALL_PHASES).alias("phase"),
        F.lit(0).cast("long").alias("seq"),
        "until",
    )
    story = Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "phase", "seq")
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    both = cast.unionByName(asked, allowMissingColumns=True)
    answered = both.withColumn("vote", F.last("vote", ignorenulls=True).over(to_here)).filter(
        F.col("until").isNotNull()
    )
    return answered.groupBy(*INSTANCE, "at", "until").agg(
        _nodes_that_voted("up").alias("seen_up_by"), _nodes_that_voted("down").alias("seen_down_by")
    )


def _nodes_that_voted(vote: str) -> Column:
    return F.sort_array(F.collect_set(F.when(F.col("vote") == vote, F.col("node"))))
