"""How punctual heartbeats were: quantiles of a broker, and the histogram of a cluster.

A quantile is read off the histogram: within its bucket the beats count as evenly spread, and no quantile lies below the
shortest or above the longest time that was measured.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.health import HEARTBEAT_HISTOGRAM, HEARTBEAT_PUNCTUALITY
from pointsman_report.transforms.health.beats import EDGES_MS


def heartbeat_punctuality(beats: DataFrame) -> DataFrame:
    """Each broker's day of `beats.beats`."""
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
    """The clusters' sums of `beats.beats`."""
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
