"""The step-up procedure of Benjamini and Hochberg: which of many tests are significant at a false discovery rate."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def with_discoveries(
    rows: DataFrame,
    name: str,
    *,
    family: Sequence[str],
    order: Sequence[Column | str],
    rate: float,
    tested: Column | None = None,
) -> DataFrame:
    """Add the column ``name``: whether the row's ``p_value`` is significant among those of its family.

    ``order`` makes the order of equal values unique. ``tested``: number of tests of the family, if it has tests with
    the value 1 that are not rows; otherwise the number of values.

    One row per row given; no key, because it is that of the rows.
    """
    group = Window.partitionBy(*family)
    tests = F.count("p_value").over(group) if tested is None else tested
    nth = F.row_number().over(group.orderBy(F.asc_nulls_last("p_value"), *order))
    passes = F.col("p_value") <= nth * F.lit(rate) / tests
    numbered = rows.withColumn("passes", passes)
    limit = F.max(F.when(F.col("passes"), F.col("p_value"))).over(group)
    return numbered.withColumn(name, F.coalesce(F.col("p_value") <= limit, F.lit(False))).drop("passes")
