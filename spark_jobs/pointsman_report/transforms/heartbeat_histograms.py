"""Times between heartbeats: all observers' histograms of a day, and the quantiles read off them.

`beats`: the times between each broker's beats: all observers' histograms of the day added up; and the clocks of the
agents.

A name server writes a histogram each hour, and after ten minutes if a heartbeat was late. Single beats, which a history
may hold as well or instead, are counted for the brokers and days of which there is no histogram.

`heartbeat_punctuality`: how punctual heartbeats were: quantiles of a broker, and the histogram of a cluster.

A quantile is read off the histogram: within its bucket the beats count as evenly spread, and no quantile lies below the
shortest or above the longest time that was measured.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.health_tables import HEARTBEAT_HISTOGRAM, HEARTBEAT_PUNCTUALITY

EDGES_MS = tuple(round(250 * 2 ** (i / 2)) for i in range(25))
"""Upper edges of a name server's buckets, milliseconds; beyond the last one is 'inf'."""

MOST_BEATS = 10**9
"""Of a bucket: an hour holds no more, and no day's sum of so many leaves a long."""

_DETAIL = (
    "struct<min_ms:double,max_ms:double,heartbeat_interval_ms:bigint,clock_ahead_ms:bigint,buckets:map<string,bigint>>"
)
_TOLD, _SINGLE, _LATE, _CHECKPOINT = "HEARTBEATS", "HEARTBEAT", "LATE_HEARTBEAT", "CHECKPOINT"


def beats(events: DataFrame, clocks: DataFrame) -> DataFrame:
    """A row for each broker and day that beat: ``buckets`` (up_to_ms, beats; null is beyond the last edge, and stands
    last), ``min_ms``, ``max_ms``, ``heartbeat_interval_ms``, ``late`` and ``clock_ahead_ms``.

    ``clocks``: the days' ``observer_clocks``; an agent's clock is told against the median of the name servers'.
    """
    counted = _counted(events, clocks).groupBy("dt", *INSTANCE, "event", "node", "up_to_ms")
    # An observer matters to late beats alone: with it in every group there would be three times as many.
    by_bucket = counted.agg(
        F.sum("beats").alias("beats"),
        F.min("min_ms").alias("min_ms"),
        F.max("max_ms").alias("max_ms"),
        F.max("promised").alias("promised"),
        F.max("clock_ahead_ms").alias("clock_ahead_ms"),
    )
    one = F.struct(F.col("up_to_ms").isNull().alias("beyond"), "up_to_ms", "beats")
    sums = by_bucket.groupBy("dt", *INSTANCE).agg(
        F.max(F.col("event") == _TOLD).alias("is_told"),
        *(_of(kind, one, prefix) for kind, prefix in ((_TOLD, "told"), (_SINGLE, "single"))),
        *(F.min(F.when(F.col("event") == kind, F.col("min_ms"))).alias(f"min_{kind}") for kind in (_TOLD, _SINGLE)),
        *(F.max(F.when(F.col("event") == kind, F.col("max_ms"))).alias(f"max_{kind}") for kind in (_TOLD, _SINGLE)),
        F.max("promised")["interval_ms"].alias("heartbeat_interval_ms"),
        F.coalesce(F.max(F.when(F.col("event") == _LATE, F.col("beats"))), F.lit(0)).alias("late"),
        # What a beat is on its way makes it less, so the most is the truest.
        F.max("clock_ahead_ms").alias("clock_ahead_ms"),
    )

    def chosen(told: str, single: str) -> Column:
        return F.when(F.col("is_told"), F.col(told)).otherwise(F.col(single))

    whole = sums.select(
        "dt",
        *INSTANCE,
        chosen("told", "single").alias("buckets"),
        chosen(f"min_{_TOLD}", f"min_{_SINGLE}").alias("min_ms"),
        chosen(f"max_{_TOLD}", f"max_{_SINGLE}").alias("max_ms"),
        "heartbeat_interval_ms",
        "late",
        "clock_ahead_ms",
    )
    # A checkpoint alone says nothing of beats.
    return whole.filter((F.size("buckets") > 0) | (F.col("late") > 0))


def _of(kind: str, one: Column, name: str) -> Column:
    return F.sort_array(F.collect_list(F.when(F.col("event") == kind, one))).alias(name)


