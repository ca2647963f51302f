"""Rows that were made here, as a DataFrame.

`SparkSession.createDataFrame` would send a list through a Python process at an executor, and a cluster need have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T


def local_rows(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: T.StructType) -> DataFrame:
    """Rows of plain values, in the order of the schema's fields. Times carry their zone."""
    rows = list(rows)
    if not rows:
        return no_rows(spark, schema)
    names = schema.fieldNames()
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_written)
    typed = F.from_json(F.lit(text), T.ArrayType(schema), {"mode": "FAILFAST"})
    return spark.range(0, 1, numPartitions=1).select(F.inline(typed))


def no_rows(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows, in a way that the planner sees: what would join with them is not even planned."""
    columns = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in schema.fields)
    return spark.sql(f"SELECT {', '.join(columns)} WHERE false")


def _written(value: object) -> str:
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    raise TypeError(f"{value!r} has no place in a row")
