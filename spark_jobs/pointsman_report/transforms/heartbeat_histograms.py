"""Times between heartbeats: all observers' histograms of a day, and their quantiles.

`beats`: the times between each broker's heartbeats, summed over the day's histograms of all observers; and the agents'
clock offsets.

A name server writes a histogram each hour, and after ten minutes if a heartbeat was late. Rows of single heartbeats are
counted only for brokers and days without a histogram.

`heartbeat_punctuality`: quantiles of a broker, and the histogram of a cluster.

A quantile is interpolated linearly within its bucket, and limited to the shortest and longest measured time.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.health_tables import HEARTBEAT_HISTOGRAM, HEARTBEAT_PUNCTUALITY

EDGES_MS = tuple(round(250 * 2 ** (i / 2)) for i in range(25))
"""Upper edges of a name server's buckets, milliseconds; larger times are in 'inf'."""

MAX_BEATS = 10**9
"""Largest count accepted in a bucket. No hour has more, and a day's sum fits into a long."""

_DETAIL = (
    "struct<min_ms:double,max_ms:double,heartbeat_interval_ms:bigint,clock_ahead_ms:bigint,buckets:map<string,bigint>>"
)
_HISTOGRAM, _SINGLE, _LATE, _CHECKPOINT = "HEARTBEATS", "HEARTBEAT", "LATE_HEARTBEAT", "CHECKPOINT"


def beats(events: DataFrame, clocks: DataFrame) -> DataFrame:
    """A row for each broker and day with heartbeats: ``buckets`` (up_to_ms, beats; the last one has null: no upper
    edge), ``min_ms``, ``max_ms``, ``heartbeat_interval_ms``, ``late`` and ``clock_ahead_ms``.

    ``clocks``: the days' ``observer_clocks``; an agent's clock is compared with the median of the name servers' clocks.

    One row per broker and day with heartbeats; key: ``dt``, instance.
    """
    counted = _counted(events, clocks)
    is_checkpoint = F.col("event") == _CHECKPOINT
    # Spark would sort all rows for an aggregate of structures, such as ``announced``, which only checkpoints have.
    by_bucket = (
        counted.filter(~is_checkpoint)
        # The observer matters for late heartbeats only; in every group it would triple their number.
        .groupBy("dt", *INSTANCE, "event", "node", "up_to_ms")
        .agg(
            F.sum("beats").alias("beats"),
            F.min("min_ms").alias("min_ms"),
            F.max("max_ms").alias("max_ms"),
            F.max("clock_ahead_ms").alias("clock_ahead_ms"),
        )
        .unionByName(counted.filter(is_checkpoint), allowMissingColumns=True)
    )
    one = F.struct(F.col("up_to_ms").isNull().alias("beyond"), "up_to_ms", "beats")
    sums = by_bucket.groupBy("dt", *INSTANCE).agg(
        F.max(F.col("event") == _HISTOGRAM).alias("has_histogram"),
        *(_of(kind, one, prefix) for kind, prefix in ((_HISTOGRAM, "histogram"), (_SINGLE, "single"))),
        *(
            F.min(F.when(F.col("event") == kind, F.col("min_ms"))).alias(f"min_{kind}")
            for kind in (_HISTOGRAM, _SINGLE)
        ),
        *(
            F.max(F.when(F.col("event") == kind, F.col("max_ms"))).alias(f"max_{kind}")
            for kind in (_HISTOGRAM, _SINGLE)
        ),
        F.max("announced")["interval_ms"].alias("heartbeat_interval_ms"),
        F.coalesce(F.max(F.when(F.col("event") == _LATE, F.col("beats"))), F.lit(0)).alias("late"),
        # Network delay lowers the value, so the highest is the most accurate.
        F.max("clock_ahead_ms").alias("clock_ahead_ms"),
    )

    def chosen(histogram: str, single: str) -> Column:
        return F.when(F.col("has_histogram"), F.col(histogram)).otherwise(F.col(single))

    whole = sums.select(
        "dt",
        *INSTANCE,
        chosen("histogram", "single").alias("buckets"),
        chosen(f"min_{_HISTOGRAM}", f"min_{_SINGLE}").alias("min_ms"),
        chosen(f"max_{_HISTOGRAM}", f"max_{_SINGLE}").alias("max_ms"),
        "heartbeat_interval_ms",
        "late",
        "clock_ahead_ms",
    )
    # A checkpoint alone does not count as a heartbeat.
    return whole.filter((F.size("buckets") > 0) | (F.col("late") > 0))


