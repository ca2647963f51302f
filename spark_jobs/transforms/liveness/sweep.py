"""One pass over time for each broker: how many observers hold it up, how many down, and what that makes of it.

A broker is down while every observer that has a vote saw it down, up while one of them sees it up, and nothing is known
(``none``) while nobody has a vote. Rows are ordered by time, then observer, then number; votes that come back do so
before all rows of their instant and together, votes that are lost behind all and together: one by one, the second of
two that leave at once would look as if it had been left alone for no time.

A broker that left by plan and then, out already, is told of as lost has its outage from there on: its announced window
is over and it still fails.

Where clocks of name servers differ, an outage begins when the last of them says so by its own clock and ends when the
first says so by its own: it looks shorter than it was, by up to as much as they differ.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE
from spark_jobs.schemas.liveness import INTERVAL_START, LAST_LOSS
from spark_jobs.transforms import days
from spark_jobs.transforms.liveness.maintenance import PLANNED
from spark_jobs.transforms.liveness.opinions import DOWN, SIGNS
from spark_jobs.transforms.liveness.votes import BEGINS, ENDS, ROWS

_CARRIED_VOTES, _CARRIED_STATE, _FIRST, _AFTER_ALL = -2, -1, 0, 2**62
_AFTER_EVERY_NODE = "\U0010ffff"
ORDER = ("at", "node", "boot_id", "seq")


def sweep(votes: DataFrame, state: DataFrame, *, first_day: date) -> DataFrame:
    """Every step of every broker in order.

    Columns: instance, ``at``, ``changes`` (an interval or a time of no knowledge begins here), ``start`` (the interval
    in force after the step; its state is null where nothing is known), ``last_state``, ``last_loss``, and how many
    votes it has ``up`` and ``down``.
    """
    steps = _steps(votes, first_day=first_day).unionByName(
        _carried(state, first_day=first_day), allowMissingColumns=True
    )
    story = Window.partitionBy(*INSTANCE).orderBy(*ORDER)
    together = story.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = story.rowsBetween(Window.unboundedPreceding, -1)
    counted = steps.withColumns(
        {
            "up": F.sum("gain_up").over(together),
            "down": F.sum("gain_down").over(together),
            "last_loss": F.last(F.coalesce("carried_loss", _loss()), ignorenulls=True).over(to_here),
            "row": F.row_number().over(story),
        }
    )
    seen = counted.withColumn("seen", F.when(F.col("up") > 0, "up").when(F.col("down") > 0, "down").otherwise("none"))
    compared = seen.withColumn("was", F.lag("seen").over(story))
    opens = F.col("seq") == _CARRIED_STATE
    turned = compared.withColumn("turns", opens | F.col("was").isNull() | (F.col("was") != F.col("seen")))
    turn_label = F.coalesce("carried_state", F.when(F.col("turns") & ~opens, _known_state()))
    labelled = turned.withColumn("turn_label", turn_label).withColumns(
        {
            "of_turn": F.last(F.when(F.col("turns"), F.struct("row", "turn_label")), ignorenulls=True).over(to_here),
            "lost_before": F.last(F.when(_lost_anew(), F.col("row")), ignorenulls=True).over(before),
        }
    )
    first_since = F.coalesce(F.col("lost_before") < F.col("of_turn.row"), F.lit(True))
    anew = _lost_anew() & ~F.col("turns") & (F.col("of_turn.turn_label") == "left") & first_since
    changed = labelled.withColumn("anew", F.coalesce(anew, F.lit(False)))
    changed = changed.withColumns(
        {
            "changes": F.col("turns") | F.col("anew"),
            "label": F.when(F.col("anew"), F.lit("down")).otherwise(F.col("turn_label")),
        }
    )
    known = changed.withColumns(
        {
            "known_before": F.last("label", ignorenulls=True).over(before),
            "last_state": F.last("label", ignorenulls=True).over(to_here),
        }
    )
    begun = known.withColumn(
        "begun", F.when(F.col("changes"), F.when(opens, F.col("carried_start")).otherwise(_start()))
    )
    start = F.last(F.when(F.col("changes"), F.struct("begun")), ignorenulls=True).over(to_here)["begun"]
    told = begun.withColumn("start", start).filter(F.col("seq") != _CARRIED_VOTES)
    return told.select(*INSTANCE, *ORDER, "changes", "start", "last_state", "last_loss", "up", "down")


def _steps(votes: DataFrame, *, first_day: date) -> DataFrame:
    """A step for each vote; those of the days before come together, for their sum is what was carried."""
    start = F.lit(days.start_of(first_day))
    before, own = F.col("at") < start, F.col("phase") == ROWS
    is_after = ~before & (F.col("phase") == BEGINS)
    nobody = F.when(is_after, F.lit(_AFTER_EVERY_NODE)).otherwise(F.lit(""))
    return votes.select(
        *INSTANCE,
        F.greatest("at", start).alias("at"),
        F.when(own & ~before, F.col("node")).otherwise(nobody).alias("node"),
        F.when(own & ~before, F.col("boot_id")).otherwise(F.lit("")).alias("boot_id"),
        F.when(before, F.lit(_CARRIED_VOTES))
        .when(F.col("phase") == ENDS, F.lit(_FIRST))
        .when(is_after, F.lit(_AFTER_ALL))
        .otherwise(F.col("seq"))
        .cast("long")
        .alias("seq"),
        _gain("up").alias("gain_up"),
        _gain("down").alias("gain_down"),
        F.coalesce((F.col("vote") == "down") & (F.col("previous") == "down"), F.lit(False)).alias("holds_down"),
        F.when(~before, F.col("event")).alias("event"),
        F.when(~before, F.col("reason")).alias("reason"),
        F.when(~before, F.col("sign_us")).alias("sign_us"),
    )


def _gain(opinion: str) -> Column:
    now, previous = (F.coalesce(F.col(name) == opinion, F.lit(False)).cast("long") for name in ("vote", "previous"))
    return now - previous


def _carried(state: DataFrame, *, first_day: date) -> DataFrame:
    """One step for each known broker: what was carried over midnight, behind the votes."""
    return state.select(
        *INSTANCE,
        F.lit(days.start_of(first_day)).alias("at"),
        F.lit("").alias("node"),
        F.lit("").alias("boot_id"),
        F.lit(_CARRIED_STATE).cast("long").alias("seq"),
        F.lit(0).cast("long").alias("gain_up"),
        F.lit(0).cast("long").alias("gain_down"),
        F.lit(False).alias("holds_down"),
        F.col("current").cast(INTERVAL_START).alias("carried_start"),
        F.col("last_loss").cast(LAST_LOSS).alias("carried_loss"),
        F.col("last_state").alias("carried_state"),
    )


def _loss() -> Column:
    row = F.struct("event", "reason", F.timestamp_micros("sign_us").alias("last_sign_of_life_at"))
    return F.when(F.col("event").isin(*DOWN), row.cast(LAST_LOSS))


def _is_planned(event: Column, reason: Column) -> Column:
    return (event == "UNREGISTERED") | F.coalesce(reason == PLANNED, F.lit(False))


def _lost_anew() -> Column:
    """A loss that is not by plan, of an observer that held the broker down before."""
    lost = F.col("event").isin(*DOWN) & ~_is_planned(F.col("event"), F.col("reason"))
    return F.coalesce(lost & F.col("holds_down") & (F.col("seen") == "down"), F.lit(False))


def _known_state() -> Column:
    """up, down, or left: down after a polite leave or in an announced window."""
    left = _is_planned(F.col("last_loss.event"), F.col("last_loss.reason"))
    return F.when(F.col("seen") == "up", "up").when(F.col("seen") == "down", F.when(left, "left").otherwise("down"))


def _start() -> Column:
    """The interval that a change begins; null where nothing is known from here on."""
    down, sign = F.col("seen") == "down", F.col("event").isin(*SIGNS)
    planned = F.col("label") == "left"
    # Whoever is seen again after a time without observers may have been as it is for long.
    was_there = sign | F.coalesce(F.col("reason") == "SNAPSHOT", F.lit(False))
    # A sign of life that ends a down stands for a registration that was lost.
    inferred = ~down & sign
    censored = F.when(F.col("was").isNull(), was_there).otherwise((F.col("was") == "none") | inferred)
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
        F.when(down & ~censored, F.col("last_loss.last_sign_of_life_at")).alias("last_sign_of_life_at"),
        (F.col("up") + F.col("down")).alias("observers"),
    )
    return F.when(F.col("seen") != "none", start.cast(INTERVAL_START))
