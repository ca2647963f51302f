"""Rows of a table as typed rows of a report: limited in number, in a deterministic order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.io.local_rows import local_rows
from pointsman_report.report.formatting import broker_label, rfc3339
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.table_types import LONG, TEXT, struct

Row = dict[str, Any]
"""A row as returned by Spark; not passed beyond the module that reads it."""
Key = tuple[str, str, int]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Instance:
    """The key columns of a broker."""

    cluster: str
    broker_name: str
    broker_id: int

    @property
    def key(self) -> Key:
        return self.cluster, self.broker_name, self.broker_id

    @property
    def label(self) -> str:
        return broker_label(*self.key)


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """The first rows of a table in the order of a section, and how many there are in total."""

    rows: list[R] = field(default_factory=list)
    in_all: int = 0
    left_out: int = 0


def collect(rows: DataFrame) -> list[Row]:
    """Run a query and return its rows."""
    return [row.asDict(recursive=True) for row in rows.collect()]


def typed(make: Callable[..., R], rows: DataFrame) -> list[R]:
    """Collect rows whose columns are the parameters of ``make``, ``..._at`` in microseconds (`micros`)."""
    return [make(**_with_times(row)) for row in collect(rows)]


def worst(make: Callable[..., R], rows: DataFrame, most: int, *order: Column | str) -> Listing[R]:
    """Collect the first few in an order, as `typed` does."""
    found = typed(make, rows.orderBy(*order).limit(most + 1))
    # Counted only if there are more: each count costs a Spark job.
    in_all = rows.count() if len(found) > most else len(found)
    return Listing(found[:most], in_all, in_all - len(found[:most]))


def _with_times(row: Row) -> Row:
    return {name: rfc3339(value) if name.endswith("_at") else value for name, value in row.items()}


def only(rows: DataFrame, keys: Iterable[Key]) -> DataFrame:
    """Keep the rows of these brokers."""
    wanted = local_rows(rows.sparkSession, keys, struct(cluster=TEXT, broker_name=TEXT, broker_id=LONG))
    return rows.join(F.broadcast(wanted), on=list(INSTANCE), how="left_semi")


def key(row: Row) -> Key:
    """Return the key of the broker in a row."""
    return row["cluster"], row["broker_name"], row["broker_id"]


def total_seconds(name: str) -> Column:
    """Sum a column of seconds (null counts as 0) as whole microseconds, because a sum of floats depends on the
    order."""
    whole = F.round(F.coalesce(F.col(name), F.lit(0.0)) * 1e6).cast("long")
    return (F.coalesce(F.sum(whole), F.lit(0)) / 1e6).alias(name)


def micros(*names: str) -> list[Column]:
    """Timestamps as microseconds: PySpark would return local times without a zone."""
    return [F.unix_micros(name).alias(name) for name in names]


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part / whole; None if one is unknown, or the whole is 0."""
    return part / whole if part is not None and whole else None
