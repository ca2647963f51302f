"""The monitoring window of each run of a name server, and its missing rows.

A window lasts from NAMESRV_READY to NAMESRV_STOPPED, or to the last row of a run that was killed. If the READY row is
missing, it begins with the first row after NAMESRV_STARTED. Rows written during the warm-up count from READY. Intervals
are cut and censored at the last row of a killed run: time without monitoring is not an outage.

A hole lies between two rows of a run if a sequence number between them is missing, or if the run writes NAMESRV_ALIVE
rows regularly and wrote none for longer than `is_silence` allows. The interval is the one stated by NAMESRV_STARTED
(``detail.alive_seconds``; 0: none), else the median of a day's. Runs without it, such as those of an import, are judged
by their sequence numbers alone.
"""

from __future__ import annotations

from datetime import date, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman.history.topic_history import SILENT_INTERVALS
from pointsman_report.schemas import OBSERVER
from pointsman_report.schemas.liveness_tables import OBSERVER_WINDOWS, SEQ_GAP
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.history_rows import observer_times
from pointsman_report.transforms.utc_days import lit_day

SILENCE_TO_MIDNIGHT = 150 * utc_days.SECOND
"""A name server writes a row every minute: a run whose last row is this close to midnight counts as running at
midnight."""

MIN_ALIVE_ROWS, LONGEST_ALIVE = 6, 120 * utc_days.SECOND
"""Without a stated interval: at least this many NAMESRV_ALIVE rows on a day, with a median interval of at most this."""

BLOCK = 50_000
"""Sequence numbers that are searched for gaps together."""
MAX_GAPS = 2_000
"""Holes kept per day and observer; the last one covers all further ones. ``rows_missing`` is exact."""


