"""The state of each broker as recorded by each observer, and when missing rows make it unknown.

`opinions`: each observer's opinion of each broker: up, down, none (unknown) or lost (its rows are missing).

An opinion is a function of one row: its state and, if PROTECTED, the reason. UP and SUSPECT are up, OUT and GONE are
down. PROVISIONAL is none. PROTECTED is none too, unless the broker's agent reports a failing probe: then the broker is
down, although the guard keeps its route.

An observer has no opinion of a broker before its first row about it, and none outside its window. Where rows of an
observer are missing, `with_losses` adds opinions ``lost`` from the last row before the hole; the next row about the
broker ends that period. A replica that is up then was up since its state began (``since_ms``), but at most since the
start of the row's day.

`with_losses`: the period in which an observer's opinion of a broker is ``lost`` because rows are missing.

A missing row may have changed any broker's state. A state is known over a gap only if the row before it and the row
after it agree, the latter's ``since_ms`` reaches back over the gap, and the row is not itself a change of reason or
plan. Over midnight no state is known, because a day is computed before the rows of the next one are complete. A replica
that a complete checkpoint does not name is no longer registered; if it was up before, the reason is unknown (``none``).
Gaps do not show that the last rows of a run are missing, or that all rows of a broker are.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness_tables import OPINION
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.observer_windows import has_missing_rows
from pointsman_report.transforms.utc_days import lit_day

ROUTED, REMOVED = ("UP", "SUSPECT"), ("OUT", "GONE")
UP, DOWN, NONE, LOST = "up", "down", "none", "lost"

LONGEST_MS = 366 * 86_400_000
_STATED = ("seq", "at", "event", "reason", "sign_us", "since_us", "opinion", "planned", "is_change")
STATED = (*INSTANCE, *OBSERVER, *_STATED)
"""``is_change``: the row was written because the reason or plan of the state changed, possibly of an old state."""

MANY = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "TOPICS")
"""Events with the most rows per day, or the longest. None of them changes a state."""
LEFT_OUT = "LEFT_OUT"
"""Not an event of the history: a complete checkpoint does not name the replica."""

TOLERANCE = 10_000
"""Microseconds by which two rows may differ on when a state began: both times are rounded to milliseconds."""

BLOCK = 1_000
"""Sequence numbers that are searched for gaps together."""

_EACH = (*INSTANCE, *OBSERVER)
_JOINED_DAYS = 32


def in_order() -> WindowSpec:
    """All rows of one observer about one broker, in order."""
    return Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "seq")


def rare_events(events: DataFrame) -> DataFrame:
    """All rows but the `MANY`: a small part of the history that answers most queries.

    One row per row of the history; key: observer, ``seq``.
    """
    return events.filter(~F.col("event").isin(*MANY))


def stated(rare: DataFrame, events: DataFrame, windows: DataFrame, state: DataFrame) -> DataFrame:
    """Every row that states the state of a replica (`STATED`), with those carried by ``state`` of the day before.

    ``rare`` is `rare_events`; ``windows`` are those of the days.

    One row per statement about a replica; key: instance, observer, ``seq``.
    """
    return _rows(rare).unionByName(_repeated(events, windows)).unionByName(_carried(state))


def opinions(stated: DataFrame, windows: DataFrame) -> DataFrame:
    """The rows that change an opinion, with the time it counts from and the observer's window (``watch_to`` is null
    while it is open).

    ``is_fresh``: the state began with this row.

    One row per opinion; key: instance, observer, ``seq``.
    """
    watches = windows.groupBy(*OBSERVER).agg(
        F.min(F.unix_micros("from_at")).alias("watch_from"),
        F.max(F.when(~F.col("open"), F.unix_micros("to_at"))).alias("watch_to"),
    )
    timeline = stated.join(F.broadcast(watches), on=list(OBSERVER), how="inner")
    known = timeline.withColumn("before", F.lag(F.struct("opinion", "planned", "at", "since_us")).over(in_order()))
    is_first = F.col("before").isNull() | (F.col("before.opinion") == LOST)
    same = (F.col("before.opinion") == F.col("opinion")) & F.col("before.planned").eqNullSafe(F.col("planned"))
    fresh = F.coalesce(F.col("since_us") == F.col("at"), F.lit(False))
    # The event of each removal counts, even if a broker that is already down is removed again.
    removed_again = (F.col("opinion") == DOWN) & fresh & ~F.col("before.since_us").eqNullSafe(F.col("since_us"))
    repeats = F.coalesce(same & ~removed_again, F.lit(False))
    # greatest() skips the null of a first row.
    known_us = F.greatest(reach_us(F.col("since_us"), F.col("at")), "before.at")
    changing = known.filter(~repeats).withColumns(
        {
            "at": F.when(is_first & (F.col("opinion") == UP), known_us).otherwise(F.col("at")),
            "is_fresh": fresh & ~F.coalesce(F.col("reason") == "SNAPSHOT", F.lit(False)),
        }
    )
    in_time = changing.filter(F.col("watch_to").isNull() | (F.col("at") <= F.col("watch_to")))
    columns = (name for name in STATED if name not in {"since_us", "is_change"})
    return in_time.select(*columns, "is_fresh", "watch_from", "watch_to").withColumn(
        "next_at", F.lead("at").over(in_order())
    )


def reach_us(since_us: Column, at: Column) -> Column:
    """When the state of a row began, at the earliest at the start of the row's day."""
    return F.greatest(F.coalesce(since_us, at), utc_days.starts(utc_days.day_of(at)))


