"""Whose opinion counts when: each observer's vote on each broker, as it changes.

A vote is the observer's last opinion, while it watches and is not blind. In a blind time only what was said in that
very time counts, and only what is no matter of silence: a registration or a leave. All rows of an instant come between
the blind times that end and those that begin then; an observer's life that ends is a blind time without end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE, OBSERVER
from spark_jobs.transforms.liveness.opinions import UP, in_force

ENDS, ROWS, BEGINS = 0, 1, 2
"""The phases of an instant."""

_OVER = "LIFE"
_WHYS = ("PAUSED", "GUARD", _OVER)


def votes(opinions: DataFrame, blind: DataFrame) -> DataFrame:
    """Columns: instance, observer, ``at``, ``phase``, ``seq``, the row's own, ``vote``, ``previous``.

    A vote is up, down or none; the first opinion begins the story.
    """
    counted = in_force(opinions)
    said = counted.select(
        *INSTANCE,
        *OBSERVER,
        "at",
        # Who is left out is gone for that observer as all brokers are when its life ends.
        F.when(F.col("opinion") == "none", BEGINS).otherwise(ROWS).alias("phase"),
        "seq",
        "event",
        "reason",
        "sign_us",
        "opinion",
        "said_at",
        (F.col("event").isin(*UP) | (F.col("event") == "UNREGISTERED")).alias("own_word"),
    )
    story = said.unionByName(_marks(counted, blind), allowMissingColumns=True)
    order = Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "phase", "seq")
    to_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    opinion = F.when(F.col("opinion").isNotNull(), F.struct("opinion", "said_at", "own_word"))
    since = {
        why: F.last(F.when(F.col("why") == why, F.struct("since")), ignorenulls=True).over(to_here)["since"]
        for why in _WHYS
    }
    held = story.withColumns({"held": F.last(opinion, ignorenulls=True).over(to_here), **since})
    blind_now = F.lit(False)
    for why in _WHYS:
        blind_now = blind_now | _outlasts(F.col(why))
    vote = F.when(F.col("held").isNotNull(), F.when(blind_now, F.lit("none")).otherwise(F.col("held.opinion")))
    voted = held.withColumn("vote", vote).filter("vote is not null").withColumn("previous", F.lag("vote").over(order))
    return voted.select(*INSTANCE, *OBSERVER, "at", "phase", "seq", "event", "reason", "sign_us", "vote", "previous")


def _outlasts(since: Column) -> Column:
    """Whether a blind time that is on since then takes the vote."""
    spoken = F.col("held.own_word") & (F.col("held.said_at") > since)
    return F.coalesce(since.isNotNull() & ~spoken, F.lit(False))


def _marks(counted: DataFrame, blind: DataFrame) -> DataFrame:
    """Rows where blind times begin (``since``) and end (null), for each broker that the observer spoke of."""
    # Of a period over several days the last row alone knows its end.
    whole = blind.groupBy(*OBSERVER, F.col("cluster").alias("of_cluster"), "why", "from_at").agg(
        F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("to_us")
    )
    periods = F.broadcast(whole.withColumn("from_us", F.unix_micros("from_at")))
    whose = counted.select(*INSTANCE, *OBSERVER, "watch_to").dropDuplicates()
    of_all = F.col("of_cluster").isNull() | (F.col("of_cluster") == F.col("cluster"))
    blind_for = whose.join(periods, on=list(OBSERVER), how="inner").filter(of_all)
    nothing = F.lit(None).cast("long")
    begin = _mark(F.col("from_us"), BEGINS, F.col("from_us"))
    end = _mark(F.col("to_us"), ENDS, nothing)
    both = blind_for.select(*INSTANCE, *OBSERVER, "why", F.inline(F.array(begin, end)))
    over = _mark(F.col("watch_to"), BEGINS, F.col("watch_to"))
    lives = whose.select(*INSTANCE, *OBSERVER, F.lit(_OVER).alias("why"), F.inline(F.array(over)))
    return both.unionByName(lives).filter(F.col("at").isNotNull()).withColumn("seq", F.lit(0).cast("long"))


def _mark(at: Column, phase: int, since: Column) -> Column:
    return F.struct(at.alias("at"), F.lit(phase).alias("phase"), since.alias("since"))
