"""What each observer said of each broker, row by row: up or down.

An observer has no opinion of a broker before its first row about it, and none outside its window.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE, OBSERVER, OPINION
from spark_jobs.transforms import days
from spark_jobs.transforms.days import lit_day

UP = ("REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED", "RECOVERED")
DOWN = ("EXPIRED", "PROBE_FAILED", "UNREGISTERED")
SIGNS = ("SUSPECTED", "LATE_HEARTBEAT", "HEARTBEATS", "CHECKPOINT")
"""Rows that only a registered broker causes: up, if they are the first that an observer says of it."""
SIGNALS = (*UP, *DOWN, *SIGNS)
UNSURE = ("PROVISIONAL", "PROBE_FAILED")
"""States of a CHECKPOINT that do not say that the broker is up: not heard since a restart, or out of the routes."""


def _story() -> WindowSpec:
    return Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "seq")


def opinions(events: DataFrame, windows: DataFrame, state: DataFrame, *, first_day: date) -> DataFrame:
    """Every row that sets an opinion, with the observer's window (``watch_from``, ``watch_to``; null = still open).

    ``windows`` are the observer windows of the days, ``state`` the broker state of the day before the first; what it
    carries comes back with ``carried`` true.
    """
    of_a_replica = F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull()
    unsure = (F.col("event") == "CHECKPOINT") & F.get_json_object("detail", "$.state").isin(*UNSURE)
    said = events.filter(F.col("event").isin(*SIGNALS) & of_a_replica & ~F.coalesce(unsure, F.lit(False)))
    at = F.unix_micros("event_at")
    fresh = said.select(
        *INSTANCE,
        *OBSERVER,
        "seq",
        at.alias("at"),
        "event",
        "reason",
        (at - F.col("interval_ms") * 1_000).alias("sign_us"),
        F.lit(None).cast("string").alias("opinion"),
    )
    old = state.select(*INSTANCE, F.inline("opinions")).select(
        *INSTANCE,
        *OBSERVER,
        "seq",
        F.unix_micros("event_at").alias("at"),
        "event",
        "reason",
        F.unix_micros("last_sign_of_life_at").alias("sign_us"),
        "opinion",
    )
    story = fresh.unionByName(old).withColumn("opinion", F.coalesce("opinion", _opinion()))
    watches = windows.groupBy(*OBSERVER).agg(
        F.min(F.unix_micros("from_at")).alias("watch_from"),
        F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("watch_to"),
    )
    inside = story.filter(F.col("opinion").isNotNull()).join(F.broadcast(watches), on=list(OBSERVER), how="inner")
    heard_in_time = inside.filter(F.col("watch_to").isNull() | (F.col("at") <= F.col("watch_to")))
    return heard_in_time.withColumns(
        {"next_at": F.lead("at").over(_story()), "carried": F.col("at") < F.lit(days.start_of(first_day))}
    )


def _opinion() -> Column:
    """Up or down by a row's event; null where the row changes nothing."""
    event = F.col("event")
    # A late beat does not bring back a broker that was taken out for its failed probe: its agent lives, it does not.
    only_a_beat = (event == "RECOVERED") & (F.col("reason") == "HEARTBEAT")
    decisive = F.when(event.isin(*DOWN) | (event.isin(*UP) & ~F.coalesce(only_a_beat, F.lit(False))), event)
    before = F.last(decisive, ignorenulls=True).over(_story().rowsBetween(Window.unboundedPreceding, -1))
    return (
        F.when(event.isin(*DOWN), "down")
        .when(decisive.isNotNull(), "up")
        .when((event == "RECOVERED") & ~F.coalesce(before == "PROBE_FAILED", F.lit(False)), "up")
        .when(before.isNull(), "up")
    )


def in_force(opinions: DataFrame) -> DataFrame:
    """Opinions from the moment they count: what was said before the window began counts from its beginning."""
    counted = opinions.filter(F.col("watch_from").isNotNull())
    latest = counted.filter(F.col("next_at").isNull() | (F.col("next_at") >= F.col("watch_from")))
    return latest.withColumn("at", F.greatest("at", "watch_from"))


def at_day_end(opinions: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """What each observer still watching held of each broker at the end of each day, as ``opinions`` of a state row."""
    until = F.least(
        F.coalesce("next_at", F.lit(days.end_of(last_day))), F.coalesce("watch_to", F.lit(days.end_of(last_day)))
    )
    # An opinion that lasts to midnight exactly is held at the day's end, unless the same midnight brings another.
    first = F.greatest(days.day_of(F.col("at")), lit_day(first_day))
    last = F.date_sub(days.day_of(until), 1)
    held = opinions.select("*", F.explode(days.days_between(first, last)).alias("dt"))
    row = F.struct(
        *OBSERVER,
        "seq",
        F.timestamp_micros("at").alias("event_at"),
        "event",
        "reason",
        F.timestamp_micros("sign_us").alias("last_sign_of_life_at"),
        "opinion",
    )
    by_day = held.withColumn("opinion", row.cast(OPINION)).groupBy("dt", *INSTANCE)
    return by_day.agg(F.sort_array(F.collect_list("opinion")).alias("opinions"))
