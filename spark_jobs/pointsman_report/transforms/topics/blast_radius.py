"""What incidents did to topics."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas.topics import BLAST_RADIUS
from pointsman_report.transforms import days

MOST_NAMES = 20


def blast_radius(incidents: DataFrame, topic_intervals: DataFrame, holdings: DataFrame) -> DataFrame:
    """Say for each incident which topics had queues on its brokers, and how long those had no writable queue.

    Counted from the incident's first outage until its last broker was back, or until the day's end. ``holdings`` are
    those of `holdings_at_risk`.
    """
    until = F.coalesce(F.unix_micros("back_at"), days.ends(F.col("dt")))
    spans = incidents.select(
        "dt", "incident_id", "cluster", F.unix_micros("from_at").alias("since"), until.alias("until"), "members"
    )
    hit = _hit(spans, topic_intervals)
    seconds = _unwritable(hit, holdings)
    told = hit.join(seconds, on=["dt", "incident_id", "cluster", "topic"], how="left")
    told = told.withColumn("lasted", F.coalesce("lasted", F.lit(0)))
    ranked = told.withColumn(
        "place",
        F.row_number().over(Window.partitionBy("dt", "incident_id").orderBy(F.col("lasted").desc(), "topic")),
    )
    listed = F.when(F.col("place") <= MOST_NAMES, F.struct("place", "topic"))
    summed = ranked.groupBy("dt", "incident_id").agg(
        F.count("*").alias("topics_hit"),
        F.count_if(F.col("lasted") > 0).alias("topics_unwritable"),
        F.sum("lasted").alias("lasted"),
        F.sort_array(F.collect_list(listed)).alias("listed"),
    )
    each = incidents.select("dt", "incident_id").join(summed, on=["dt", "incident_id"], how="left")
    return each.select(
        "dt",
        "incident_id",
        F.coalesce("topics_hit", F.lit(0)).cast("long").alias("topics_hit"),
        F.coalesce("topics_unwritable", F.lit(0)).cast("long").alias("topics_unwritable"),
        days.seconds(F.coalesce("lasted", F.lit(0))).alias("unwritable_seconds"),
        F.coalesce(F.transform("listed", lambda one: one["topic"]), F.array().cast("array<string>")).alias("topics"),
    ).select(*BLAST_RADIUS.fieldNames())


def _hit(spans: DataFrame, topic_intervals: DataFrame) -> DataFrame:
    members = spans.select("dt", "incident_id", "cluster", "since", "until", F.inline("members"))
    holds = (F.col("from_at") <= F.col("start_at")) & (F.col("start_at") < F.col("to_at"))
    held = topic_intervals.select("dt", "cluster", "broker_name", "broker_id", "topic", "from_at", "to_at")
    joined = members.join(held, on=["dt", "cluster", "broker_name", "broker_id"], how="inner").filter(holds)
    return joined.select("dt", "incident_id", "cluster", "topic", "since", "until").distinct()


def _unwritable(hit: DataFrame, holdings: DataFrame) -> DataFrame:
    dead = holdings.withColumn("periods", F.filter("periods", lambda period: period["unwritable"]))
    named = dead.filter(F.size("periods") > 0).select("dt", "cluster", F.explode("topics").alias("topic"), "periods")
    joined = hit.join(named, on=["dt", "cluster", "topic"], how="inner")
    overlap = F.aggregate(
        "periods",
        F.lit(0).cast("long"),
        lambda total, period: (
            total
            + F.greatest(
                F.lit(0).cast("long"),
                F.least(period["to_us"], F.col("until")) - F.greatest(period["from_us"], F.col("since")),
            )
        ),
    )
    return joined.select("dt", "incident_id", "cluster", "topic", overlap.alias("lasted"))