def observer_windows(
    events: DataFrame, near: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """The monitoring windows. One row per observer and day on which it ran; key: ``dt``, observer.

    ``near``: the rows of the days and of the day after the last, as far as they are known: they show whether a run
    continued, and what it lost over midnight. ``yesterday`` holds the windows of the day before the first.
    """
    runs = _runs(observer_times(near), yesterday, first_day=first_day, last_day=last_day)
    day_after = last_day + timedelta(days=1)
    ran_on = F.explode(utc_days.days_between(F.col("first_on"), F.least("last_on", lit_day(day_after))))
    each_day = runs.select("*", ran_on.alias("dt"))
    rows = _with_first_row_after(events, near, day_after)
    counted = each_day.join(_rows_by_day(rows, yesterday), on=["dt", *OBSERVER], how="left").join(
        _alive_by_day(events), on=["dt", *OBSERVER], how="left"
    )
    so_far = Window.partitionBy(*OBSERVER).orderBy("dt").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    alive_us = F.coalesce("carried_alive_us", F.first("day_alive_us", ignorenulls=True).over(so_far))
    windows = _with_holes(counted.withColumn("alive_us", alive_us)).filter(F.col("dt") <= lit_day(last_day))
    to_us = F.least("end_us", utc_days.ends(F.col("dt")))
    return windows.select(
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
        "rows_missing",
        _bounded(F.col("gaps")).alias("gaps"),
        utc_days.seconds(F.col("alive_us")).alias("alive_seconds"),
    ).select(*OBSERVER_WINDOWS.columns)


def unseen_holes(near: DataFrame, windows: DataFrame, *, day: date) -> DataFrame:
    """The runs whose first row after ``day`` shows that their window of the day is wrong: they had not ended, or a hole
    began at their last row.

    ``near``: the rows of the day and of the next one as they are now; ``windows``: those of the day as computed before.

    One row per run; key: observer.
    """
    of_run = near.groupBy(*OBSERVER).agg(
        F.min_by(
            F.struct("seq", "event_at"), F.when(F.col("dt") == lit_day(day + timedelta(days=1)), F.col("seq"))
        ).alias("next"),
        F.count_if(F.col("dt") > lit_day(day)).alias("rows_after"),
        F.bool_or((F.col("event") == "NAMESRV_STOPPED") & (F.col("dt") == lit_day(day))).alias("stopped"),
    )
    runs = windows.join(of_run.filter("rows_after > 0 and not stopped"), on=list(OBSERVER), how="inner")
    from_seq = (F.col("last_seq") + 1).alias("from_seq")
    to_seq = (F.col("next.seq") - 1).alias("to_seq")
    hole = F.struct(from_seq, to_seq, F.col("last_row_at").alias("after_at"), F.col("next.event_at").alias("before_at"))
    alive_us = F.round(F.col("alive_seconds") * utc_days.SECOND).cast("long")
    is_hole = has_missing_rows(hole) | is_silence(hole, alive_us)
    is_listed = F.exists("gaps", lambda gap: gap["from_seq"] == F.col("last_seq") + 1)
    return runs.filter(~F.col("open") | (is_hole & ~is_listed)).select(*OBSERVER)


def has_missing_rows(gap: Column) -> Column:
    """Whether rows are missing in a hole; a silence has none."""
    return gap["to_seq"] >= gap["from_seq"]


def is_silence(gap: Column, alive_us: Column) -> Column:
    """Whether the observer was silent in a hole: missing rows explain `SILENT_INTERVALS` each, and none as many."""
    rows = gap["to_seq"] - gap["from_seq"] + F.lit(2)
    length = F.unix_micros(gap["before_at"]) - F.unix_micros(gap["after_at"])
    return F.coalesce((alive_us > 0) & (length > rows * alive_us * SILENT_INTERVALS), F.lit(False))


def _with_first_row_after(events: DataFrame, near: DataFrame, day_after: date) -> DataFrame:
    """The rows of the days, and the first row of each run on the day after them."""
    columns = ("dt", *OBSERVER, "seq", "event_at", "uptime_ms")
    first = F.min_by(F.struct("seq", "event_at", "uptime_ms"), "seq").alias("first")
    after = near.filter(F.col("dt") == lit_day(day_after)).groupBy("dt", *OBSERVER).agg(first)
    return events.select(*columns).unionByName(after.select("dt", *OBSERVER, "first.*"))


def _alive_by_day(events: DataFrame) -> DataFrame:
    """``day_alive_us``: the interval of NAMESRV_ALIVE rows, as stated on that day or measured."""
    own = events.filter(F.col("event").isin("NAMESRV_STARTED", "NAMESRV_ALIVE"))
    stated = F.get_json_object("detail", "$.alive_seconds").try_cast("double")
    is_alive = F.col("event") == "NAMESRV_ALIVE"
    at = F.unix_micros("event_at")
    before = F.lag(F.when(is_alive, at)).over(Window.partitionBy("dt", *OBSERVER).orderBy("seq"))
    timed = own.select("dt", *OBSERVER, stated.alias("stated"), is_alive.alias("alive"), (at - before).alias("step"))
    measured = timed.groupBy("dt", *OBSERVER).agg(
        F.max(F.when(~F.col("alive") & F.col("stated").between(0.0, 86_400.0), F.col("stated"))).alias("stated"),
        F.count_if("alive").alias("rows"),
        F.percentile(F.when(F.col("alive"), F.col("step")), F.lit(0.5)).alias("median"),
    )
    regular = (F.col("rows") >= MIN_ALIVE_ROWS) & F.col("median").between(utc_days.SECOND, LONGEST_ALIVE)
    known = F.coalesce(F.col("stated") * utc_days.SECOND, F.when(regular, F.col("median")))
    return measured.select("dt", *OBSERVER, F.round(known).cast("long").alias("day_alive_us"))


def _with_holes(counted: DataFrame) -> DataFrame:
    """Add ``gaps``, the holes that lie on the day or reach into it, and ``rows_missing``."""
    start, end = utc_days.starts(F.col("dt")), utc_days.ends(F.col("dt"))
    later = Window.partitionBy(*OBSERVER).orderBy("dt").rowsBetween(1, Window.unboundedFollowing)

    def is_hole(gap: Column) -> Column:
        return has_missing_rows(gap) | is_silence(gap, F.col("alive_us"))

    def began_before(gap: Column, moment: Column) -> Column:
        return F.coalesce(F.unix_micros(gap["after_at"]) < moment, F.lit(False))

    empty = F.array().cast(OBSERVER_WINDOWS.schema["gaps"].dataType)
    held = counted.withColumn("steps", F.coalesce("steps", empty))
    crossing = F.filter("steps", lambda gap: began_before(gap, start))
    # A run whose rows are missing for days has the hole on each of them.
    over_midnight = held.withColumns({"into": crossing, "within": F.filter("steps", lambda g: ~began_before(g, start))})
    next_into = F.first(F.when(F.size("into") > 0, F.col("into")), ignorenulls=True).over(later)
    out = F.filter(F.coalesce(next_into, empty), lambda gap: began_before(gap, end))
    of_day = over_midnight.withColumn("out", out).withColumns(
        {name: F.filter(name, is_hole) for name in ("into", "within", "out")}
    )
    # Counted on the day on which the hole began; by the first of these days if no day before knew of it.
    is_first = F.row_number().over(Window.partitionBy(*OBSERVER).orderBy("dt")) == 1
    known = of_day.withColumn("is_first", is_first)
    listed_before = F.transform("carried_gaps", lambda gap: gap["from_seq"])

    def is_counted(gap: Column) -> Column:
        is_known = F.coalesce(F.array_contains(listed_before, gap["from_seq"]), F.lit(False))
        return ~began_before(gap, start) | (F.col("is_first") & ~is_known)

    every = F.array_distinct(F.sort_array(F.concat("into", "within", "out")))
    missing = F.aggregate(
        F.filter(every, is_counted),
        F.lit(0).cast("long"),
        lambda sum_, gap: sum_ + gap["to_seq"] - gap["from_seq"] + F.lit(1),
    )
    return known.withColumns({"rows_missing": missing, "gaps": every})


def _runs(times: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """One row per observer: ``from_us``, ``end_us``, and the days ``first_on`` to ``last_on`` it appears in."""
    carried = yesterday.filter("open").select(
        *OBSERVER,
        F.unix_micros("from_at").alias("carried_from_us"),
        F.unix_micros("last_row_at").alias("carried_last_us"),
        F.col("last_seq").alias("carried_seq"),
        F.col("gaps").alias("carried_gaps"),
        F.round(F.col("alive_seconds") * utc_days.SECOND).cast("long").alias("carried_alive_us"),
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


def _rows_by_day(rows: DataFrame, yesterday: DataFrame) -> DataFrame:
    """Rows of each observer and day; ``steps``: the missing numbers and the long silences before a row of the day."""
    # Of a run that seemed to have ended, too: its next row shows what is missing.
    carried = yesterday.select(
        *OBSERVER, F.col("last_seq").alias("carried_seq"), F.col("last_row_at").alias("carried_at")
    )
    # A few runs have nearly all rows: one task per run would be badly skewed.
    block = ("dt", *OBSERVER, "block")
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
    gap = F.struct(
        (F.col("previous") + 1).alias("from_seq"),
        (F.col("seq") - 1).alias("to_seq"),
        "after_at",
        F.col("event_at").alias("before_at"),
    )
    is_missing = F.col("seq") > F.col("previous") + 1
    silence = F.unix_micros("event_at") - F.unix_micros("after_at")
    is_long = (F.col("seq") == F.col("previous") + 1) & (silence > SILENCE_TO_MIDNIGHT)
    return measured.groupBy("dt", *OBSERVER).agg(
        F.count("*").alias("rows"),
        F.max("seq").alias("day_last_seq"),
        F.max("event_at").alias("day_last_row_at"),
        F.sort_array(F.collect_list(F.when(is_missing | F.coalesce(is_long, F.lit(False)), gap))).alias("steps"),
    )


def _bounded(gaps: Column) -> Column:
    """Limit the holes to `MAX_GAPS`; all rows after the start of the last one count as missing."""
    first, last = F.get(gaps, F.lit(MAX_GAPS - 1)), F.get(gaps, F.size(gaps) - 1)
    rest = F.struct(first["from_seq"], last["to_seq"], first["after_at"], last["before_at"])
    bounded = F.concat(F.slice(gaps, 1, MAX_GAPS - 1), F.array(rest.cast(SEQ_GAP)))
    return F.when(F.size(gaps) > MAX_GAPS, bounded).otherwise(gaps)