def _of(kind: str, one: Column, name: str) -> Column:
    return F.sort_array(F.collect_list(F.when(F.col("event") == kind, one))).alias(name)


def _counted(events: DataFrame, clocks: DataFrame) -> DataFrame:
    """A row for each bucket of a histogram, each single heartbeat, each late one and each announced interval."""
    event = F.col("event")
    rows = events.filter(event.isin(_HISTOGRAM, _SINGLE, _LATE, _CHECKPOINT) & F.col("broker_id").isNotNull())
    detail = F.from_json(F.when(event.isin(_HISTOGRAM, _CHECKPOINT), F.col("detail")), _DETAIL)
    rows = rows.select("dt", *INSTANCE, "node", "event", "event_at", "interval_ms", detail.alias("parsed"))
    rows = rows.join(F.broadcast(clocks.select("dt", "node", "offset_seconds")), on=["dt", "node"], how="left")
    usable = F.col("interval_ms") >= 0
    single = F.struct(_bucket(F.col("interval_ms")).alias("edge"), F.lit(1).cast("long").alias("beats"))
    no_bucket = F.struct(F.lit(None).cast("string").alias("edge"), F.lit(1).cast("long").alias("beats"))
    entries = (
        F.when(event == _HISTOGRAM, F.transform(F.map_entries("parsed.buckets"), _entry))
        .when((event == _SINGLE) & usable, F.array(single))
        .when(event.isin(_LATE, _CHECKPOINT), F.array(no_bucket))
    )
    each = rows.withColumn("entry", F.explode(entries)).withColumns(
        {"edge": F.col("entry.edge"), "beats": F.col("entry.beats")}
    )
    edge = F.when(F.col("edge") != "inf", F.col("edge").try_cast("long"))
    is_bucket = (F.col("edge") == "inf") | (edge >= 0)
    good = (is_bucket & F.col("beats").between(1, MAX_BEATS)) | event.isin(_LATE, _CHECKPOINT)
    interval = F.col("interval_ms").cast("double")
    announced = F.col("parsed.heartbeat_interval_ms")
    return each.filter(good).select(
        "dt",
        *INSTANCE,
        "event",
        F.when(event == _LATE, F.col("node")).alias("node"),
        edge.alias("up_to_ms"),
        "beats",
        F.when(event == _SINGLE, interval).otherwise(_measured("parsed.min_ms")).alias("min_ms"),
        F.when(event == _SINGLE, interval).otherwise(_measured("parsed.max_ms")).alias("max_ms"),
        F.when((event == _CHECKPOINT) & (announced > 0), F.struct("event_at", announced.alias("interval_ms"))).alias(
            "announced"
        ),
        (F.col("parsed.clock_ahead_ms") + F.coalesce("offset_seconds", F.lit(0.0)) * 1_000).alias("clock_ahead_ms"),
    )


def _entry(entry: Column) -> Column:
    return F.struct(entry["key"].alias("edge"), entry["value"].alias("beats"))


def _bucket(interval_ms: Column) -> Column:
    edges = F.array(*(F.lit(edge) for edge in EDGES_MS))
    first = F.filter(edges, lambda edge: edge >= interval_ms)
    return F.coalesce(F.get(first, F.lit(0)).cast("string"), F.lit("inf"))


def _measured(name: str) -> Column:
    """Return the value if it can be a time, else null: JSON readers accept 'NaN' and 'Infinity' as numbers."""
    value = F.col(name)
    return F.when(~F.isnan(value) & (value >= 0) & (value < float("inf")), value)


def heartbeat_punctuality(beats: DataFrame) -> DataFrame:
    """The times between heartbeats, from `beats`. One row per broker and day; key: ``dt``, instance."""
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
    ).select(*HEARTBEAT_PUNCTUALITY.columns)


def heartbeat_histogram(beats: DataFrame) -> DataFrame:
    """Sum `beats` by cluster. One row per cluster, day and bucket; key: ``dt``, ``cluster``, ``up_to_ms``."""
    each = beats.select("dt", "cluster", F.inline("buckets"))
    return (
        each.groupBy("dt", "cluster", "up_to_ms")
        .agg(F.sum("beats").alias("beats"))
        .select(*HEARTBEAT_HISTOGRAM.columns)
    )


def _with_lower_edges() -> Column:
    """Add each bucket's lower edge. Histograms omit empty buckets, so it is the name server's next lower edge if that
    is known, else the broker's previous bucket."""
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
