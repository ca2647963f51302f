"""How punctual heartbeats were; of whole UTC days, since quantiles cannot be cut."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.parameters import HealthParameters
from pointsman_report.report.numbers.rows import Row, collect, listed, worst
from pointsman_report.report.span import Span
from pointsman_report.schemas import INSTANCE

MOST_LATE = 100
MOST_CLOCKS = 100

_MEASURED = ("heartbeat_interval_ms", "min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def punctuality(warehouse: Warehouse, span: Span, *, parameters: HealthParameters) -> dict[str, Any]:
    """The least punctual brokers, each on its worst day, the times between beats of all, and clocks that are off."""
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
    return listed(few) | {
        "histogram": collect(beats.orderBy(F.col("up_to_ms").asc_nulls_last())),
        "clocks": listed(_clocks(rows, parameters.clock_offset_above_seconds)),
    }


def _clocks(rows: DataFrame, above_seconds: float) -> list[Row]:
    """Agents whose clock is off by more, each on its worst day, the farthest first."""
    ahead = F.col("clock_ahead_ms") / 1_000
    told = rows.withColumn("ahead_seconds", ahead).filter(F.abs("ahead_seconds") > above_seconds)
    off = F.struct(F.abs("ahead_seconds"), "dt")
    each = told.groupBy(*INSTANCE).agg(F.max_by("ahead_seconds", off).alias("ahead_seconds"))
    return worst(each, MOST_CLOCKS, F.abs("ahead_seconds").desc(), *INSTANCE)
