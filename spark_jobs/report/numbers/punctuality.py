"""How punctual heartbeats were; of whole UTC days, since quantiles cannot be cut."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from spark_jobs.io import Warehouse
from spark_jobs.report.numbers.rows import collect, listed, worst
from spark_jobs.report.span import Span
from spark_jobs.schemas import INSTANCE

MOST_LATE = 100

_MEASURED = ("heartbeat_interval_ms", "min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def punctuality(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """The least punctual brokers, each on its worst day, and the times between beats of all."""
    rows = span.named(warehouse, "heartbeat_punctuality")
    worst_day = rows.groupBy(*INSTANCE).agg(
        F.sum("beats").alias("beats"),
        F.sum("late").alias("late"),
        *(F.max_by(name, F.struct("p99_ms", "dt")).alias(name) for name in _MEASURED),
    )
    # Against its own interval: a broker that beats each minute is not late each time.
    lateness = F.try_divide(F.col("p99_ms"), F.col("heartbeat_interval_ms")).desc_nulls_last()
    few = worst(worst_day, MOST_LATE, lateness, F.col("p99_ms").desc_nulls_last(), *INSTANCE)
    beats = span.named(warehouse, "heartbeat_histogram").groupBy("up_to_ms").agg(F.sum("beats").alias("beats"))
    return listed(few) | {"histogram": collect(beats.orderBy(F.col("up_to_ms").asc_nulls_last()))}
