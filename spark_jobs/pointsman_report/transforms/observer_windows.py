"""The monitoring window of each run of a name server, and its missing rows.

A window lasts from NAMESRV_READY to NAMESRV_STOPPED, or to the last row of a run that was killed. If the READY row is
missing, it begins with the first row after NAMESRV_STARTED. Rows written during the warm-up count from READY. Intervals
are cut and censored at the last row of a killed run: time without monitoring is not an outage.
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
"""A name server writes a row every minute: a run whose last row is this close to midnight counts as running at
midnight."""

BLOCK = 50_000
"""Sequence numbers that are searched for gaps together."""
MAX_GAPS = 2_000
"""Gaps kept per day and observer; the last one covers all further gaps. ``rows_missing`` is exact."""


def observer_windows(
    events: DataFrame, times: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """A row for each observer and each day on which it ran.

    ``times`` is `history_rows.observer_times`; ``yesterday`` holds the windows of the day before the first.
    """
    runs = _runs(times, yesterday, first_day=first_day, last_day=last_day)
    ran_on = F.explode(utc_days.days_between(F.col("first_on"), F.least("last_on", lit_day(last_day))))
    each_day = runs.select("*", ran_on.alias("dt"))
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


def _runs(times: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """One row per observer: ``from_us``, ``end_us``, and the days ``first_on`` to ``last_on`` it appears in."""
    carried = yesterday.filter("open").select(
        *OBSERVER,
        F.unix_micros("from_at").alias("carried_from_us"),
        F.unix_micros("last_row_at").alias("carried_last_us"),
        F.col("last_seq").alias("carried_seq"),
        F.lit(utc_days.start_of(first_day)).alias("carried_to_us"),
    )
    both = times.join(carried, on=list(OBSERVER), how="full")
    next_run = Window.partitionBy("node").orderBy(F.col("first_us").asc_nulls_first(), "boot_id")
    both = both.withColumn("next_run_us", F.lead("first_us").over(next_run))
    last_row_us = F.coalesce("last_us", "carried_last_us")
    # greatest() skips nulls: a carried run lasts at least until midnight.
    end_us = F.greatest(F.coalesce("stopped_us", _or_midnight(last_row_us)), F.col("carried_to_us"))
    from_us = F.coalesce("carried_from_us", "ready_us", "working_us")
    first_on = utc_days.day_of(F.coalesce("carried_to_us", "first_us"))
    runs = both.withColumns({"from_us": from_us, "end_us": end_us, "first_on": first_on})
    dated = runs.withColumn(
        "last_on", F.greatest(utc_days.day_of(F.col("end_us")), F.to_date(F.timestamp_micros("last_us")))
    )
    return dated.filter(F.col("first_on") <= lit_day(last_day))


def _or_midnight(last_us: Column) -> Column:
    midnight = utc_days.ends(utc_days.day_of(last_us))
    # The node's next run began before midnight, so this one had ended.
    followed = (F.col("next_run_us") > last_us) & (F.col("next_run_us") < midnight)
    near = midnight - last_us <= SILENCE_TO_MIDNIGHT
    return F.when(near & ~F.coalesce(followed, F.lit(False)), midnight).otherwise(last_us)


def _rows_by_day(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    """Rows of each observer and day, and the numbers missing between them and the day before's."""
    carried = yesterday.filter("open").select(
        *OBSERVER, F.col("last_seq").alias("carried_seq"), F.col("last_row_at").alias("carried_at")
    )
    # A few runs have nearly all rows: one task per run would be badly skewed.
    block = ("dt", *OBSERVER, "block")
    rows = events.select("dt", *OBSERVER, "seq", "event_at", "uptime_ms")
    numbered = rows.withColumn("block", F.floor(F.col("seq") / BLOCK))
    run = Window.partitionBy(*OBSERVER).orderBy("dt", "block").rowsBetween(Window.unboundedPreceding, -1)
    ends = numbered.groupBy(*block).agg(F.max("seq").alias("last"), F.max("event_at").alias("last_at"))
    blocks = ends.withColumns({"last_before": F.max("last").over(run), "at_before": F.max("last_at").over(run)})
    begun = blocks.drop("last", "last_at").join(carried, on=list(OBSERVER), how="left")
    marked = numbered.join(F.broadcast(begun), on=list(block), how="inner")
    by_seq = Window.partitionBy(*block).orderBy("seq")
    in_block = F.lag("seq").over(by_seq)
    after_at = F.coalesce(F.lag("event_at").over(by_seq), "at_before", "carried_at")
    # Rows before the first one seen are missing only if the run began on the same day; else they are older than this
    # history. A row without an uptime proves nothing about earlier rows.
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
    """Limit the gaps to `MAX_GAPS`; all rows after the start of the last one count as missing."""
    last = F.get(gaps, F.lit(MAX_GAPS - 1))
    rest = F.struct(last["from_seq"].alias("from_seq"), F.get(gaps, F.size(gaps) - 1)["to_seq"].alias("to_seq"))
    bounded = F.concat(
        F.slice(gaps, 1, MAX_GAPS - 1),
        F.array(F.struct(rest["from_seq"], rest["to_seq"], last["after_at"]).cast(SEQ_GAP)),
    )
    return F.when(F.size(gaps) > MAX_GAPS, bounded).otherwise(gaps)