def of_a_replica() -> Column:
    """Whether a row is about one replica."""
    return F.col("broker_name").isNotNull() & F.col("broker_id").isNotNull()


def _rows(events: DataFrame, *more: str) -> DataFrame:
    """Typed columns of the rows that state the state of a replica."""
    at, state = F.unix_micros("event_at"), F.col("state")
    silence = F.when(F.col("interval_ms").between(0, LONGEST_MS), F.col("interval_ms") * 1_000)
    age = F.when(F.col("since_ms") >= 0, F.least("since_ms", F.lit(LONGEST_MS)) * 1_000)
    # Some rows, such as checkpoints, have another reason; a failing probe is in the detail of any row.
    silent = F.coalesce(F.col("reason").isin("SILENCE", "STREAM_BROKEN"), F.lit(False))
    failing = (F.col("reason") == "PROBE") | (~silent & F.get_json_object("detail", "$.probe").isNotNull())
    down = state.isin(*REMOVED) | ((state == "PROTECTED") & F.coalesce(failing, F.lit(False)))
    opinion = F.when(state.isin(*ROUTED), UP).when(down, DOWN).otherwise(NONE)
    # Whichever row is first, the broker is down because its probe failed, or because it expired.
    probe_failed = (F.col("opinion") == DOWN) & (state != "GONE")
    named = F.when(F.col("reason").isin("REFUSED", "PROBE"), F.col("reason"))
    has_expired = (F.col("event") == "CHECKPOINT") & (state == "GONE")
    typed = events.filter(state.isNotNull() & of_a_replica()).withColumns(
        {
            "at": at,
            "sign_us": at - silence,
            "since_us": at - age,
            "opinion": opinion,
            "planned": F.coalesce("planned", F.lit(False)),
            "is_change": F.col("event").isin("PROBE_FAILED", "PROTECTED"),
        }
    )
    return typed.withColumns(
        {
            "event": F.when(probe_failed, "PROBE_FAILED").when(has_expired, "EXPIRED").otherwise(F.col("event")),
            "reason": F.when(probe_failed, named)
            .when(has_expired, F.get_json_object("detail", "$.gone_reason"))
            .otherwise(F.col("reason")),
        }
    ).select(*STATED, *more)


