"""Runs the job over written histories and reads its tables back as plain rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, unix_micros
from pyspark.sql.types import TimestampType

from pointsman_report.io import History, Warehouse
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.pipeline import compute
from pointsman_report.parameters import Parameters
from pointsman_report.schemas import TABLES


@dataclass(frozen=True)
class DayRunner:
    """Computes days and reads the resulting tables."""

    spark: SparkSession
    parameters: Parameters = field(default_factory=Parameters)

    def compute(
        self, warehouse: Path, histories: list[Path], first_day: date, last_day: date, *, accept_late: bool = False
    ) -> None:
        history = History(self.spark, [str(history) for history in histories])
        to = Warehouse(self.spark, str(warehouse))
        compute(Work(history, to, first_day, last_day, self.parameters, lambda _: None, accept_late=accept_late))

    def rows(self, warehouse: Path, table: str, first_day: date, last_day: date) -> list[dict[str, Any]]:
        """Rows in the order of the table's keys; times as aware datetimes, at every depth."""
        read = Warehouse(self.spark, str(warehouse)).read(table, first_day=first_day, last_day=last_day)
        ordered = read.orderBy("dt", *TABLES[table].keys)
        return [aware(row.asDict(recursive=True)) for row in with_times_as_text(ordered).collect()]


def with_times_as_text(rows: DataFrame) -> DataFrame:
    """Replace top-level timestamps by microseconds: PySpark would give local times without a zone."""
    columns = [
        unix_micros(field.name).alias(f"{field.name}#us")
        if isinstance(field.dataType, TimestampType)
        else col(field.name)
        for field in rows.schema.fields
    ]
    return rows.select(*columns)


def aware(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name.removesuffix("#us"): _moment(value) if name.endswith("#us") and value is not None else value
        for name, value in row.items()
    }


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, tz=UTC)
