"""Removals that no row tells of: a broker that its observer held up, and that the checkpoint of a day leaves out.

Only rows that were lost can explain that. When and why the broker went nobody knows, so from the checkpoint on that
observer has no opinion of it, until it hears of it anew.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE, OBSERVER
from spark_jobs.transforms import days
from spark_jobs.transforms.liveness.opinions import LEFT_OUT, in_order, of_a_replica

LIVED_ON = 120 * days.SECOND
"""A name server that wrote so long after the last row of a checkpoint has written all of it."""

_EACH = (*INSTANCE, *OBSERVER)


def any_lost(windows: DataFrame, state: DataFrame) -> bool:
    """Whether rows are missing, on the days or behind what was carried to them."""
    lost_before = state.filter(F.exists("opinions", lambda held: F.coalesce(held["rows_lost"], F.lit(False))))
    lost = windows.filter("rows_missing > 0").select(F.lit(1)).unionByName(lost_before.select(F.lit(1)))
    return not lost.isEmpty()


def with_left_out(opinions: DataFrame, rare: DataFrame, windows: DataFrame) -> DataFrame:
    """`opinions` with an opinion ``none`` of each broker that a whole checkpoint leaves out."""
    gaps = windows.select(*OBSERVER, F.inline("gaps"))
    checkpoints = F.broadcast(_whole_checkpoints(rare, gaps))
    told = opinions.join(checkpoints, on=list(OBSERVER), how="inner").filter(F.col("seq") < F.col("first"))
    row = F.struct(*(name for name in opinions.columns if name not in _EACH))
    held = told.groupBy(*_EACH, "day", "first", "told_us").agg(F.max_by(row, "seq").alias("by"))
    of_day = rare.filter(_of_checkpoint()).select(F.col("dt").alias("day"), *_EACH)
    absent = held.filter(F.col("by.opinion") == "up").join(of_day, on=["day", *_EACH], how="left_anti")
    # The checkpoints of later days leave it out as well.
    nth = F.row_number().over(Window.partitionBy(*_EACH, "by.seq").orderBy("first"))
    lost = F.broadcast(gaps.withColumnsRenamed({name: f"of_{name}" for name in OBSERVER}))
    between = (F.col("from_seq") > F.col("by.seq")) & (F.col("to_seq") < F.col("first"))
    of_it = (F.col("of_node") == F.col("node")) & (F.col("of_boot_id") == F.col("boot_id"))
    by_gap = absent.join(lost, on=of_it & between, how="left_semi")
    gone = absent.filter("by.rows_lost").unionByName(by_gap).distinct().withColumn("nth", nth).filter("nth = 1")
    left_out = {
        "seq": F.col("first"),
        "at": F.col("told_us"),
        "event": F.lit(LEFT_OUT),
        "reason": F.lit(None).cast("string"),
        "sign_us": F.lit(None).cast("long"),
        "opinion": F.lit("none"),
        "rows_lost": F.lit(False),
        "lost_on": F.lit(None).cast("date"),
        "carried": F.lit(False),
    }
    added = gone.select(*_EACH, "first", "told_us", "by.watch_from", "by.watch_to").withColumns(left_out)
    both = opinions.drop("next_at").unionByName(added.drop("first", "told_us"))
    return both.withColumn("next_at", F.lead("at").over(in_order())).select(*opinions.columns)


def _of_checkpoint() -> Column:
    return (F.col("event") == "CHECKPOINT") & (F.col("reason") == "DAY") & of_a_replica()


def _whole_checkpoints(rare: DataFrame, gaps: DataFrame) -> DataFrame:
    """``first`` number and time of each checkpoint of a day in and beside which no number is missing."""
    at, is_alive = F.unix_micros("event_at"), F.col("event") == "NAMESRV_ALIVE"
    of_days = rare.groupBy(F.col("dt").alias("day"), *OBSERVER).agg(
        F.min(F.when(_of_checkpoint(), F.col("seq"))).alias("first"),
        F.max(F.when(_of_checkpoint(), F.col("seq"))).alias("last"),
        F.min(F.when(_of_checkpoint(), at)).alias("told_us"),
        F.max(F.when(_of_checkpoint(), at)).alias("last_us"),
        F.max(F.when(is_alive, at)).alias("alive_us"),
    )
    lived_on = of_days.filter(F.col("alive_us") - F.col("last_us") >= LIVED_ON)
    beside = (F.col("to_seq") >= F.col("first") - 1) & (F.col("from_seq") <= F.col("last") + 1)
    torn = lived_on.join(F.broadcast(gaps), on=list(OBSERVER), how="inner").filter(beside)
    whole = lived_on.join(torn.select("day", *OBSERVER), on=["day", *OBSERVER], how="left_anti")
    return whole.select("day", *OBSERVER, "first", "told_us")