def _repeated(events: DataFrame, windows: DataFrame) -> DataFrame:
    """The first of each day of the `MANY` rows about a broker, and all of them where the observer has missing rows.

    PROTECTED rows are excluded: their reason is in the detail, which is not parsed here.
    """
    many = events.filter(F.col("event").isin(*MANY) & (F.col("state") != "PROTECTED"))
    rows = _rows(many.withColumn("detail", F.lit(None).cast("string")), "dt")
    gaps = windows.filter(F.exists("gaps", has_missing_rows)).select("dt", *OBSERVER, F.lit(True).alias("has_gaps"))
    marked = rows.join(F.broadcast(gaps), on=["dt", *OBSERVER], how="left")
    each = F.when(F.col("has_gaps"), F.col("seq"))

    def first_where(condition: Column) -> Column:
        return F.min(F.when(condition, F.col("seq")))

    # Aggregated as plain numbers: these are most rows of a day, and structs would have to be sorted.
    first = marked.groupBy("dt", *INSTANCE, *OBSERVER, each.alias("each")).agg(
        F.min("seq").alias("seq"),
        F.min("at").alias("at"),
        # A state that began later than the first row is ignored.
        F.min("since_us").alias("earliest_us"),
        first_where(F.col("opinion") == UP).alias("up_seq"),
        first_where(F.col("opinion") == DOWN).alias("down_seq"),
        first_where(F.col("planned")).alias("planned_seq"),
    )
    is_first = {name: F.coalesce(F.col(f"{name}_seq") == F.col("seq"), F.lit(False)) for name in (UP, DOWN, "planned")}
    nothing = F.lit(None).cast("string")
    return first.withColumns(
        {
            "event": F.when(is_first[DOWN], "PROBE_FAILED").otherwise("HEARTBEATS"),
            "reason": nothing,
            "sign_us": nothing.cast("long"),
            "since_us": F.when(F.col("earliest_us") <= F.col("at"), F.col("earliest_us")),
            "opinion": F.when(is_first[UP], UP).when(is_first[DOWN], DOWN).otherwise(NONE),
            "planned": is_first["planned"],
            "is_change": F.lit(False),
        }
    ).select(*STATED)


def _carried(state: DataFrame) -> DataFrame:
    held = state.select(*INSTANCE, F.inline("opinions"))
    return held.withColumns(
        {
            "at": F.unix_micros("event_at"),
            "sign_us": F.unix_micros("last_sign_of_life_at"),
            "since_us": F.lit(None).cast("long"),
            "is_change": F.lit(None).cast("boolean"),
        }
    ).select(*STATED)


def in_force(opinions: DataFrame) -> DataFrame:
    """Opinions from the moment they count: those recorded before the window count from its start.

    One row per opinion; key: instance, observer, ``seq``.
    """
    counted = opinions.filter(F.col("watch_from").isNotNull())
    latest = counted.filter(F.col("next_at").isNull() | (F.col("next_at") >= F.col("watch_from")))
    return latest.withColumn("at", F.greatest("at", "watch_from"))


