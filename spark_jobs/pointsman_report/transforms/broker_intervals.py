"""Each broker's intervals, its day in seconds, its state for the next day, and disagreements, from the sweep's steps.

`broker_intervals`: the intervals of each day, and the state of each broker at the end of the day.

`availability`: a broker's day in seconds: up, down, planned; outages and their time to recover.

Computed from one partition of ``broker_intervals`` alone. Definitions: availability = U / (U + D); MTTR = mean length
of the outages that ended on the day and were observed from start to end; MTBF = U / outages that began on the day. A
planned shutdown is not an outage, and its time is in neither U nor D.

`broker_state`: the state carried from one day to the next, so that a day can be computed alone.

`partial_views`: periods in which some name servers saw a broker up and others saw it down.

A few seconds at each expiry are normal, because name servers do not notice it at the same moment; the report shows the
long ones. Name servers without a vote (no opinion, paused, not running) are on neither side.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness_tables import (
    AVAILABILITY,
    BROKER_INTERVALS,
    BROKER_STATE,
    PARTIAL_VIEWS,
)
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.utc_days import lit_day
from pointsman_report.transforms.vote_sweep import ORDER

_SETS = ("seen_up_by", "seen_down_by")
_AFTER_ALL_PHASES = 3


def _timeline() -> WindowSpec:
    return Window.partitionBy(*INSTANCE).orderBy("at", "node", "boot_id", "seq")


def broker_intervals(sweep: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """Return each interval under the day it ended on, with a copy cut at midnight for each earlier day.

    One row per interval and day that it touches; key: ``dt``, instance, ``start_at``, ``end_at``, ``state``, which
    intervals without length may share.
    """
    changes = sweep.filter("changes").withColumns(
        {"end_us": F.lead("at").over(_timeline()), "end_seen": F.lead(F.col("start").isNotNull()).over(_timeline())}
    )
    known = changes.filter(F.col("start").isNotNull())
    ended_on = utc_days.day_of(F.col("end_us"))
    last_open_day = F.coalesce(F.date_sub(ended_on, 1), lit_day(last_day))
    first_open_day = F.greatest(F.to_date("start.start_at"), lit_day(first_day))
    shared = (*INSTANCE, "start.*")
    closed = known.filter(F.col("end_us").isNotNull()).select(
        ended_on.alias("dt"),
        *shared,
        F.timestamp_micros("end_us").alias("end_at"),
        (~F.col("end_seen")).alias("end_censored"),
        F.lit(False).alias("open"),
    )
    outlasted = known.select("*", F.explode(utc_days.days_between(first_open_day, last_open_day)).alias("dt"))
    still_open = outlasted.select(
        "dt",
        *shared,
        F.timestamp_micros(utc_days.ends(F.col("dt"))).alias("end_at"),
        F.lit(True).alias("end_censored"),
        F.lit(True).alias("open"),
    )
    return closed.unionByName(still_open).select(*BROKER_INTERVALS.columns)


def known_brokers(sweep: DataFrame) -> DataFrame:
    """``known_from``: the first day on which a broker has a state; from then on it has one each day.

    One row per known broker; key: instance.
    """
    return sweep.groupBy(*INSTANCE).agg(F.min(utc_days.day_of(F.col("at"))).alias("known_from"))


def held_states(sweep: DataFrame, carried: DataFrame, *, last_day: date) -> DataFrame:
    """``held``: ``current``, ``last_state``, ``last_loss`` at a day's end, and the broker's columns of ``carried``; on
    the first of the days that end with them.

    One row per broker and day that ends with another state than the one before; key: ``dt``, instance.
    """
    steps = sweep.join(carried, on=list(INSTANCE), how="left")
    until = F.coalesce(F.lead("at").over(_timeline()), F.lit(utc_days.end_of(last_day)))
    others = (name for name in carried.columns if name not in INSTANCE)
    first_on, next_on = utc_days.day_of(F.col("at")), utc_days.day_of(F.col("until"))
    state = F.struct(F.col("start").alias("current"), "last_state", "last_loss", *others)
    held = steps.withColumn("until", until).filter(first_on < next_on)
    return held.select(first_on.alias("dt"), *INSTANCE, state.alias("held"))


def is_outage() -> Column:
    """Whether an interval of ``broker_intervals`` is an outage: down and not planned."""
    return (F.col("state") == "down") & ~F.col("planned")


def began_on_its_day() -> Column:
    """Whether an interval began on the day of its partition; counts each interval once."""
    return (F.to_date("start_at") == F.col("dt")) & ~F.col("continues")


def is_whole_day() -> Column:
    """Whether an interval of ``broker_intervals`` covers all of its day: then it is the broker's only one."""
    return F.col("open") & (F.unix_micros("start_at") < utc_days.starts(F.col("dt")))


