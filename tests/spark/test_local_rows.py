"""Rows that were made in Python come to Spark as they are."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pointsman_report.io.local_rows import local_rows
from pointsman_report.schemas.table_types import BOOL, DAY, DOUBLE, INT, LONG, TEXT, TIME, struct

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EVERY_KIND = struct(text=TEXT, long=LONG, double=DOUBLE, flag=BOOL, day=DAY, at=TIME)


def test_values_of_every_kind_arrive_unchanged(spark: SparkSession) -> None:
    at = datetime(2026, 3, 29, 1, 30, 0, 123_457, tzinfo=UTC)
    rows = [
        ("", 0, 0.1, False, date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)),
        ('ä "quoted" \\ \n\x00 \U0001f68b ${x} {}', -(2**63), 1e300, True, date(9999, 12, 31), at),
        ("b", 2**63 - 1, -0.0, None, None, at.astimezone(timezone(timedelta(hours=-5)))),
        (None,) * 6,
    ]
    found = local_rows(spark, rows, EVERY_KIND)

    # Spark gives times in the zone of this process, without naming it.
    collected = [(*row[:5], row["at"] and row["at"].astimezone(UTC)) for row in found.collect()]
    assert collected == rows
    assert found.schema == EVERY_KIND


def test_no_rows_are_no_rows(spark: SparkSession) -> None:
    assert local_rows(spark, [], EVERY_KIND).collect() == []


def test_a_value_of_another_type_is_an_error_and_not_null(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match="FAILFAST"):
        local_rows(spark, [("x",)], struct(number=INT)).collect()
    with pytest.raises(TypeError, match="not a supported value of a row"):
        local_rows(spark, [({1},)], struct(number=INT))
    with pytest.raises(ValueError, match="zip"):
        local_rows(spark, [(1, 2)], struct(number=INT))
