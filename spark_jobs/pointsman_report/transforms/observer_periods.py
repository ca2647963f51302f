"""Periods recorded by name servers, by day: their pauses, expiry guards, maintenance windows.

`blind_periods`: an observer's pauses and silences, and the periods in which its expiry guard of a cluster was on.

A paused name server receives nothing, so it has no vote on any broker in that time (`votes`). While a guard is on, the
state in each row still counts (`opinions`); the period is shown in the report, and late heartbeats in it are not
counted against brokers.

A guard is on from the first GUARD_ON to the next GUARD_OFF of that cluster in that run of the name server, whatever
their reasons; LIMIT and a changed mode only repeat that it is on. An active guard prevents every expiry except in a
maintenance window or with strong evidence, so any other EXPIRED ends a guard whose GUARD_OFF is missing. A pause is
recorded only when it ends, and a finished day is not rewritten: a pause over midnight counts from midnight, but the
silence of a name server that writes a row each minute counts from its last row (`observer_windows`).

`maintenance_windows`: for the report; whether an outage is planned is recorded in each row (``planned``).

A window ends at its end time, when an operator ends it, or when that node gets another window for the same broker or
cluster.

`guard_periods`: when the expiry guard of a cluster was on, at which name server, and how many brokers it protected.

A period lasts from the first GUARD_ON to the next GUARD_OFF of that cluster in that run of the name server; GUARD_ON
again (reason LIMIT, a changed mode) continues it. It ends with the run at the latest.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.flapping_tables import GUARD_PERIODS
from pointsman_report.schemas.liveness_tables import BLIND_PERIODS, MAINTENANCE_WINDOWS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.observer_windows import is_silence
from pointsman_report.transforms.utc_days import lit_day

PAUSED, SILENT, GUARD = "PAUSED", "SILENT", "GUARD"
LONGEST_PAUSE_SECONDS = 86_400.0
_PERIOD = (*OBSERVER, "cluster", "why", "from_us", "to_us")
DEFAULT_WINDOW_SECONDS = 86_400.0
"""Length of a window without a recorded length: one that is never ended must not hide outages for good."""

LONGEST_SECONDS = 1e9
_WATCH = (*OBSERVER, "cluster")
_FACTS = ("mode", "lost", "baseline", "up")


def blind_periods(
    events: DataFrame, windows: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """The times in which opinions of an observer do not count.

    ``windows`` are the observer windows of the days, ``yesterday`` the blind periods of the day before the first.

    One row per period and day that it touches; key: ``dt``, observer, ``from_at``, ``cluster``, ``why``.
    """
    ended = windows.groupBy(*OBSERVER).agg(F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("run_end"))
    periods = _guards(events, yesterday).unionByName(_pauses(events)).join(F.broadcast(ended), on=list(OBSERVER))
    cut = periods.withColumn("to_us", F.least("to_us", "run_end")).filter(_lasts())
    daily = by_day(cut, first_day=first_day, last_day=last_day).select(*BLIND_PERIODS.columns)
    return daily.unionByName(_silences(windows))


def _silences(windows: DataFrame) -> DataFrame:
    alive_us = F.round(F.col("alive_seconds") * utc_days.SECOND).cast("long")
    silent = F.filter("gaps", lambda gap: is_silence(gap, alive_us))
    each = windows.select("dt", *OBSERVER, F.inline(silent))
    ends = utc_days.ends(F.col("dt"))
    return each.withColumns(
        {
            "cluster": F.lit(None).cast("string"),
            "why": F.lit(SILENT),
            "from_at": F.col("after_at"),
            "to_at": F.timestamp_micros(F.least(F.unix_micros("before_at"), ends)),
            "open": F.unix_micros("before_at") >= ends,
        }
    ).select(*BLIND_PERIODS.columns)


def by_day(periods: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Split periods (``from_us``, ``to_us`` or null) by day: ``from_at``, ``to_at``, ``open``.

    A period that ends at midnight is open at the end of the day: the rows of the day do not show its end.

    One row per period and day that it touches; key: that of the periods, ``dt``.
    """
    first = F.greatest(utc_days.day_of(F.col("from_us")), lit_day(first_day))
    last = F.least(F.coalesce(utc_days.day_of(F.col("to_us")), lit_day(last_day)), lit_day(last_day))
    each = periods.select("*", F.explode(utc_days.days_between(first, last)).alias("dt"))
    ends = utc_days.ends(F.col("dt"))
    return each.withColumns(
        {
            "from_at": F.timestamp_micros("from_us"),
            "to_at": F.timestamp_micros(F.least("to_us", ends)),
            "open": F.col("to_us").isNull() | (F.col("to_us") >= ends),
        }
    )


