"""Maintenance windows, for readers: whether a broker is down by plan stands in each row about it (``planned``).

A window lasts until its time is over, until an operator ends it, or until that node gets another one of the same broker
or cluster.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.schemas.liveness import MAINTENANCE_WINDOWS
from pointsman_report.transforms import days
from pointsman_report.transforms.liveness.blind import by_day

UNTIL_TOLD_SECONDS = 86_400.0
"""How long a window of no length lasts if nobody ends it: a forgotten one must not hide outages for good."""

LONGEST_SECONDS = 1e9


def maintenance_windows(events: DataFrame, yesterday: DataFrame, *, first_day: date, last_day: date) -> DataFrame:
    """A row for each window and each day it touches; ``yesterday``: those of the day before the first."""
    told = events.filter(F.col("event").isin("MAINTENANCE_ON", "MAINTENANCE_OFF") & F.col("cluster").isNotNull())
    at = F.unix_micros("event_at")
    length = F.get_json_object("detail", "$.seconds").try_cast("double")
    bounded = F.when(length.between(0.0, LONGEST_SECONDS), length).otherwise(F.lit(UNTIL_TOLD_SECONDS))
    until = at + F.round(bounded * days.SECOND).cast("long")
    said = told.select(
        "node",
        "boot_id",
        "seq",
        "cluster",
        "broker_name",
        at.alias("from_us"),
        F.when(F.col("event") == "MAINTENANCE_ON", until).alias("until_us"),
    )
    carried = yesterday.filter("open").select(
        "node",
        F.lit("").alias("boot_id"),
        F.lit(0).cast("long").alias("seq"),
        "cluster",
        "broker_name",
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("until_at").alias("until_us"),
    )
    story = Window.partitionBy("node", "cluster", "broker_name").orderBy("from_us", "boot_id", "seq")
    told_next = said.unionByName(carried).withColumn("next_us", F.lead("from_us").over(story))
    windows = told_next.filter(F.col("until_us").isNotNull()).withColumns(
        {"to_us": F.least("until_us", "next_us"), "until_at": F.timestamp_micros("until_us")}
    )
    lasting = windows.filter(F.col("to_us") > F.col("from_us"))
    return by_day(lasting, first_day=first_day, last_day=last_day).select(*MAINTENANCE_WINDOWS.fieldNames())
