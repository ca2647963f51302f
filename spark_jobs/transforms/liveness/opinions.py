"""What each observer said of each broker, row by row: up or down.

An observer has no opinion of a broker before its first row about it, and none outside its window. A sign of life is no
registration: after a removal it says nothing, unless rows of that observer were lost in between. Then the lost ones
held a registration, and the broker is up from the sign on; when it came back nobody knows. (The beats of a broker that
is out for its failed probe go on, so for that one a HEARTBEATS proves nothing.) A removal that was lost shows at the
next checkpoint of a day (`left_out`); until then that observer holds the broker up, against the others, which
`partial_views` tells.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark_jobs.schemas import INSTANCE, OBSERVER
from spark_jobs.schemas.liveness import OPINION
from spark_jobs.transforms import days
from spark_jobs.transforms.days import lit_day
from spark_jobs.transforms.liveness.maintenance import PLANNED, by_cluster, is_announced

UP = ("REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED", "RECOVERED")
DOWN = ("EXPIRED", "PROBE_FAILED", "UNREGISTERED")
SIGNS = ("SUSPECTED", "LATE_HEARTBEAT", "HEARTBEATS", "CHECKPOINT")
"""Rows that only a registered broker causes: up, if they are the first that an observer says of it."""
SIGNALS = (*UP, *DOWN, *SIGNS)
UNSURE = ("PROVISIONAL", "PROBE_FAILED", "PROTECTED")
"""States of a CHECKPOINT that do not say that the broker is up: not heard since a restart, out of the routes, or in
them for the guard alone."""

LEFT_OUT = "LEFT_OUT"
"""Not an event of the history: where a checkpoint leaves out a broker that was up. Its opinion is ``none``."""

LONGEST_SILENCE_MS = 366 * 86_400_000
_SAID = (*INSTANCE, *OBSERVER, "seq", "at", "event", "reason", "sign_us", "opinion", "rows_lost")


def in_order() -> WindowSpec:
    """What an observer said of a broker, in order."""
    return Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "seq")


MANY = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "TOPICS")
"""Rows of which a day has most, or the longest."""


def rare_events(events: DataFrame) -> DataFrame:
    """All rows but the `MANY`: what is asked of the history most often, and little of it."""
    return events.filter(~F.col("event").isin(*MANY))


def opinions(
    rare: DataFrame,
    events: DataFrame,
    windows: DataFrame,
    maintenance: DataFrame,
    state: DataFrame,
    *,
    first_day: date,
) -> DataFrame:
    """Every row that sets an opinion, with the observer's window (``watch_from``, ``watch_to``; null = still open).

    ``rare`` is `rare_events`; ``windows`` and ``maintenance`` are those of the days, ``state`` the broker state of the
    day before the first; what it carries comes back with ``carried`` true. ``lost_on``: the day on which rows behind
    this one are first missing.
    """
    watches = windows.groupBy(*OBSERVER).agg(
        F.min(F.unix_micros("from_at")).alias("watch_from"),
        F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("watch_to"),
        F.sort_array(F.flatten(F.collect_list(_dated_gaps()))).alias("lost"),
    )
    said = _telling(rare, events, windows).unionByName(_carried(state))
    story = said.join(F.broadcast(watches), on=list(OBSERVER), how="inner")
    announced = F.broadcast(by_cluster(maintenance))
    covered = (F.col("event").isin(*DOWN)) & is_announced(F.col("at"))
    planned = story.join(announced, on="cluster", how="left").withColumn(
        "reason", F.when(covered, F.lit(PLANNED)).otherwise(F.col("reason"))
    )
    found = planned.withColumn("back", _is_back()).withColumn("opinion", F.coalesce("opinion", _opinion()))
    behind = F.filter("lost", lambda gap: gap["from_seq"] > F.col("seq"))
    lost_on = F.array_min(F.transform(behind, lambda gap: gap["dt"]))
    told = found.filter(F.col("opinion").isNotNull()).withColumn("before", F.lag("opinion").over(in_order()))
    # Of a broker that is up a sign of life says nothing new, whatever row said it first.
    repeats = F.col("event").isin(*SIGNS) & F.coalesce(F.col("before") == "up", F.lit(False))
    inside = told.filter(~repeats | (F.col("at") < F.lit(days.start_of(first_day)))).withColumn("lost_on", lost_on)
    heard_in_time = inside.filter(F.col("watch_to").isNull() | (F.col("at") <= F.col("watch_to")))
    return heard_in_time.select(*_SAID, "lost_on", "watch_from", "watch_to").withColumns(
        {"next_at": F.lead("at").over(in_order()), "carried": F.col("at") < F.lit(days.start_of(first_day))}
    )


def _dated_gaps() -> Column:
    return F.transform(
        "gaps", lambda gap: F.struct(gap["from_seq"].alias("from_seq"), gap["to_seq"].alias("to_seq"), F.col("dt"))
    )


def _telling(rare: DataFrame, events: DataFrame, windows: DataFrame) -> DataFrame:
    """Rows that may set an opinion."""
    unsure = (F.col("event") == "CHECKPOINT") & F.get_json_object("detail", "$.state").isin(*UNSURE)
    told = rare.filter(F.col("event").isin(*SIGNALS) & of_a_replica() & ~F.coalesce(unsure, F.lit(False)))
    at = F.unix_micros("event_at")
    silence = F.when(F.col("interval_ms").between(0, LONGEST_SILENCE_MS), F.col("interval_ms") * 1_000)
    typed = told.withColumns({"at": at, "sign_us": at - silence})
    nothing = {"opinion": F.lit(None).cast("string"), "rows_lost": F.lit(False)}
    return typed.withColumns(nothing).select(*_SAID).unionByName(_beats(events, windows).select(*_SAID))


def _beats(events: DataFrame, windows: DataFrame) -> DataFrame:
    """HEARTBEATS that may set an opinion: of a broker's many of a day the first alone, unless rows are lost.

    Most rows of a day are of this kind, so they are reduced as plain numbers: a struct would have to be sorted.
    """
    beats = events.filter((F.col("event") == "HEARTBEATS") & of_a_replica())
    at = F.unix_micros("event_at")
    narrow = beats.select("dt", *INSTANCE, *OBSERVER, "seq", at.alias("at"), "event")
    gaps = windows.filter(F.size("gaps") > 0).select("dt", *OBSERVER, F.lit(True).alias("has_gaps"))
    marked = narrow.join(F.broadcast(gaps), on=["dt", *OBSERVER], how="left")
    # Where rows are lost each stands for itself.
    each = F.when(F.col("has_gaps"), F.col("seq"))
    first = marked.groupBy("dt", *INSTANCE, *OBSERVER, "event", each.alias("each"))
    few = first.agg(F.min("at").alias("at"), F.min("seq").alias("seq"))
    nothing = {"reason": "string", "sign_us": "long", "opinion": "string"}
    return few.withColumns(
        {name: F.lit(None).cast(kind) for name, kind in nothing.items()} | {"rows_lost": F.lit(False)}
    )


def _carried(state: DataFrame) -> DataFrame:
    held = state.select(*INSTANCE, F.inline("opinions"))
    return held.withColumns(
        {
            "at": F.unix_micros("event_at"),
            "sign_us": F.unix_micros("last_sign_of_life_at"),
            "rows_lost": F.coalesce("rows_lost", F.lit(False)),
        }
    ).select(*_SAID)


def of_a_replica() -> Column:
    return F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull()


def _decides() -> Column:
    event = F.col("event")
    # A late beat does not bring back a broker that was taken out for its failed probe: its agent lives, it does not.
    only_a_beat = (event == "RECOVERED") & (F.col("reason") == "HEARTBEAT")
    return event.isin(*DOWN, LEFT_OUT) | (event.isin(*UP) & ~F.coalesce(only_a_beat, F.lit(False)))


def _is_back() -> Column:
    """A sign of life behind a removal, with rows lost in between: it was registered meanwhile."""
    row = F.struct("event", "reason", "seq", "rows_lost")
    before = F.last(F.when(_decides(), row), ignorenulls=True).over(
        in_order().rowsBetween(Window.unboundedPreceding, -1)
    )
    between = F.exists("lost", lambda gap: (gap["from_seq"] > before["seq"]) & (gap["to_seq"] < F.col("seq")))
    may_be_out = (before["event"] == "PROBE_FAILED") | F.coalesce(before["reason"] == PLANNED, F.lit(False))
    proves = F.col("event").isin(*SIGNS) & ~((F.col("event") == "HEARTBEATS") & may_be_out)
    return F.coalesce(before["event"].isin(*DOWN) & (before["rows_lost"] | between) & proves, F.lit(False))


def _opinion() -> Column:
    """Up or down by a row's event; null where the row changes nothing. Behind one that ``is_back`` all begins anew."""
    event = F.col("event")
    decisive = F.when(F.col("back"), F.lit("")).when(_decides(), event)
    last = F.last(decisive, ignorenulls=True).over(in_order().rowsBetween(Window.unboundedPreceding, -1))
    before = F.nullif(last, F.lit(""))
    return (
        F.when(event.isin(*DOWN), "down")
        .when(_decides(), "up")
        .when((event == "RECOVERED") & ~F.coalesce(before == "PROBE_FAILED", F.lit(False)), "up")
        .when(before.isNull() | F.col("back"), "up")
    )


def in_force(opinions: DataFrame) -> DataFrame:
    """Opinions from the moment they count: what was said before the window began counts from its beginning."""
    counted = opinions.filter(F.col("watch_from").isNotNull())
    latest = counted.filter(F.col("next_at").isNull() | (F.col("next_at") >= F.col("watch_from")))
    return latest.withColumns({"said_at": F.col("at"), "at": F.greatest("at", "watch_from")})


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
        (F.col("rows_lost") | F.coalesce(F.col("lost_on") <= F.col("dt"), F.lit(False))).alias("rows_lost"),
    )
    by_day = held.withColumn("opinion", row.cast(OPINION)).groupBy("dt", *INSTANCE)
    return by_day.agg(F.sort_array(F.collect_list("opinion")).alias("opinions"))
