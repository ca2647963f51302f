"""A broker's queues over the day, as its agent reported them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.health import QUEUE_STATS
from pointsman_report.transforms.health.queue_reports import last_told, mean_rate, millionths


def queue_stats(reports: DataFrame) -> DataFrame:
    """Sum up each replica's day of `queue_reports.queue_reports`."""
    rated = F.col("put_rate").isNotNull() & F.col("period_ms").isNotNull()
    summed = reports.groupBy("dt", *INSTANCE).agg(
        F.count("*").alias("samples"),
        F.try_sum("period_ms").alias("ms"),
        F.try_sum(F.when(rated, F.col("period_ms"))).alias("rated_ms"),
        F.try_sum(F.when(rated, millionths(F.col("put_rate"), F.col("period_ms")))).alias("put"),
        last_told("queue_count").alias("queues"),
        last_told("topic_count").alias("topics"),
        last_told("depth").alias("depth"),
        F.max("put_rate").alias("put_rate_max"),
        last_told("lag").alias("lag"),
        F.max("lag").alias("lag_max"),
    )
    rates = summed.withColumns(
        {
            "measured_seconds": F.coalesce(F.col("ms"), F.lit(0)) / 1e3,
            "put_rate": mean_rate(F.col("put"), F.col("rated_ms")),
        }
    )
    return rates.select(*QUEUE_STATS.fieldNames())
