"""What the history recorded around each outage: how the broker went, and which process came back.

Of each outage the rows from shortly before its start (a broken stream is recorded before the removal) until shortly
after its end (a new process registers soon after it is up). The way it went is fixed when the outage begins; what came
back is read from each day's rows, so that a night computes what a backfill computes. An empty incarnation proves
nothing: neither that the process is the same nor that it is another.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import days

BEFORE = 300 * days.SECOND
"""A stream breaks, or a probe fails, at most this long before the broker is removed for it: the default expiry of two
minutes, and agents with a longer one."""
SETTLED = 60 * days.SECOND
"""A broker that is back registers its new process within this time, if it has one."""

LEFT, REFUSED, PROBE, STREAM_BROKEN, SILENCE = "LEFT", "REFUSED", "PROBE", "STREAM_BROKEN", "SILENCE"
SILENT = (STREAM_BROKEN, SILENCE)
"""The agent was not heard; the others it reported itself."""

NEW, SAME = "NEW", "SAME"

OUTAGE = (*INSTANCE, "start_at")
_BACK = ("REGISTERED", "REREGISTERED", "RESTARTED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RECOVERED")
_GOING = ("EXPIRED", "PROBE_FAILED", "UNREGISTERED", "SUSPECTED", "PROTECTED")
_TEXT = 160
"""Characters of a probe's text that are kept."""


def fact_rows(events: DataFrame) -> DataFrame:
    """The rows that are evidence, with the columns that the rest of this module reads.

    This is the one place that knows the history's format.
    """
    event, probe = F.col("event"), F.get_json_object("detail", "$.probe")
    failed = (event == "PROBE_FAILED") | F.col("reason").isin("PROBE", "REFUSED") & event.isin(*_GOING)
    named = events.filter(F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull())
    return named.filter(event.isin(*_BACK, *_GOING)).select(
        *INSTANCE,
        F.unix_micros("event_at").alias("at"),
        "seq",
        event.isin(*_BACK).alias("is_back"),
        F.coalesce(failed, F.lit(False)).alias("probe_failed"),
        F.coalesce(failed & (F.col("reason") == "REFUSED"), F.lit(False)).alias("refused"),
        F.coalesce((F.col("reason") == "STREAM_BROKEN") & event.isin(*_GOING), F.lit(False)).alias("stream_broken"),
        F.coalesce((F.col("reason") == "SILENCE") & (event == "EXPIRED"), F.lit(False)).alias("silent"),
        F.when(failed, F.substring(F.nullif(probe, F.lit("")), 1, _TEXT)).alias("probe"),
        *(F.nullif(F.col(name), F.lit("")).alias(name) for name in ("incarnation", "broker_version", "host")),
    )


def downs(intervals: DataFrame) -> DataFrame:
    """Each time a broker was down, planned or not, once: instance, ``start_at``, and its end where it has one."""
    down = intervals.filter(F.col("state") == "down")
    end = F.min(F.when(~F.col("open"), F.unix_micros("end_at")))
    return down.groupBy(*OUTAGE).agg(end.alias("end_us")).withColumn("start_us", F.unix_micros("start_at"))


