"""Reliability of the name servers, and their clock offsets.

`namesrv_days`: runs, starts and stops, warm-up, pauses, guard and rows of each name server.

`observer_clocks`: clock offsets between name servers, measured by facts that several of them recorded.

A fact is a registration, a planned shutdown or a topic change that names its process and topic version, and that a node
wrote once on that day. Name servers receive it within about a second of each other; the median over many facts is the
clock offset.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness_tables import NAMESRV_DAYS, OBSERVER_CLOCKS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.observer_periods import GUARD, PAUSED

_ABOUT_ITSELF = ("NAMESRV_STARTED", "NAMESRV_READY", "NAMESRV_STOPPED", "NAMESRV_PAUSED", "NAMESRV_ALIVE", "REJECTED")
_COUNTED = (
    "lives",
    "starts",
    "stops",
    "vanished",
    "pauses",
    "guard_activations",
    "rejected",
    "rows",
    "rows_missing",
    "rows_dropped",
    "overlapping_lives",
)
_SECONDS = ("watched_seconds", "paused_seconds", "guard_seconds")
SHARED = ("REGISTERED", "RESTARTED", "ADDRESS_CHANGED", "ROLE_CHANGED", "UNREGISTERED", "TOPICS")
MIN_SAMPLES = 5
"""With fewer shared facts the offset is unknown."""


def namesrv_days(events: DataFrame, windows: DataFrame, blind: DataFrame) -> DataFrame:
    """The record of the name servers. One row per node and day on which it ran; key: ``dt``, ``node``."""
    day = ("dt", "node")
    run = ("dt", *OBSERVER)
    start = utc_days.starts(F.col("dt"))
    begins, ends = F.greatest(F.unix_micros("from_at"), start), F.unix_micros("to_at")
    watched = ends - begins - _missing_us(begins, ends)
    runs = (
        windows.join(_counts(events), on=list(run), how="left")
        .join(_blind(blind), on=list(run), how="left")
        .join(_overlaps(windows), on=list(run), how="left")
    )
    ended = ~F.col("open") & (F.unix_micros("to_at") >= start) & (F.coalesce("stops", F.lit(0)) == 0)
    summed = runs.groupBy(*day).agg(
        F.count("*").alias("lives"),
        *(F.sum(name).alias(name) for name in ("starts", "stops", "pauses", "rejected", "rows_dropped")),
        F.count(F.when(ended, 1)).alias("vanished"),
        utc_days.seconds(F.sum(F.greatest(watched, F.lit(0)))).alias("watched_seconds"),
        (F.max("warm_up_ms") / 1_000).alias("warm_up_seconds_max"),
        utc_days.seconds(F.sum("paused_us")).alias("paused_seconds"),
        F.sum("guard_activations").alias("guard_activations"),
        utc_days.seconds(F.sum("guard_us")).alias("guard_seconds"),
        F.sum("rows").alias("rows"),
        F.sum("rows_missing").alias("rows_missing"),
        F.count("overlaps").alias("overlapping_lives"),
    )
    return summed.fillna(0, list(_COUNTED)).fillna(0.0, list(_SECONDS)).select(*NAMESRV_DAYS.columns)


def _missing_us(begins: Column, ends: Column) -> Column:
    """The time of a window that lies in its holes."""

    def length(gap: Column) -> Column:
        after, before = F.coalesce(F.unix_micros(gap["after_at"]), begins), F.unix_micros(gap["before_at"])
        return F.greatest(F.least(before, ends) - F.greatest(after, begins), F.lit(0))

    return F.aggregate("gaps", F.lit(0).cast("long"), lambda sum_, gap: sum_ + length(gap))


def _counts(events: DataFrame) -> DataFrame:
    dropped = F.get_json_object("detail", "$.rows_dropped").try_cast("bigint")
    own = events.filter(F.col("event").isin(*_ABOUT_ITSELF)).withColumn("dropped", dropped)
    counted = own.groupBy("dt", *OBSERVER).agg(
        _count("NAMESRV_STARTED").alias("starts"),
        _count("NAMESRV_STOPPED").alias("stops"),
        _count("NAMESRV_PAUSED").alias("pauses"),
        _count("REJECTED").alias("rejected"),
        F.max(F.when(F.col("event") == "NAMESRV_READY", F.col("uptime_ms"))).alias("warm_up_ms"),
        F.max("dropped").alias("most"),
        F.min("dropped").alias("least"),
    )
    # The name server counts from its start.
    since = F.when(F.col("starts") > 0, F.lit(0)).otherwise(F.col("least"))
    return counted.withColumn("rows_dropped", F.try_subtract("most", since)).drop("most", "least")


def _count(event: str) -> Column:
    return F.count(F.when(F.col("event") == event, 1))


def _blind(blind: DataFrame) -> DataFrame:
    start = utc_days.starts(F.col("dt"))
    length = F.unix_micros("to_at") - F.greatest(F.unix_micros("from_at"), start)
    guard = F.col("why") == GUARD
    began = F.unix_micros("from_at") >= start
    return blind.groupBy("dt", *OBSERVER).agg(
        F.sum(F.when(guard, length)).alias("guard_us"),
        F.sum(F.when(F.col("why") == PAUSED, length)).alias("paused_us"),
        F.count(F.when(guard & began, 1)).alias("guard_activations"),
    )


def _overlaps(windows: DataFrame) -> DataFrame:
    """Runs that overlap another run of the same node, by the rows they wrote."""
    one, other = windows.alias("one"), windows.alias("other")
    both = one.join(
        other,
        on=(F.col("one.dt") == F.col("other.dt"))
        & (F.col("one.node") == F.col("other.node"))
        & (F.col("one.boot_id") != F.col("other.boot_id"))
        & (F.col("one.from_at") < F.col("other.last_row_at"))
        & (F.col("other.from_at") < F.col("one.last_row_at")),
        how="inner",
    )
    named = both.select(*(F.col(f"one.{name}").alias(name) for name in ("dt", *OBSERVER)))
    return named.distinct().withColumn("overlaps", F.lit(1))


def observer_clocks(events: DataFrame) -> DataFrame:
    """How far the nodes' clocks are ahead. One row per node and day with rows; key: ``dt``, ``node``."""
    # Subtracted with overflow checks: an absurd uptime would overflow a count of microseconds.
    began = F.try_subtract(F.unix_micros("event_at"), F.try_multiply("uptime_ms", F.lit(1_000)))
    runs = events.groupBy("dt", *OBSERVER).agg(F.try_subtract(F.max(began), F.min(began)).alias("strayed"))
    nodes = runs.groupBy("dt", "node").agg(utc_days.seconds(F.max("strayed")).alias("stepped_seconds"))
    measured = nodes.join(_offsets(events), on=["dt", "node"], how="left").withColumn(
        "samples", F.coalesce("samples", F.lit(0))
    )
    return measured.select(*OBSERVER_CLOCKS.columns)