def _counted(events: DataFrame, clocks: DataFrame) -> DataFrame:
    """A row for each bucket of a histogram, each single beat, each late one and each promised interval."""
    event = F.col("event")
    about = events.filter(event.isin(_TOLD, _SINGLE, _LATE, _CHECKPOINT) & F.col("broker_id").isNotNull())
    detail = F.from_json(F.when(event.isin(_TOLD, _CHECKPOINT), F.col("detail")), _DETAIL)
    told = about.select("dt", *INSTANCE, "node", "event", "event_at", "interval_ms", detail.alias("said"))
    told = told.join(F.broadcast(clocks.select("dt", "node", "offset_seconds")), on=["dt", "node"], how="left")
    usable = F.col("interval_ms") >= 0
    single = F.struct(_bucket(F.col("interval_ms")).alias("edge"), F.lit(1).cast("long").alias("beats"))
    no_bucket = F.struct(F.lit(None).cast("string").alias("edge"), F.lit(1).cast("long").alias("beats"))
    entries = (
        F.when(event == _TOLD, F.transform(F.map_entries("said.buckets"), _entry))
        .when((event == _SINGLE) & usable, F.array(single))
        .when(event.isin(_LATE, _CHECKPOINT), F.array(no_bucket))
    )
    each = told.withColumn("entry", F.explode(entries)).withColumns(
        {"edge": F.col("entry.edge"), "beats": F.col("entry.beats")}
    )
    edge = F.when(F.col("edge") != "inf", F.col("edge").try_cast("long"))
    is_bucket = (F.col("edge") == "inf") | (edge >= 0)
    good = (is_bucket & F.col("beats").between(1, MOST_BEATS)) | event.isin(_LATE, _CHECKPOINT)
    interval = F.col("interval_ms").cast("double")
    promised = F.col("said.heartbeat_interval_ms")
    return each.filter(good).select(
        "dt",
        *INSTANCE,
        "event",
        F.when(event == _LATE, F.col("node")).alias("node"),
        edge.alias("up_to_ms"),
        "beats",
        F.when(event == _SINGLE, interval).otherwise(_measured("said.min_ms")).alias("min_ms"),
        F.when(event == _SINGLE, interval).otherwise(_measured("said.max_ms")).alias("max_ms"),
        F.when((event == _CHECKPOINT) & (promised > 0), F.struct("event_at", promised.alias("interval_ms"))).alias(
            "promised"
        ),
        (F.col("said.clock_ahead_ms") + F.coalesce("offset_seconds", F.lit(0.0)) * 1_000).alias("clock_ahead_ms"),
    )


def _entry(entry: Column) -> Column:
    return F.struct(entry["key"].alias("edge"), entry["value"].alias("beats"))


def _bucket(interval_ms: Column) -> Column:
    edges = F.array(*(F.lit(edge) for edge in EDGES_MS))
    first = F.filter(edges, lambda edge: edge >= interval_ms)
    return F.coalesce(F.get(first, F.lit(0)).cast("string"), F.lit("inf"))


def _measured(name: str) -> Column:
    """What can be a time; JSON's readers take 'NaN' and 'Infinity' for numbers."""
    value = F.col(name)
    return F.when(~F.isnan(value) & (value >= 0) & (value < float("inf")), value)


def heartbeat_punctuality(beats: DataFrame) -> DataFrame:
    """Each broker's day of `beats`."""
    total = F.aggregate("buckets", F.lit(0).cast("long"), lambda sum_, bucket: sum_ + bucket["beats"])
    counted = beats.withColumn("beats", total).withColumn("buckets", _with_lower_edges())
    return counted.select(
        "dt",
        *INSTANCE,
        "beats",
        "heartbeat_interval_ms",
        "min_ms",
        *(_quantile(share).alias(name) for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))),
        "max_ms",
        "late",
        "clock_ahead_ms",
    ).select(*HEARTBEAT_PUNCTUALITY.fieldNames())


def heartbeat_histogram(beats: DataFrame) -> DataFrame:
    """The clusters' sums of `beats`."""
    each = beats.select("dt", "cluster", F.inline("buckets"))
    return (
        each.groupBy("dt", "cluster", "up_to_ms")
        .agg(F.sum("beats").alias("beats"))
        .select(*HEARTBEAT_HISTOGRAM.fieldNames())
    )


def _with_lower_edges() -> Column:
    """Empty buckets are not told: below a name server's edge lies its next lower one, below another the broker's."""
    edges = F.array(*(F.lit(edge) for edge in EDGES_MS))
    lowers = F.array(*(F.lit(edge) for edge in (0, *EDGES_MS)))

    def lower(bucket: Column, index: Column) -> Column:
        own = F.get("buckets", index - 1)["up_to_ms"]
        place = F.array_position(edges, bucket["up_to_ms"].cast("int")).cast("int")
        named = F.when(bucket["beyond"], F.lit(EDGES_MS[-1])).otherwise(F.get(lowers, place - 1))
        return F.struct(
            F.coalesce(named, own, F.lit(0)).cast("double").alias("lower"),
            F.coalesce(bucket["up_to_ms"].cast("double"), "max_ms").alias("upper"),
            bucket["beats"].alias("beats"),
        )

    return F.transform("buckets", lower)


def _quantile(share: float) -> Column:
    rank = F.col("beats") * F.lit(share)

    def step(state: Column, bucket: Column) -> Column:
        upper = F.coalesce(bucket["upper"], bucket["lower"])
        within = bucket["lower"] + (upper - bucket["lower"]) * ((rank - state["seen"]) / bucket["beats"])
        reached = state["seen"] + bucket["beats"]
        return F.struct(
            reached.alias("seen"),
            F.coalesce(state["value"], F.when(reached >= rank, within)).alias("value"),
        )

    begin = F.struct(F.lit(0).cast("long").alias("seen"), F.lit(None).cast("double").alias("value"))
    value = F.aggregate("buckets", begin, step, lambda state: state["value"])
    at_least = F.when(value < F.col("min_ms"), F.col("min_ms")).otherwise(value)
    return F.when(at_least > F.col("max_ms"), F.col("max_ms")).otherwise(at_least)
