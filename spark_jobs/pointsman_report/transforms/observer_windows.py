"""When each life of a name server watched, and which of its rows never arrived.

A life watches from NAMESRV_READY to NAMESRV_STOPPED, or to its last row when it was killed. A life whose READY row is
lost watches from its first row of work. What a life said while it warmed up counts from READY on.
Intervals are cut and censored at the last row of a killed run: no outage follows from time without monitoring.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import OBSERVER
from pointsman_report.schemas.liveness_tables import OBSERVER_WINDOWS, SEQ_GAP
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.utc_days import lit_day

SILENCE_TO_MIDNIGHT = 150 * utc_days.SECOND
"""A name server writes a row a minute: one whose last row is this near to midnight counts as alive then."""

BLOCK = 50_000
"""Numbers of a life that are looked through together."""
MOST_GAPS = 2_000
"""Gaps kept one by one a day and observer, the last of them with all that follow; ``rows_missing`` counts exactly."""


def observer_windows(
    events: DataFrame, heard: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """A row for each observer and each day of its life within the days.

    ``heard`` is `history_rows.heard`; ``yesterday`` holds the windows of the day before the first.
    """
    lives = _lives(heard, yesterday, first_day=first_day, last_day=last_day)
    alive_on = F.explode(utc_days.days_between(F.col("first_on"), F.least("last_on", lit_day(last_day))))
    each_day = lives.select("*", alive_on.alias("dt"))
    counted = each_day.join(_rows_by_day(events, yesterday), on=["dt", *OBSERVER], how="left")
    so_far = Window.partitionBy(*OBSERVER).orderBy("dt").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    to_us = F.least("end_us", utc_days.ends(F.col("dt")))
    windows = counted.select(
        "dt",
        *OBSERVER,
        F.timestamp_micros(F.when(F.col("from_us") < utc_days.ends(F.col("dt")), F.col("from_us"))).alias("from_at"),
        F.timestamp_micros(to_us).alias("to_at"),
        (F.col("end_us") >= utc_days.ends(F.col("dt"))).alias("open"),
        F.coalesce(
            F.last("day_last_row_at", ignorenulls=True).over(so_far), F.timestamp_micros("carried_last_us")
        ).alias("last_row_at"),
        F.coalesce(F.last("day_last_seq", ignorenulls=True).over(so_far), "carried_seq").alias("last_seq"),
        F.coalesce("rows", F.lit(0)).cast("long").alias("rows"),
        F.coalesce("rows_missing", F.lit(0)).cast("long").alias("rows_missing"),
        F.coalesce("gaps", F.array().cast(f"array<{SEQ_GAP.simpleString()}>")).alias("gaps"),
    )
    return windows.select(*OBSERVER_WINDOWS.fieldNames())


def _lives(heard: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """One row an observer: ``from_us``, ``end_us``, and the days ``first_on`` to ``last_on`` it appears in."""
    carried = yesterday.filter("open").select(
        *OBSERVER,
        F.unix_micros("from_at").alias("carried_from_us"),
        F.unix_micros("last_row_at").alias("carried_last_us"),
        F.col("last_seq").alias("carried_seq"),
        F.lit(utc_days.start_of(first_day)).alias("carried_to_us"),
    )
    both = heard.join(carried, on=list(OBSERVER), how="full")
    next_life = Window.partitionBy("node").orderBy(F.col("first_us").asc_nulls_first(), "boot_id")
    both = both.withColumn("next_life_us", F.lead("first_us").over(next_life))
    silent_since = F.coalesce("last_us", "carried_last_us")
    # greatest() skips nulls: a carried life lasts at least to the midnight it was carried over.
    end_us = F.greatest(F.coalesce("stopped_us", _or_midnight(silent_since)), F.col("carried_to_us"))
    from_us = F.coalesce("carried_from_us", "ready_us", "working_us")
    first_on = utc_days.day_of(F.coalesce("carried_to_us", "first_us"))
    lives = both.withColumns({"from_us": from_us, "end_us": end_us, "first_on": first_on})
    dated = lives.withColumn(
        "last_on", F.greatest(utc_days.day_of(F.col("end_us")), F.to_date(F.timestamp_micros("last_us")))
    )
    return dated.filter(F.col("first_on") <= lit_day(last_day))


def _or_midnight(last_us: Column) -> Column:
    midnight = utc_days.ends(utc_days.day_of(last_us))
    # The node's next life began before midnight: this one was over.
    followed = (F.col("next_life_us") > last_us) & (F.col("next_life_us") < midnight)
    near = midnight - last_us <= SILENCE_TO_MIDNIGHT
    return F.when(near & ~F.coalesce(followed, F.lit(False)), midnight).otherwise(last_us)


def _rows_by_day(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    """Rows of each observer and day, and the numbers missing between them and the day before's."""
    carried = yesterday.filter("open").select(
        *OBSERVER, F.col("last_seq").alias("carried_seq"), F.col("last_row_at").alias("carried_at")
    )
    # Few lives have all rows: with a task for each some would have much to do and the others nothing.
    block = ("dt", *OBSERVER, "block")
    rows = events.select("dt", *OBSERVER, "seq", "event_at", "uptime_ms")
    numbered = rows.withColumn("block", F.floor(F.col("seq") / BLOCK))
    life = Window.partitionBy(*OBSERVER).orderBy("dt", "block").rowsBetween(Window.unboundedPreceding, -1)
    ends = numbered.groupBy(*block).agg(F.max("seq").alias("last"), F.max("event_at").alias("last_at"))
    blocks = ends.withColumns({"last_before": F.max("last").over(life), "at_before": F.max("last_at").over(life)})
    begun = blocks.drop("last", "last_at").join(carried, on=list(OBSERVER), how="left")
    marked = numbered.join(F.broadcast(begun), on=list(block), how="inner")
    by_seq = Window.partitionBy(*block).orderBy("seq")
    in_block = F.lag("seq").over(by_seq)
    after_at = F.coalesce(F.lag("event_at").over(by_seq), "at_before", "carried_at")
    # Rows below the first seen are lost only if that life began on the same day; else they are older than this history.
    # A row that does not say how long its life has lasted says nothing of what stood before it.
    booted_us = F.unix_micros("event_at") - F.try_multiply("uptime_ms", F.lit(1_000))
    unseen = F.when(utc_days.day_of(booted_us) == F.col("dt"), F.lit(0)).otherwise(F.col("seq") - 1)
    previous = F.coalesce(F.greatest(in_block, "last_before", "carried_seq"), unseen)
    measured = marked.withColumns({"previous": previous, "after_at": after_at})
    gap = F.struct((F.col("previous") + 1).alias("from_seq"), (F.col("seq") - 1).alias("to_seq"), "after_at")
    missing = F.greatest(F.col("seq") - F.col("previous") - 1, F.lit(0))
    return measured.groupBy("dt", *OBSERVER).agg(
        F.count("*").alias("rows"),
        F.max("seq").alias("day_last_seq"),
        F.max("event_at").alias("day_last_row_at"),
        F.sum(missing).alias("rows_missing"),
        _bounded(F.sort_array(F.collect_list(F.when(missing > 0, gap)))).alias("gaps"),
    )


def _bounded(gaps: Column) -> Column:
    """At most `MOST_GAPS`; rows between the gaps that the last of them holds count as missing to whoever asks."""
    last = F.get(gaps, F.lit(MOST_GAPS - 1))
    rest = F.struct(last["from_seq"].alias("from_seq"), F.get(gaps, F.size(gaps) - 1)["to_seq"].alias("to_seq"))
    bounded = F.concat(
        F.slice(gaps, 1, MOST_GAPS - 1),
        F.array(F.struct(rest["from_seq"], rest["to_seq"], last["after_at"]).cast(SEQ_GAP)),
    )
    return F.when(F.size(gaps) > MOST_GAPS, bounded).otherwise(gaps)
