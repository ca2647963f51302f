"""Topics that were one fault away from nobody writing to them, or beyond it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas.topics import TOPICS_AT_RISK
from pointsman_report.transforms import days


def topics_at_risk(holdings: DataFrame) -> DataFrame:
    """Sum up the periods of `holdings_at_risk` for each topic.

    A topic that one broker alone ever held is no finding while that one is up: that is how it was made.
    """
    one_broker, no_master, unwritable = map(_microseconds, ("one_broker", "no_master", "unwritable"))
    summed = holdings.select(
        "dt",
        "cluster",
        "brokers",
        "topics",
        one_broker.alias("one_broker"),
        no_master.alias("no_master"),
        unwritable.alias("unwritable"),
        F.timestamp_micros(F.array_min(F.transform("periods", lambda period: period["from_us"]))).alias("first_at"),
    )
    # Time without a master in which nobody was left to read from either is the worst.
    worst = (
        F.when(F.col("unwritable") > F.col("no_master"), "unwritable")
        .when(F.col("no_master") > 0, "no_master")
        .otherwise("one_broker")
    )
    named = summed.select(
        "*",
        F.explode("topics").alias("topic"),
        worst.alias("worst"),
        *(days.seconds(F.col(name)).alias(f"{name}_seconds") for name in ("one_broker", "no_master", "unwritable")),
    )
    return named.select(*TOPICS_AT_RISK.fieldNames())


def _microseconds(risk: str) -> Column:
    return F.aggregate(
        F.filter("periods", lambda period: period[risk]),
        F.lit(0).cast("long"),
        lambda total, period: total + period["to_us"] - period["from_us"],
    )