def near_rows(rows: DataFrame, down: DataFrame) -> DataFrame:
    """Each row of `fact_rows` with the outage of `downs` that it belongs to.

    ``went``: it was written before the outage or while it lasted. A row between two outages may belong to both.
    """
    point = F.struct("start_us", "end_us", "start_at")
    marks = down.select(*INSTANCE, F.col("start_us").alias("at"), F.lit(1).alias("kind"), point.alias("down"))
    both = rows.withColumn("kind", F.lit(0)).unionByName(marks, allowMissingColumns=True)
    # A removal at the start itself is what began the outage.
    story, before = ("at", "kind", "seq"), (Window.unboundedPreceding, -1)
    forwards = Window.partitionBy(*INSTANCE).orderBy(*story).rowsBetween(*before)
    # Sorted once more: a frame that ends with the partition would cost the square of its rows.
    backwards = Window.partitionBy(*INSTANCE).orderBy(*map(F.desc, story)).rowsBetween(*before)
    placed = both.withColumns(
        {
            "last": F.last("down", ignorenulls=True).over(forwards),
            "next": F.last("down", ignorenulls=True).over(backwards),
        }
    ).filter("kind = 0")
    at = F.col("at")
    # Of an outage that has not ended, all that follows belongs to it.
    is_of_last = F.coalesce(at <= F.col("last.end_us") + SETTLED, F.col("last").isNotNull())
    is_over = F.col("last").isNull() | F.coalesce(at >= F.col("last.end_us"), F.lit(False))
    is_of_next = (F.col("next.start_us") - at <= BEFORE) & is_over
    of_last = F.when(is_of_last, F.struct(F.col("last").alias("of"), F.lit(False).alias("is_before")))
    of_next = F.when(is_of_next, F.struct(F.col("next").alias("of"), F.lit(True).alias("is_before")))
    each = placed.select("*", F.explode(F.array_compact(F.array(of_last, of_next))).alias("each"))
    went = F.col("each.is_before") | F.coalesce(at < F.col("each.of.end_us"), F.lit(True))
    return each.select(
        *rows.columns,
        F.col("each.of.start_at").alias("start_at"),
        F.col("each.of.start_us").alias("start_us"),
        F.col("each.of.end_us").alias("end_us"),
        F.col("each.is_before").alias("is_before"),
        went.alias("went"),
    )


def how_it_went(near: DataFrame) -> DataFrame:
    """Of each outage: ``signal``, ``probe``, and what the broker was before. Rows of the outage's first day alone."""
    first_day = days.day_of(F.col("start_us"))
    rows = near.filter((days.day_of(F.col("at")) <= first_day) & F.col("went"))
    order = F.struct("at", "seq")

    def last(name: str) -> Column:
        known = F.col("is_before") & F.col(name).isNotNull()
        return F.max_by(name, F.when(known, order)).alias(f"{name}_before")

    facts = rows.groupBy(*OUTAGE).agg(
        *(F.bool_or(name).alias(name) for name in ("refused", "probe_failed", "stream_broken", "silent")),
        F.min_by("probe", F.when(F.col("probe").isNotNull(), order)).alias("probe"),
        *map(last, ("incarnation", "broker_version", "host")),
    )
    signal = (
        F.when(F.col("refused"), REFUSED)
        .when(F.col("probe_failed"), PROBE)
        .when(F.col("stream_broken"), STREAM_BROKEN)
        .when(F.col("silent"), SILENCE)
    )
    return facts.select(
        *OUTAGE,
        signal.alias("signal"),
        "probe",
        "incarnation_before",
        F.col("broker_version_before").alias("version_before"),
        F.col("host_before").alias("host"),
    )


def what_came_back(near: DataFrame) -> DataFrame:
    """Of each outage and day ``dt``: the ``incarnations`` and ``versions`` recorded from its start on.

    ``returned``: the incarnations of rows with which the broker came back, or that followed.
    """
    rows = near.filter(~F.col("is_before")).withColumn("dt", days.day_of(F.col("at")))
    back = F.col("is_back") & F.coalesce(F.col("at") >= F.col("end_us"), F.lit(False))
    return rows.groupBy("dt", *OUTAGE).agg(
        F.sort_array(F.collect_set("incarnation")).alias("incarnations"),
        F.sort_array(F.collect_set("broker_version")).alias("versions"),
        F.sort_array(F.collect_set(F.when(back, F.col("incarnation")))).alias("returned"),
    )


def early_rows(events: DataFrame, first_day: date) -> DataFrame:
    """Of the day before the first: the rows that may belong to an outage that begins just after midnight."""
    return events.filter(F.col("event_at") >= F.timestamp_micros(F.lit(days.start_of(first_day) - BEFORE)))
