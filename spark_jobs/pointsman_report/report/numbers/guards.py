"""When the expiry guard of a cluster was on, merged over its name servers."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import listed, micros, with_times, worst
from pointsman_report.report.span import Span
from pointsman_report.schemas import OBSERVER
from pointsman_report.transforms.days import seconds

MOST_PERIODS = 100


def guard_periods(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Each time that a guard of the cluster was on, cut to the span, the longest first.

    Name servers whose guards were on at the same time are one period.
    """
    periods = _merged(_of_each_node(warehouse, span))
    known = periods.withColumn("seconds", seconds(F.col("to_us") - F.col("from_us")))
    few = worst(known, MOST_PERIODS, F.col("seconds").desc(), "from_us", "cluster")
    times = [row | {"from_at": row.pop("from_us"), "to_at": row.pop("to_us")} for row in few]
    return listed(with_times(times, "from_at", "to_at"))


def _of_each_node(warehouse: Warehouse, span: Span) -> DataFrame:
    """One row for each period of a name server, of the last day that it touches."""
    touched = span.touched(warehouse, "guard_periods")
    cut = touched.filter((F.unix_micros("from_at") < span.to_us) & (F.unix_micros("to_at") > span.from_us))
    whole = cut.groupBy(*OBSERVER, "cluster", "from_at").agg(
        F.max("to_at").alias("to_at"),
        F.max_by("open", "dt").alias("open"),
        *(F.max(name).alias(name) for name in ("mode", "lost", "baseline", "up", "kept", "over_limit")),
    )
    start, end = micros("from_at", "to_at")
    return whole.select(
        "node",
        "cluster",
        F.greatest(start, F.lit(span.from_us)).alias("from_us"),
        F.least(end, F.lit(span.to_us)).alias("to_us"),
        *("open", "mode", "lost", "baseline", "up", "kept", "over_limit"),
    )


def _merged(periods: DataFrame) -> DataFrame:
    story = Window.partitionBy("cluster").orderBy("from_us", "to_us", "node")
    before = F.max("to_us").over(story.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.coalesce(F.col("from_us") > before, F.lit(True)).cast("long")
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # In two steps: a window over a window is none that Spark knows.
    numbered = periods.withColumn("begins", begins).withColumn("period", F.sum("begins").over(to_here))
    return (
        numbered.groupBy("cluster", "period")
        .agg(
            F.min("from_us").alias("from_us"),
            F.max("to_us").alias("to_us"),
            F.bool_or("open").alias("open"),
            F.sort_array(F.collect_set("node")).alias("nodes"),
            F.sort_array(F.collect_set("mode")).alias("modes"),
            *(F.max(name).alias(name) for name in ("lost", "baseline", "kept")),
            F.min("up").alias("up"),
            F.bool_or("over_limit").alias("over_limit"),
        )
        .drop("period")
    )
