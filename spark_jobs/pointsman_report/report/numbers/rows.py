"""How rows of a table come to the report: few, as plain values, in an order that is always the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.io.local_rows import local_rows
from pointsman_report.report.wording import rfc3339
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.base import LONG, TEXT, struct

Row = dict[str, Any]
Key = tuple[str, str, int]


def collect(rows: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def worst(rows: DataFrame, most: int, *order: Column | str) -> list[Row]:
    """The first few in an order; each row has ``of``: how many there are in all."""
    found = collect(rows.orderBy(*order).limit(most + 1))
    # Counted only where there are more: each question costs a Spark job.
    total = rows.count() if len(found) > most else len(found)
    return [row | {"of": total} for row in found[:most]]


def listed(rows: list[Row]) -> Row:
    """Put what `worst` found as ``rows``, ``in_all`` and ``left_out``."""
    in_all = rows[0]["of"] if rows else 0
    return {
        "rows": [without(row, "of") for row in rows],
        "in_all": in_all,
        "left_out": in_all - len(rows),
    }


def only(rows: DataFrame, keys: list[Key]) -> DataFrame:
    """Keep the rows of these brokers."""
    wanted = local_rows(rows.sparkSession, keys, struct(cluster=TEXT, broker_name=TEXT, broker_id=LONG))
    return rows.join(F.broadcast(wanted), on=list(INSTANCE), how="left_semi")


def key(row: Row) -> Key:
    return row["cluster"], row["broker_name"], row["broker_id"]


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def with_times(rows: Iterable[Row], *names: str) -> list[Row]:
    """Write columns of microseconds as RFC 3339."""
    return [row | {name: rfc3339(row[name]) for name in names} for row in rows]


def total_seconds(name: str) -> Column:
    """Add up a column of seconds, null as none: as whole microseconds, since a sum of floats depends on the order."""
    whole = F.round(F.coalesce(F.col(name), F.lit(0.0)) * 1e6).cast("long")
    return (F.coalesce(F.sum(whole), F.lit(0)) / 1e6).alias(name)


def micros(*names: str) -> list[Column]:
    """Timestamps as microseconds: PySpark would give local times without a zone."""
    return [F.unix_micros(name).alias(name) for name in names]


def ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
