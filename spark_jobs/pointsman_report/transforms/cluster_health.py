"""A cluster's day, and its last days against its objective. Definitions are those of ``availability``.

An outage that began before the first day or lasts beyond the last counts in the availability, not in the MTTR. Days
missing from the warehouse count neither in the error budget nor in its use.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import HealthParameters
from pointsman_report.schemas.health_tables import CLUSTER_HEALTH
from pointsman_report.transforms import poisson, utc_days
from pointsman_report.transforms.utc_days import lit_day


def cluster_health(availability: DataFrame, *, first_day: date, parameters: HealthParameters) -> DataFrame:
    """Sum ``availability`` by cluster; it includes the earlier days of the objective's period.

    One row per cluster and day; key: ``dt``, ``cluster``.
    """
    sums = availability.groupBy("dt", "cluster").agg(
        F.count("*").alias("brokers"),
        *(F.sum(_us(name)).alias(name) for name in ("up_seconds", "down_seconds", "planned_seconds", "repair_seconds")),
        F.sum("outages").alias("outages"),
        F.sum("repaired").alias("repaired"),
    )
    period = Window.partitionBy("cluster").orderBy(F.unix_date("dt")).rangeBetween(1 - parameters.slo_days, 0)
    up, down = F.col("up_seconds"), F.col("down_seconds")
    long_ = sums.withColumns(
        {
            "slo": _objective(parameters),
            "slo_days": F.count("*").over(period),
            "slo_up": F.sum("up_seconds").over(period),
            "slo_down": F.sum("down_seconds").over(period),
        }
    ).filter(F.col("dt") >= lit_day(first_day))
    broker_days = (up + down) / F.lit(float(utc_days.DAY))
    budget = (1 - F.col("slo")) * (F.col("slo_up") + F.col("slo_down"))
    outages = F.col("outages")
    return long_.select(
        "dt",
        "cluster",
        "brokers",
        *(utc_days.seconds(F.col(name)).alias(name) for name in ("up_seconds", "down_seconds", "planned_seconds")),
        F.try_divide(up, up + down).alias("availability"),
        "outages",
        "repaired",
        utc_days.seconds(F.col("repair_seconds")).alias("repair_seconds"),
        F.try_divide(utc_days.seconds(F.col("repair_seconds")), "repaired").alias("mttr_seconds"),
        F.try_divide(utc_days.seconds(up), outages).alias("mtbf_seconds"),
        F.try_divide(outages, broker_days).alias("outages_per_broker_day"),
        F.try_divide(poisson.low(outages), broker_days).alias("outages_per_broker_day_low"),
        F.try_divide(poisson.high(outages), broker_days).alias("outages_per_broker_day_high"),
        "slo",
        "slo_days",
        utc_days.seconds(F.col("slo_up")).alias("slo_up_seconds"),
        utc_days.seconds(F.col("slo_down")).alias("slo_down_seconds"),
        utc_days.seconds(budget).alias("budget_seconds"),
        utc_days.seconds(budget - F.col("slo_down")).alias("budget_left_seconds"),
    ).select(*CLUSTER_HEALTH.columns)


def _us(name: str) -> Column:
    # A sum of floats would depend on the order of the rows.
    return F.round(F.col(name) * utc_days.SECOND).cast("long")


def _objective(parameters: HealthParameters) -> Column:
    slo = F.lit(parameters.slo)
    for cluster, own in sorted(parameters.slo_by_cluster.items()):
        slo = F.when(F.col("cluster") == cluster, F.lit(own)).otherwise(slo)
    return slo