def availability(intervals: DataFrame) -> DataFrame:
    """Sum ``broker_intervals``. One row per broker and day; key: ``dt``, instance."""
    start, end = F.unix_micros("start_at"), F.unix_micros("end_at")
    whole = end - start
    outage = is_outage()
    repaired = outage & ~F.col("start_censored") & ~F.col("end_censored")
    sums = {
        "up": _where(F.col("state") == "up", _of_day()),
        "down": _where(outage, _of_day()),
        "planned": _where(F.col("planned"), _of_day()),
        "outages": _where(outage & began_on_its_day(), F.lit(1).cast("long")),
        "repaired": _where(repaired, F.lit(1).cast("long")),
        "repair": _where(repaired, whole),
    }
    each = intervals.select(
        "dt",
        *INSTANCE,
        is_whole_day().alias("is_whole_day"),
        *(value.alias(name) for name, value in sums.items()),
        F.when(outage, whole).alias("longest"),
    )
    # Most days of most brokers are such rows: they need not be grouped.
    of_parts = each.filter(~F.col("is_whole_day")).groupBy("dt", *INSTANCE)
    summed = of_parts.agg(*(F.sum(name).alias(name) for name in sums), F.max("longest").alias("longest"))
    days = each.filter("is_whole_day").drop("is_whole_day").unionByName(summed)
    rated = days.select(
        "dt",
        *INSTANCE,
        *(utc_days.seconds(F.col(name)).alias(f"{name}_seconds") for name in ("up", "down", "planned", "repair")),
        "outages",
        "repaired",
        utc_days.seconds(F.col("longest")).alias("longest_outage_seconds"),
    )
    up, down = F.col("up_seconds"), F.col("down_seconds")
    rates = {
        "availability": F.try_divide(up, up + down),
        "mttr_seconds": F.try_divide("repair_seconds", "repaired"),
        "mtbf_seconds": F.try_divide("up_seconds", "outages"),
    }
    return rated.withColumns(rates).select(*AVAILABILITY.columns)


def day_sums(intervals: DataFrame) -> DataFrame:
    """``seen_on`` (the day), ``outages``, ``down_seconds``, ``watched_seconds`` and ``longest_stable_seconds``: the
    longest part of the day that one interval covers. Of days without the interval of `is_whole_day`.

    One row per broker and day with several intervals; key: ``dt``, instance.
    """
    summed = intervals.filter(~is_whole_day()).groupBy("dt", *INSTANCE)
    return summed.agg(
        F.sum(_where(is_outage() & began_on_its_day(), F.lit(1).cast("long"))).alias("outages"),
        utc_days.seconds(F.sum(_where(is_outage(), _of_day()))).alias("down_seconds"),
        utc_days.seconds(F.sum(_of_day())).alias("watched_seconds"),
        utc_days.seconds(F.max(_of_day())).alias("longest_stable_seconds"),
    ).withColumn("seen_on", F.col("dt"))


def _of_day() -> Column:
    """The microseconds of an interval of ``broker_intervals`` on its day."""
    return F.unix_micros("end_at") - F.greatest(F.unix_micros("start_at"), utc_days.starts(F.col("dt")))


def _where(condition: Column, value: Column) -> Column:
    # Sums are of integers: a sum of floats would depend on the order of the rows.
    return F.when(condition, value).otherwise(F.lit(0).cast("long"))


