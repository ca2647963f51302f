"""One pass over time for each broker: how many observers hold it up, how many down, and what that makes of it.

A broker is down while every observer that watches and has an opinion saw it down, up while one of them sees it up, and
nothing is known (``none``) while nobody with an opinion watches. Rows are ordered by time, then observer, then number;
observers that stop watching do so behind all rows of their instant, and together.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE, INTERVAL_START, LAST_LOSS, OBSERVER
from spark_jobs.transforms import days
from spark_jobs.transforms.opinions import DOWN, SIGNS, in_force

_BEFORE_ALL, _AFTER_ALL = -1, 2**62
_AFTER_EVERY_NODE = "\U0010ffff"
_ORDER = ("at", "node", "boot_id", "seq")
_COLUMNS = (
    *INSTANCE,
    *_ORDER,
    "gain_up",
    "gain_down",
    "event",
    "reason",
    "sign_us",
    "carried_start",
    "carried_loss",
    "carried_state",
)


def sweep(opinions: DataFrame, state: DataFrame, *, first_day: date) -> DataFrame:
    """Every step of every broker in order.

    Columns: instance, ``at``, ``changes`` (an interval or a time of no knowledge begins here), ``start`` (the interval
    in force after the step; its state is null where nothing is known), ``last_state``, ``last_loss``.
    """
    opening = _carried_over(opinions, state, first_day=first_day)
    steps = opening.unionByName(_said(opinions, first_day=first_day)).unionByName(_left(opinions))
    story = Window.partitionBy(*INSTANCE).orderBy(*_ORDER)
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = story.rowsBetween(Window.unboundedPreceding, -1)
    counted = steps.withColumns(
        {
            "up": F.sum("gain_up").over(to_here),
            "down": F.sum("gain_down").over(to_here),
            "last_loss": F.last(F.coalesce("carried_loss", _loss()), ignorenulls=True).over(to_here),
        }
    )
    seen = counted.withColumn("seen", F.when(F.col("up") > 0, "up").when(F.col("down") > 0, "down").otherwise("none"))
    compared = seen.withColumn("was", F.lag("seen").over(story))
    opens = F.col("seq") == _BEFORE_ALL
    changed = compared.withColumn("changes", opens | F.col("was").isNull() | (F.col("was") != F.col("seen")))
    label = F.coalesce("carried_state", F.when(F.col("changes") & ~opens, _known_state()))
    labelled = changed.withColumn("label", label).withColumns(
        {
            "known_before": F.last("label", ignorenulls=True).over(before),
            "last_state": F.last("label", ignorenulls=True).over(to_here),
        }
    )
    begun = labelled.withColumn(
        "begun", F.when(F.col("changes"), F.when(opens, F.col("carried_start")).otherwise(_start()))
    )
    start = F.last(F.when(F.col("changes"), F.struct("begun")), ignorenulls=True).over(to_here)["begun"]
    return begun.withColumn("start", start).select(*INSTANCE, *_ORDER, "changes", "start", "last_state", "last_loss")


def _carried_over(opinions: DataFrame, state: DataFrame, *, first_day: date) -> DataFrame:
    """One step for each known broker: what was carried over midnight, all observers at once."""
    standing = opinions.filter(F.col("carried") & (F.col("watch_from") < F.lit(days.start_of(first_day))))
    votes = standing.groupBy(*INSTANCE).agg(
        F.count(F.when(F.col("opinion") == "up", 1)).alias("gain_up"),
        F.count(F.when(F.col("opinion") == "down", 1)).alias("gain_down"),
    )
    joined = state.join(votes, on=list(INSTANCE), how="left").withColumns(
        {
            "at": F.lit(days.start_of(first_day)),
            "node": F.lit(""),
            "boot_id": F.lit(""),
            "seq": F.lit(_BEFORE_ALL).cast("long"),
            "gain_up": F.coalesce("gain_up", F.lit(0)),
            "gain_down": F.coalesce("gain_down", F.lit(0)),
            "event": F.lit(None).cast("string"),
            "reason": F.lit(None).cast("string"),
            "sign_us": F.lit(None).cast("long"),
            "carried_start": F.col("current"),
            "carried_loss": F.col("last_loss"),
            "carried_state": F.col("last_state"),
        }
    )
    return joined.select(*_COLUMNS)


def _said(opinions: DataFrame, *, first_day: date) -> DataFrame:
    """A step for each row that an observer wrote within its window."""
    story = Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "seq")
    told = in_force(opinions).withColumn("previous", F.lag("opinion").over(story))
    gain_up = (F.col("opinion") == "up").cast("long") - F.coalesce(F.col("previous") == "up", F.lit(False)).cast("long")
    gain_down = (F.col("opinion") == "down").cast("long") - F.coalesce(F.col("previous") == "down", F.lit(False)).cast(
        "long"
    )
    # What counted before the first day is in the opening step.
    fresh = told.withColumns({"gain_up": gain_up, "gain_down": gain_down}).filter(
        F.col("at") >= F.lit(days.start_of(first_day))
    )
    return _without_carry(fresh)


def _left(opinions: DataFrame) -> DataFrame:
    """A step for each instant at which observers of a broker stopped watching."""
    over = in_force(opinions).filter(F.col("watch_to").isNotNull())
    last = over.groupBy(*INSTANCE, *OBSERVER).agg(
        F.max("watch_to").alias("at"), F.max_by("opinion", F.struct("at", "seq")).alias("held")
    )
    # One by one, the second of two that leave at once would look as if it had been left alone for no time.
    together = last.groupBy(*INSTANCE, "at").agg(
        (-F.count(F.when(F.col("held") == "up", 1))).alias("gain_up"),
        (-F.count(F.when(F.col("held") == "down", 1))).alias("gain_down"),
    )
    gone = together.withColumns(
        {
            "node": F.lit(_AFTER_EVERY_NODE),
            "boot_id": F.lit(""),
            "seq": F.lit(_AFTER_ALL).cast("long"),
            "event": F.lit(None).cast("string"),
            "reason": F.lit(None).cast("string"),
            "sign_us": F.lit(None).cast("long"),
        }
    )
    return _without_carry(gone)


def _without_carry(steps: DataFrame) -> DataFrame:
    nothing = {
        "carried_start": F.lit(None).cast(INTERVAL_START),
        "carried_loss": F.lit(None).cast(LAST_LOSS),
        "carried_state": F.lit(None).cast("string"),
    }
    return steps.withColumns(nothing).select(*_COLUMNS)


def _loss() -> Column:
    row = F.struct("event", "reason", F.timestamp_micros("sign_us").alias("last_sign_of_life_at"))
    return F.when(F.col("event").isin(*DOWN), row.cast(LAST_LOSS))


def _known_state() -> Column:
    """up, down, or left: down after a polite leave."""
    left = F.col("last_loss.event") == "UNREGISTERED"
    return F.when(F.col("seen") == "up", "up").when(F.col("seen") == "down", F.when(left, "left").otherwise("down"))


def _start() -> Column:
    """The interval that a change begins; null where nothing is known from here on."""
    down = F.col("seen") == "down"
    planned = F.col("label") == "left"
    # Whoever is seen again after a time without observers may have been as it is for long.
    was_there = F.col("event").isin(*SIGNS) | F.coalesce(F.col("reason") == "SNAPSHOT", F.lit(False))
    censored = F.when(F.col("was").isNull(), was_there).otherwise(F.col("was") == "none")
    # Nobody saw it go just now: whoever is left had it down already, and only an observer went.
    left_alone = down & (F.col("seq") == _AFTER_ALL)
    taken_up = left_alone | (censored & (F.col("known_before") == "down"))
    continues = F.coalesce((F.col("label") == "down") & taken_up, F.lit(False))
    censored = left_alone | F.coalesce(censored, F.lit(False))
    start = F.struct(
        F.col("seen").alias("state"),
        F.timestamp_micros("at").alias("start_at"),
        censored.alias("start_censored"),
        planned.alias("planned"),
        continues.alias("continues"),
        F.when(down, F.col("last_loss.event")).otherwise(F.col("event")).alias("event"),
        F.when(down, F.col("last_loss.reason")).otherwise(F.col("reason")).alias("reason"),
        F.when(down, F.col("last_loss.last_sign_of_life_at")).alias("last_sign_of_life_at"),
        (F.col("up") + F.col("down")).alias("observers"),
    )
    return F.when(F.col("seen") != "none", start.cast(INTERVAL_START))