def _lasts() -> Column:
    return F.col("to_us").isNull() | (F.col("to_us") > F.col("from_us"))


def _guards(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    evidence = F.coalesce(F.get_json_object("detail", "$.evidence"), F.lit("WEAK"))
    # The end of a maintenance window changes no route.
    expired = (F.col("event") == "EXPIRED") & F.get_json_object("detail", "$.outlived_window").isNull()
    unguarded = expired & ~F.coalesce("planned", F.lit(False)) & (evidence != "STRONG")
    turned = events.filter((F.col("event").isin("GUARD_ON", "GUARD_OFF") | unguarded) & F.col("cluster").isNotNull())
    switches = turned.select(
        *OBSERVER, "cluster", F.unix_micros("event_at").alias("at"), "seq", (F.col("event") == "GUARD_ON").alias("on")
    )
    carried = yesterday.filter(F.col("open") & (F.col("why") == GUARD)).select(
        *OBSERVER,
        "cluster",
        F.unix_micros("from_at").alias("at"),
        F.lit(0).cast("long").alias("seq"),
        F.lit(True).alias("on"),
    )
    timeline = Window.partitionBy(*OBSERVER, "cluster").orderBy("at", "seq")
    switched = switches.unionByName(carried).withColumn("was_on", F.lag("on", 1, False).over(timeline))
    turns = switched.filter(F.col("on") != F.col("was_on")).withColumn("to_us", F.lead("at").over(timeline))
    on = turns.filter("on").withColumns({"why": F.lit(GUARD), "from_us": F.col("at")})
    return on.select(*_PERIOD)


def _pauses(events: DataFrame) -> DataFrame:
    seconds = F.get_json_object("detail", "$.seconds").try_cast("double")
    paused = events.filter((F.col("event") == "NAMESRV_PAUSED") & seconds.between(0.0, LONGEST_PAUSE_SECONDS))
    at = F.unix_micros("event_at")
    pauses = paused.select(
        *OBSERVER, at.alias("to_us"), "seq", F.round(seconds * utc_days.SECOND).cast("long").alias("us")
    )
    before = F.lag("to_us").over(Window.partitionBy(*OBSERVER).orderBy("to_us", "seq"))
    # greatest() skips the null of the first; two pauses never overlap.
    began = F.greatest(F.col("to_us") - F.col("us"), utc_days.starts(utc_days.day_of(F.col("to_us"))), before)
    none = F.lit(None).cast("string")
    return pauses.withColumns({"from_us": began, "cluster": none, "why": F.lit(PAUSED)}).select(*_PERIOD)


def maintenance_windows(events: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """The maintenance windows; ``yesterday``: those of the day before the first.

    One row per window and day that it touches; key: ``dt``, ``node``, ``cluster``, ``broker_name``, ``from_at``.
    """
    recorded = events.filter(F.col("event").isin("MAINTENANCE_ON", "MAINTENANCE_OFF") & F.col("cluster").isNotNull())
    at = F.unix_micros("event_at")
    length = F.get_json_object("detail", "$.seconds").try_cast("double")
    bounded = F.when(length.between(0.0, LONGEST_SECONDS), length).otherwise(F.lit(DEFAULT_WINDOW_SECONDS))
    until = at + F.round(bounded * utc_days.SECOND).cast("long")
    announced = recorded.select(
        "node",
        "boot_id",
        "seq",
        "cluster",
        "broker_name",
        at.alias("from_us"),
        F.when(F.col("event") == "MAINTENANCE_ON", until).alias("until_us"),
    )
    carried = yesterday.filter("open").select(
        "node",
        F.lit("").alias("boot_id"),
        F.lit(0).cast("long").alias("seq"),
        "cluster",
        "broker_name",
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("until_at").alias("until_us"),
    )
    timeline = Window.partitionBy("node", "cluster", "broker_name").orderBy("from_us", "boot_id", "seq")
    ordered = announced.unionByName(carried).withColumn("next_us", F.lead("from_us").over(timeline))
    windows = ordered.filter(F.col("until_us").isNotNull()).withColumns(
        {"to_us": F.least("until_us", "next_us"), "until_at": F.timestamp_micros("until_us")}
    )
    lasting = windows.filter(F.col("to_us") > F.col("from_us"))
    return by_day(lasting, first_day=first_day, last_day=last_day).select(*MAINTENANCE_WINDOWS.columns)


def guard_periods(
    events: DataFrame, windows: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date
) -> DataFrame:
    """The periods of expiry guards; ``yesterday``: those of the day before the first.

    One row per period and day that it touches; key: ``dt``, observer, ``cluster``, ``from_at``.
    """
    ended = windows.groupBy(*OBSERVER).agg(F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("run_end"))
    periods = _periods(events, yesterday).join(F.broadcast(ended), on=list(OBSERVER), how="left")
    # least() skips nulls: of a period that is still on, and of a run that has not ended.
    cut = periods.withColumn("to_us", F.least("to_us", "run_end"))
    daily = by_day(cut, first_day=first_day, last_day=last_day)
    protected = _kept(events, daily)
    limit = F.col("limit_us") < utc_days.ends(F.col("dt"))
    known = daily.join(protected, on=["dt", *_WATCH, "from_at"], how="left").withColumns(
        {"kept": F.coalesce("kept", F.lit(0)).cast("long"), "over_limit": F.coalesce(limit, F.lit(False))}
    )
    return known.select(*GUARD_PERIODS.columns)


def _periods(events: DataFrame, yesterday: DataFrame) -> DataFrame:
    turned = events.filter(F.col("event").isin("GUARD_ON", "GUARD_OFF") & F.col("cluster").isNotNull())
    at = F.unix_micros("event_at")
    switches = turned.select(
        *_WATCH,
        at.alias("at"),
        "seq",
        (F.col("event") == "GUARD_ON").alias("on"),
        F.when((F.col("event") == "GUARD_ON") & (F.col("reason") == "LIMIT"), at).alias("limit_us"),
        _detail("mode").alias("mode"),
        _detail("lost").try_cast("long").alias("lost"),
        # Called "lived" by rows of schema version 1.
        F.coalesce(_detail("baseline"), _detail("lived")).try_cast("long").alias("baseline"),
        _detail("up").try_cast("long").alias("up"),
    )
    carried = yesterday.filter("open").select(
        *_WATCH,
        F.unix_micros("from_at").alias("at"),
        F.lit(0).cast("long").alias("seq"),
        F.lit(True).alias("on"),
        F.when(F.col("over_limit"), F.unix_micros("from_at")).alias("limit_us"),
        *_FACTS,
    )
    timeline = Window.partitionBy(*_WATCH).orderBy("at", "seq")
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    both = switches.unionByName(carried).withColumn("begins", F.col("on") & ~F.lag("on", 1, False).over(timeline))
    numbered = both.withColumn("period", F.sum(F.col("begins").cast("long")).over(to_here)).filter("period > 0")
    first = F.struct("at", "seq")
    return numbered.groupBy(*_WATCH, "period").agg(
        F.min(F.when(F.col("on"), F.col("at"))).alias("from_us"),
        F.min(F.when(~F.col("on"), F.col("at"))).alias("to_us"),
        F.min("limit_us").alias("limit_us"),
        *(F.min_by(name, F.when(F.col("on"), first)).alias(name) for name in _FACTS),
    )


def _kept(events: DataFrame, daily: DataFrame) -> DataFrame:
    """``kept``: brokers that the period's name server marked PROTECTED while it lasted."""
    protected = events.filter((F.col("event") == "PROTECTED") & F.col("broker_name").isNotNull())
    marked = protected.select("dt", *OBSERVER, *INSTANCE, F.unix_micros("event_at").alias("at"))
    periods = daily.select("dt", *_WATCH, "from_at", F.unix_micros("from_at").alias("since"), "to_at")
    # The row of a broker that turns the guard on is written just before or after GUARD_ON, at the same moment.
    within = F.col("at").between(F.col("since"), F.unix_micros("to_at"))
    joined = marked.join(F.broadcast(periods), on=["dt", *_WATCH], how="inner").filter(within)
    return joined.groupBy("dt", *_WATCH, "from_at").agg(F.count_distinct("broker_name", "broker_id").alias("kept"))


def _detail(name: str) -> Column:
    return F.get_json_object("detail", f"$.{name}")