def broker_state(days_known: DataFrame) -> DataFrame:
    """Each known broker at each day's end. One row per broker and day; key: ``dt``, instance."""
    state = days_known.withColumns(
        {
            "penalty": F.col("penalty_end"),
            "penalty_at": F.timestamp_micros(utc_days.ends(F.col("dt"))),
        }
    )
    return state.select(*BROKER_STATE.columns)


def partial_views(sweep: DataFrame, votes: DataFrame, *, last_day: date) -> DataFrame:
    """Return the disagreements, with the name servers on each side.

    One row per disagreement and day that it touches; key: ``dt``, instance, ``from_at``, ``to_at``.
    """
    votes_of = _who_saw_what(_moments(sweep, last_day=last_day), votes)
    last = utc_days.day_of(F.col("until") - 1)
    daily = votes_of.select("*", F.explode(utc_days.days_between(utc_days.day_of(F.col("at")), last)).alias("dt"))
    cut = daily.withColumns(
        {
            "from_us": F.greatest("at", utc_days.starts(F.col("dt"))),
            "to_us": F.least("until", utc_days.ends(F.col("dt"))),
        }
    )
    timeline = Window.partitionBy("dt", *INSTANCE).orderBy("from_us")
    same = F.lit(True)
    for name in ("to_us", *_SETS):
        other = F.col("from_us") if name == "to_us" else F.col(name)
        same = same & F.coalesce(F.lag(name).over(timeline) == other, F.lit(False))
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    pieces = cut.withColumn("begins", (~same).cast("int")).withColumn("piece", F.sum("begins").over(to_here))
    whole = pieces.groupBy("dt", *INSTANCE, "piece", *_SETS).agg(
        F.timestamp_micros(F.min("from_us")).alias("from_at"),
        F.timestamp_micros(F.max("to_us")).alias("to_at"),
        (F.max("to_us") == utc_days.ends(F.col("dt"))).alias("open"),
    )
    return whole.select(*PARTIAL_VIEWS.columns)


def _moments(sweep: DataFrame, *, last_day: date) -> DataFrame:
    """Periods between two steps with votes on both sides."""
    timeline = Window.partitionBy(*INSTANCE).orderBy(*ORDER)
    until = F.coalesce(F.lead("at").over(timeline), F.lit(utc_days.end_of(last_day)))
    lasting = sweep.withColumn("until", until).filter((F.col("up") > 0) & (F.col("down") > 0))
    return lasting.filter(F.col("until") > F.col("at")).select(*INSTANCE, "at", "until")


def _who_saw_what(moments: DataFrame, votes: DataFrame) -> DataFrame:
    """Add the two sets of nodes to each period: each observer's last vote before it counts."""
    divided = moments.select(*INSTANCE).distinct()
    cast = votes.select(*INSTANCE, *OBSERVER, "at", "phase", "seq", "vote").join(
        divided, on=list(INSTANCE), how="left_semi"
    )
    observers = cast.groupBy(*INSTANCE).agg(F.collect_set(F.struct(*OBSERVER)).alias("observers"))
    queried = moments.join(observers, on=list(INSTANCE), how="inner").select(
        *INSTANCE,
        F.inline("observers"),
        "at",
        F.lit(_AFTER_ALL_PHASES).alias("phase"),
        F.lit(0).cast("long").alias("seq"),
        "until",
    )
    timeline = Window.partitionBy(*INSTANCE, *OBSERVER).orderBy("at", "phase", "seq")
    to_here = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    both = cast.unionByName(queried, allowMissingColumns=True)
    last_votes = both.withColumn("vote", F.last("vote", ignorenulls=True).over(to_here)).filter(
        F.col("until").isNotNull()
    )
    return last_votes.groupBy(*INSTANCE, "at", "until").agg(
        _nodes_that_voted("up").alias("seen_up_by"), _nodes_that_voted("down").alias("seen_down_by")
    )


def _nodes_that_voted(vote: str) -> Column:
    return F.sort_array(F.collect_set(F.when(F.col("vote") == vote, F.col("node"))))