def turns_at_day_end(opinions: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """The opinions of all running observers at the end of a day, as ``opinions`` of a state row: on the days on which
    they differ from those of the day before.

    One row per broker and day on which an opinion is the first or no longer the last; key: ``dt``, instance.
    """
    until = F.least(
        F.coalesce("next_at", F.lit(utc_days.end_of(last_day))),
        F.coalesce("watch_to", F.lit(utc_days.end_of(last_day))),
    )
    row = F.struct(
        *OBSERVER,
        "seq",
        F.timestamp_micros("at").alias("event_at"),
        "event",
        "reason",
        F.timestamp_micros("sign_us").alias("last_sign_of_life_at"),
        "opinion",
        "planned",
    )
    # An opinion that lasts exactly until midnight counts at the day's end, unless another one begins at that midnight.
    held = opinions.select(
        *INSTANCE,
        row.cast(OPINION).alias("opinion"),
        F.greatest(utc_days.day_of(F.col("at")), lit_day(first_day)).alias("first_on"),
        F.date_sub(utc_days.day_of(until), 1).alias("last_on"),
    ).filter("first_on <= last_on")
    turns = held.select(*INSTANCE, F.explode(F.array("first_on", F.date_add("last_on", 1))).alias("dt"))
    days = turns.filter(F.col("dt") <= lit_day(last_day)).distinct()
    # Joined by month: a broker that turns each day has many of both.
    month = F.floor(F.unix_date("dt") / _JOINED_DAYS)
    months = F.sequence(F.floor(F.unix_date("first_on") / _JOINED_DAYS), F.floor(F.unix_date("last_on") / _JOINED_DAYS))
    both = days.withColumn("month", month).join(
        held.withColumn("month", F.explode(months)), on=[*INSTANCE, "month"], how="left"
    )
    at_end = F.collect_list(F.when(F.col("dt").between(F.col("first_on"), F.col("last_on")), F.col("opinion")))
    return both.groupBy("dt", *INSTANCE).agg(F.sort_array(at_end).alias("opinions"))


def any_missing(windows: DataFrame, state: DataFrame) -> bool:
    """Whether rows are missing on the days, or an opinion carried from the day before is lost."""
    carried = state.filter(F.exists("opinions", lambda held: held["opinion"] == LOST))
    missing = windows.filter(F.exists("gaps", has_missing_rows)).select(F.lit(1)).unionByName(carried.select(F.lit(1)))
    return not missing.isEmpty()


def with_losses(stated: DataFrame, rare: DataFrame, windows: DataFrame) -> DataFrame:
    """Add to `stated` an opinion ``lost`` at each gap that is not bridged, and the brokers missing from checkpoints.

    One row per statement or loss; key: instance, observer, ``seq``.
    """
    by_day = _gaps_by_day(windows)
    gaps = _gaps(by_day)
    marked = _left_out(stated, rare).withColumn("is_left_out", F.lit(True))
    both = stated.withColumn("is_left_out", F.lit(False)).unionByName(marked)
    rows = _behind_gaps(_with_next_gap(both, gaps))
    return rows.select(*STATED).unionByName(_before_first(stated, by_day)).unionByName(_lost(rows))


def _before_first(stated: DataFrame, gaps: DataFrame) -> DataFrame:
    """Opinions ``lost`` of brokers whose first row follows a gap of that day: they may have been registered before."""
    first = stated.groupBy(*_EACH).agg(F.min_by(F.struct("seq", "at"), F.struct("at", "seq")).alias("first"))
    of_day = gaps.groupBy(*OBSERVER, "dt").agg(F.min(F.struct("from_seq", "gap_us")).alias("gap"))
    dated = first.withColumn("dt", utc_days.day_of(F.col("first.at")))
    behind = dated.join(F.broadcast(of_day), on=[*OBSERVER, "dt"], how="inner").filter("gap.from_seq < first.seq")
    return _losses(
        behind.withColumns(
            {"seq": F.col("gap.from_seq"), "at": F.col("gap.gap_us"), "event": F.lit(None).cast("string")}
        )
    )


def _lost(rows: DataFrame) -> DataFrame:
    """Opinions ``lost`` at gaps that the row after them does not bridge."""
    after = F.lead(F.struct("seq", "at", "since_us", "opinion", "planned", "is_change")).over(in_order())
    paired = rows.withColumn("after", after)
    opens = F.col("gap.from_seq") < F.coalesce("after.seq", F.lit(2**63 - 1))
    agrees = (F.col("after.opinion") == F.col("opinion")) & F.col("after.planned").eqNullSafe(F.col("planned"))
    reaches = reach_us(F.col("after.since_us"), F.col("after.at")) <= F.col("gap.at") + TOLERANCE
    is_bridged = F.coalesce(agrees & reaches & ~F.col("after.is_change") & ~F.col("gap.over_midnight"), F.lit(False))
    losing = paired.filter(opens & ~is_bridged & (F.col("opinion") != LOST))
    return _losses(
        losing.withColumns(
            {
                "event": F.when(F.col("opinion") == DOWN, F.col("event")),
                "seq": F.col("gap.from_seq"),
                "at": F.greatest("at", "gap.at"),
            }
        )
    )


def _losses(rows: DataFrame) -> DataFrame:
    return rows.withColumns(_null_columns() | {"opinion": F.lit(LOST)}).select(*STATED)


def _null_columns() -> dict[str, Column]:
    """The columns that are null in a row that represents missing rows."""
    kinds = {"reason": "string", "sign_us": "long", "since_us": "long", "planned": "boolean", "is_change": "boolean"}
    return {name: F.lit(None).cast(kind) for name, kind in kinds.items()}


def _gaps_by_day(windows: DataFrame) -> DataFrame:
    """Each gap of each observer on each day: ``from_seq``, ``gap_us``, the earliest time of its rows on the day or on
    the days before, as far as these are computed, and whether it lasts ``over_midnight``."""
    each = windows.select("dt", *OBSERVER, F.inline(F.filter("gaps", has_missing_rows)))
    begins = F.greatest(F.unix_micros("after_at"), utc_days.starts(F.col("dt")))
    over_midnight = F.unix_micros("before_at") >= utc_days.ends(F.col("dt"))
    return each.select("dt", *OBSERVER, "from_seq", begins.alias("gap_us"), over_midnight.alias("over_midnight"))


def _gaps(by_day: DataFrame) -> DataFrame:
    """Each gap once, from its first day on."""
    first = F.min(F.struct("gap_us", "over_midnight")).alias("first")
    return by_day.groupBy(*OBSERVER, "from_seq").agg(first).select(*OBSERVER, "from_seq", "first.*")


def _with_next_gap(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Add ``gap`` (``from_seq``, ``at``, ``over_midnight``), the observer's first gap after each row."""
    gap = F.struct("from_seq", F.col("gap_us").alias("at"), "over_midnight")
    within = gaps.groupBy(*OBSERVER, F.floor(F.col("from_seq") / BLOCK).alias("block")).agg(
        F.sort_array(F.collect_list(gap)).alias("within")
    )
    placed = rows.withColumn("block", F.floor(F.col("seq") / BLOCK))
    blocks = placed.select(*OBSERVER, "block").distinct().join(within, on=[*OBSERVER, "block"], how="full")
    # If the block has no further gap, the first gap of a later block counts.
    behind_it = Window.partitionBy(*OBSERVER).orderBy("block").rowsBetween(1, Window.unboundedFollowing)
    later = F.first(F.get("within", F.lit(0)), ignorenulls=True).over(behind_it)
    found = placed.join(F.broadcast(blocks.withColumn("later", later)), on=[*OBSERVER, "block"], how="left")
    behind = F.filter("within", lambda one: one["from_seq"] > F.col("seq"))
    return found.withColumn("gap", F.coalesce(F.get(behind, F.lit(0)), "later")).drop("block", "within", "later")


def _behind_gaps(rows: DataFrame) -> DataFrame:
    """Of the brokers missing from checkpoints, keep those that only missing rows explain, with their opinion."""
    before = F.lag("gap").over(in_order())
    real = F.when(~F.col("is_left_out"), F.when(_was_down(), DOWN).otherwise(F.col("opinion")))
    last = F.last(real, ignorenulls=True).over(in_order().rowsBetween(Window.unboundedPreceding, -1))
    was_lost = F.coalesce(F.lag("opinion").over(in_order()) == LOST, F.lit(False))
    marked = rows.withColumns({"gap_before": before, "last": last, "was_lost": was_lost})
    explained = F.coalesce(F.col("gap_before.from_seq") < F.col("seq"), F.lit(False)) | F.col("was_lost")
    opinion_then = F.when(F.col("last") == DOWN, DOWN).otherwise(NONE)
    kept = marked.filter(~F.col("is_left_out") | explained)
    return kept.withColumn("opinion", F.when(F.col("is_left_out"), opinion_then).otherwise(F.col("opinion")))


def _was_down() -> Column:
    """Whether a broker was down when its opinion was lost: then the event is set."""
    return F.coalesce((F.col("opinion") == LOST) & F.col("event").isNotNull(), F.lit(False))


def _left_out(stated: DataFrame, rare: DataFrame) -> DataFrame:
    """A row for each broker that an observer knew before a complete checkpoint but that is missing from it."""
    checkpoints = F.broadcast(_complete_checkpoints(rare))
    seq = F.col("seq")
    joined = stated.join(checkpoints, on=list(OBSERVER), how="inner").groupBy(
        *_EACH, "first_seq", "last_seq", "last_us"
    )
    known = joined.agg(
        F.bool_or(seq < F.col("first_seq")).alias("known"),
        F.bool_or(seq.between(F.col("first_seq"), F.col("last_seq"))).alias("named"),
    ).filter("known and not named")
    return known.withColumns(
        _null_columns()
        | {"seq": F.col("last_seq"), "at": F.col("last_us"), "event": F.lit(LEFT_OUT), "opinion": F.lit(NONE)}
    ).select(*STATED)


def _complete_checkpoints(rare: DataFrame) -> DataFrame:
    """``first_seq``, ``last_seq`` and time of each checkpoint with all of its n rows.

    The last rows of one may follow the first rows of another whose end is missing, too: they state another n.
    """
    number = {name: F.get_json_object("detail", f"$.{name}").try_cast("long") for name in ("i", "n")}
    rows = rare.filter((F.col("event") == "CHECKPOINT") & of_a_replica()).withColumns(number)
    timeline = Window.partitionBy(*OBSERVER).orderBy("seq")
    numbered = rows.withColumn("nth", F.count(F.when(F.col("i") == 1, 1)).over(timeline))
    whole = numbered.groupBy(*OBSERVER, "nth", "n").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.unix_micros(F.max("event_at")).alias("last_us"),
        F.count("*").alias("rows"),
        F.count_distinct("i").alias("different"),
    )
    return whole.filter("rows = n and different = n").drop("nth", "n", "rows", "different")
