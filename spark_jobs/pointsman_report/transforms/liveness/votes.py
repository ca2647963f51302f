"""Whose opinion counts when: each observer's vote on each broker, as it changes.

A vote is the observer's last opinion while it watches and is not paused. Votes that come back after a pause do so
before all rows of their instant; votes that end with a pause or an observer's window, behind all of them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.transforms.liveness.opinions import NONE, in_force
from pointsman_report.transforms.liveness.resync import LEFT_OUT

ENDS, ROWS, BEGINS = 0, 1, 2
"""The phases of an instant."""

ROW = ("event", "reason", "sign_us", "opinion", "planned", "is_fresh")
"""What a vote keeps of its row; null where a pause or a window changes it."""


def votes(opinions: DataFrame, blind: DataFrame) -> DataFrame:
    """Columns: instance, observer, ``at``, ``phase``, ``seq``, the row's own, ``vote``, ``previous``.

    A vote is up, down, none or lost; the first opinion begins the story.
    """
    counted = in_force(opinions)
    said = counted.select(
        *INSTANCE,
        *OBSERVER,
        "at",
        # A broker that a checkpoint leaves out is gone for that observer as all brokers are when its window ends.
        F.when((F.col("event") == LEFT_OUT) & (F.col("opinion") == NONE), BEGINS).otherwise(ROWS).alias("phase"),
        "seq",
        *ROW,
        F.lit(0).alias("off"),
    )
    story = said.unionByName(_marks(counted, blind), allowMissingColumns=True)
    order = Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "phase", "seq")
    to_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    held = F.last("opinion", ignorenulls=True).over(to_here)
    counts = story.withColumns({"held": held, "times_off": F.sum("off").over(to_here)}).filter("held is not null")
    vote = F.when(F.col("times_off") > 0, NONE).otherwise(F.col("held"))
    voted = counts.withColumn("vote", vote).withColumn("previous", F.lag("vote").over(order))
    return voted.select(*INSTANCE, *OBSERVER, "at", "phase", "seq", *ROW, "vote", "previous")


def _marks(counted: DataFrame, blind: DataFrame) -> DataFrame:
    """Rows where a pause or the time behind the window begins (``off`` 1), and where a pause ends (-1)."""
    pauses = F.broadcast(
        blind.filter(F.col("why") == "PAUSED").select(
            *OBSERVER, F.unix_micros("from_at").alias("from_us"), F.unix_micros("to_at").alias("to_us")
        )
    )
    whose = counted.select(*INSTANCE, *OBSERVER, "watch_to").dropDuplicates()
    both = F.inline(F.array(_mark(F.col("from_us"), BEGINS, 1), _mark(F.col("to_us"), ENDS, -1)))
    paused = whose.join(pauses, on=list(OBSERVER), how="inner").select(*INSTANCE, *OBSERVER, both)
    over = F.inline(F.array(_mark(F.col("watch_to"), BEGINS, 1)))
    ended = whose.filter(F.col("watch_to").isNotNull()).select(*INSTANCE, *OBSERVER, over)
    return paused.unionByName(ended).withColumn("seq", F.lit(0).cast("long"))


def _mark(at: Column, phase: int, off: int) -> Column:
    return F.struct(at.alias("at"), F.lit(phase).alias("phase"), F.lit(off).alias("off"))