def _offsets(events: DataFrame) -> DataFrame:
    is_live = F.col("reason").isNull() | ~F.col("reason").isin("DAY", "START", "SNAPSHOT")
    known = F.col("incarnation").isNotNull() & F.col("data_version").isNotNull() & F.col("broker_name").isNotNull()
    fact = ("dt", *INSTANCE, "event", "incarnation", "data_version")
    facts = events.filter(F.col("event").isin(*SHARED) & is_live & known)
    once = facts.groupBy(*fact, "node").agg(F.min(F.unix_micros("event_at")).alias("at"), F.count("*").alias("times"))
    seen = F.collect_list(F.struct("node", "at"))
    shared = (
        once.filter(F.col("times") == 1)
        .groupBy(*fact)
        .agg(seen.alias("seen"), F.percentile("at", F.lit(0.5)).alias("middle"))
        .filter(F.size("seen") > 1)
    )
    samples = shared.select("dt", "middle", F.inline("seen"))
    ahead = F.col("at") - F.col("middle")
    apart = samples.groupBy("dt", "node").agg(
        F.percentile(ahead, F.lit(0.5)).alias("offset"), F.count("*").alias("samples")
    )
    enough = F.when(F.col("samples") >= MIN_SAMPLES, utc_days.seconds(F.col("offset")))
    return apart.withColumn("offset_seconds", enough)
