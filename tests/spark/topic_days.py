"""Runs the topics' stages alone, over rows of history and broker intervals that a test makes up."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from pointsman_report.io import History, Warehouse
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.pipeline import run_stages
from pointsman_report.jobs.stages import TOPICS
from pointsman_report.parameters import Parameters
from pointsman_report.schemas import TABLES
from tests.spark.histories import MIDNIGHT, Row, moment


@dataclass(frozen=True)
class Stretch:
    """An interval in which a broker was up, down or down by plan (``left``)."""

    about: Row
    state: str
    from_at: datetime
    to_at: datetime


@dataclass(frozen=True)
class TopicDays:
    """Input of the stages."""

    spark: SparkSession
    warehouse: Path
    rows: list[Row]
    stretches: list[Stretch]
    incidents: list[dict[str, Any]]

    def compute(self, first_day: date, last_day: date) -> None:
        warehouse = Warehouse(self.spark, str(self.warehouse))
        of_days = col("dt").between(lit(first_day), lit(last_day))
        for table, rows in (
            ("registration_events", self._events()),
            ("broker_intervals", self._intervals()),
            ("incidents", self._table("incidents", self.incidents)),
        ):
            warehouse.stage(table, rows.filter(of_days))
        history = History(self.spark, [])
        work = Work(history, warehouse, first_day, last_day, Parameters(), lambda _: None)
        run_stages((TOPICS,), work)
        warehouse.publish(first_day=first_day, last_day=last_day)

    def _table(self, name: str, rows: list[dict[str, Any]]) -> DataFrame:
        schema = TABLES[name].schema
        return self.spark.createDataFrame([tuple(row.get(field) for field in schema.names) for row in rows], schema)

    def _events(self) -> DataFrame:
        return self._table("registration_events", [_as_event(row) for row in self.rows])

    def _intervals(self) -> DataFrame:
        return self._table("broker_intervals", [part for stretch in self.stretches for part in _of_days(stretch)])


def _as_event(row: Row) -> dict[str, Any]:
    at = datetime.fromisoformat(row["event_at"])
    return {**row, "dt": at.date(), "event_at": at, "detail": json.dumps(row["detail"])}


def _of_days(stretch: Stretch) -> list[dict[str, Any]]:
    """An interval under the day that it ended on, and a copy under each day that it outlasted."""
    parts = []
    for day in range((stretch.to_at - MIDNIGHT).days + 1):
        end_of_day = moment(0, day=day + 1)
        lasts = stretch.to_at >= end_of_day
        if stretch.from_at < end_of_day:
            parts.append(
                {
                    **stretch.about,
                    "dt": moment(0, day=day).date(),
                    "state": "up" if stretch.state == "up" else "down",
                    "planned": stretch.state == "left",
                    "start_at": stretch.from_at,
                    "end_at": end_of_day if lasts else stretch.to_at,
                    "open": lasts,
                }
            )
    return parts


@dataclass
class TopicBook:
    """Collects rows, intervals and incidents of independent clusters."""

    rows: list[Row] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)

    def add(self, rows: list[Row], stretches: list[Stretch], incidents: list[dict[str, Any]]) -> None:
        self.rows += rows
        self.stretches += stretches
        self.incidents += incidents

    def compute(self, spark: SparkSession, warehouse: Path, first_day: date, last_day: date) -> None:
        TopicDays(spark, warehouse, self.rows, self.stretches, self.incidents).compute(first_day, last_day)


topic_book = TopicBook()
"""Results that are computed once for all modules."""
