"""The slow track: each broker's outages of the last days against the other brokers of its cluster.

The rate of the others leaves the broker itself out, so that a flapper does not hide behind its own outages, and adds
one outage to theirs, so that quiet neighbours prove little. Outages of incidents count for nobody. Which of a cluster's
brokers are outliers is bounded by the share of false ones among them (Benjamini and Hochberg).
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import RankingParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping import FLAP_RANKING
from pointsman_report.transforms import days
from pointsman_report.transforms.flapping.poisson import upper_tail

_CLUSTER = ("dt", "cluster")


def broker_days(availability: DataFrame, flapping: DataFrame) -> DataFrame:
    """``watched_us`` and ``outages`` (without those of incidents) of each broker and day."""
    downs = flapping.select("dt", *INSTANCE, "incident_downs")
    watched = F.round((F.col("up_seconds") + F.col("down_seconds")) * days.SECOND).cast("long")
    own = F.col("outages") - F.coalesce("incident_downs", F.lit(0))
    joined = availability.join(downs, on=["dt", *INSTANCE], how="left")
    return joined.select("dt", *INSTANCE, watched.alias("watched_us"), own.alias("outages"))


def flap_ranking(
    broker_days: DataFrame, *, first_day: date, last_day: date, parameters: RankingParameters
) -> DataFrame:
    """Rank the brokers of each day from first to last; ``broker_days`` also has the days before.

    Ranked are outliers before others, then by chance, the least likely first, then by rate.
    """
    reached = days.days_between(
        F.greatest("dt", days.lit_day(first_day)),
        F.least(F.date_add("dt", parameters.days - 1), days.lit_day(last_day)),
    )
    told = broker_days.withColumnsRenamed({"dt": "told_on"}).withColumn("dt", F.col("told_on"))
    spread = told.select("*", F.explode(reached).alias("for_day")).drop("dt").withColumnRenamed("for_day", "dt")
    summed = spread.groupBy("dt", *INSTANCE).agg(
        F.sum("watched_us").alias("watched_us"), F.sum("outages").alias("outages")
    )
    held = spread.groupBy("dt").agg(F.count_distinct("told_on").alias("days"))
    rated = _rated(summed.filter(F.col("watched_us") > 0)).join(F.broadcast(held), on="dt", how="inner")
    outliers = with_outliers(rated, false_discovery_rate=parameters.false_discovery_rate)
    worst_first = Window.partitionBy(*_CLUSTER).orderBy(
        F.desc("outlier"), F.asc_nulls_last("p_value"), F.desc("rate_per_day"), "broker_name", "broker_id"
    )
    ranked = outliers.withColumn("rank", F.row_number().over(worst_first).cast("long"))
    return ranked.select(*FLAP_RANKING.fieldNames())


def with_outliers(ranked: DataFrame, *, false_discovery_rate: float) -> DataFrame:
    """Add ``outlier`` by the ``p_value`` of the brokers of each cluster and day."""
    cluster = Window.partitionBy(*_CLUSTER)
    tested = F.count("p_value").over(cluster)
    nth = F.row_number().over(cluster.orderBy(F.asc_nulls_last("p_value"), "broker_name", "broker_id"))
    passes = F.col("p_value") <= nth * F.lit(false_discovery_rate) / tested
    numbered = ranked.withColumn("passes", passes)
    limit = F.max(F.when(F.col("passes"), F.col("p_value"))).over(cluster)
    return numbered.withColumn("outlier", F.coalesce(F.col("p_value") <= limit, F.lit(False))).drop("passes")


def _rated(summed: DataFrame) -> DataFrame:
    cluster = Window.partitionBy(*_CLUSTER)
    others_us = F.sum("watched_us").over(cluster) - F.col("watched_us")
    others = F.sum("outages").over(cluster) - F.col("outages")
    own_days, others_days = F.col("watched_us") / F.lit(days.DAY), F.nullif(others_us, F.lit(0)) / F.lit(days.DAY)
    rates = summed.withColumns(
        {
            "watched_days": own_days,
            "rate_per_day": F.col("outages") / own_days,
            "cluster_rate_per_day": (others + 1) / others_days,
        }
    )
    return rates.withColumns(
        {
            "ratio": F.col("rate_per_day") / F.col("cluster_rate_per_day"),
            "p_value": upper_tail(F.col("outages"), F.col("cluster_rate_per_day") * F.col("watched_days")),
        }
    )
