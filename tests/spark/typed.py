"""Rows of raw history as the job has them after reading: typed, and not yet computed with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import rand

from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS
from tests.spark.histories import Row


def registration_events(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """A detail that is text already is what a damaged writer wrote."""
    names = REGISTRATION_EVENTS.columns
    typed = []
    for row in rows:
        at, detail = datetime.fromisoformat(row["event_at"]), row.get("detail")
        text = detail if detail is None or isinstance(detail, str) else json.dumps(detail)
        values = row | {"dt": at.date(), "event_at": at, "detail": text}
        typed.append(tuple(values.get(name) for name in names))
    return spark.createDataFrame(typed, REGISTRATION_EVENTS.schema).coalesce(1)


def rows_of(table: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in table.collect()]


def shuffled(table: DataFrame, *, seed: int) -> DataFrame:
    """The same rows in another order, in several partitions."""
    return table.orderBy(rand(seed)).repartition(3)
