"""A DataFrame from rows of the driver.

`SparkSession.createDataFrame` would need a Python process on the executors, which a cluster may not have.
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
    """Return rows of plain values, in the order of the schema's fields. Times must have a time zone."""
    rows = list(rows)
    if not rows:
        return no_rows(spark, schema)
    names = schema.fieldNames()
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_json_default)
    typed = F.from_json(F.lit(text), T.ArrayType(schema), {"mode": "FAILFAST"})
    return spark.range(0, 1, numPartitions=1).select(F.inline(typed))


def collected(rows: DataFrame, *, most: int) -> tuple[DataFrame, int] | None:
    """Compute rows once; return them as part of the plan of later queries, and their number; None if they are more.

    The rows stay in Java.
    """
    spark = rows.sparkSession
    # PySpark would copy them to Python and back.
    found = rows.limit(most + 1)._jdf.collectAsList()  # noqa: SLF001
    count = int(found.size())
    if count > most:
        return None
    if not count:
        return no_rows(spark, rows.schema), 0
    return DataFrame(spark._jsparkSession.createDataFrame(found, rows._jdf.schema()), spark), count  # noqa: SLF001


def no_rows(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """Return an empty DataFrame that the planner knows to be empty: joins with it are optimized away."""
    columns = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in schema.fields)
    return spark.sql(f"SELECT {', '.join(columns)} WHERE false")


def _json_default(value: object) -> str:
    if isinstance(value, date):  # includes datetime
        return value.isoformat()
    raise TypeError(f"{value!r} is not a supported value of a row")
