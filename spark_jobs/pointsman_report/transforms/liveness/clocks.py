"""How far the clocks of the name servers are apart, by the same facts that several of them wrote down.

A fact is a registration, a leave or a topic change that names its process and topic version, and that a node wrote once
on that day. Name servers hear of it within a second or so; the median over many facts leaves the clocks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE, OBSERVER
from pointsman_report.schemas.liveness import OBSERVER_CLOCKS
from pointsman_report.transforms import days

SHARED = ("REGISTERED", "RESTARTED", "ADDRESS_CHANGED", "ROLE_CHANGED", "UNREGISTERED", "TOPICS")
LEAST_SAMPLES = 5
"""Fewer shared facts say nothing."""


def observer_clocks(events: DataFrame) -> DataFrame:
    """A row for each node and day it wrote on."""
    # In its own unit, for a microsecond count has no room for the absurd.
    began = F.try_subtract(F.unix_micros("event_at"), F.try_multiply("uptime_ms", F.lit(1_000)))
    lives = events.groupBy("dt", *OBSERVER).agg(F.try_subtract(F.max(began), F.min(began)).alias("strayed"))
    nodes = lives.groupBy("dt", "node").agg(days.seconds(F.max("strayed")).alias("stepped_seconds"))
    measured = nodes.join(_offsets(events), on=["dt", "node"], how="left").withColumn(
        "samples", F.coalesce("samples", F.lit(0))
    )
    return measured.select(*OBSERVER_CLOCKS.fieldNames())


def _offsets(events: DataFrame) -> DataFrame:
    told = F.col("reason").isNull() | ~F.col("reason").isin("DAY", "START", "SNAPSHOT")
    known = F.col("incarnation").isNotNull() & F.col("data_version").isNotNull() & F.col("broker_name").isNotNull()
    fact = ("dt", *INSTANCE, "event", "incarnation", "data_version")
    facts = events.filter(F.col("event").isin(*SHARED) & told & known)
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
    enough = F.when(F.col("samples") >= LEAST_SAMPLES, days.seconds(F.col("offset")))
    return apart.withColumn("offset_seconds", enough)
