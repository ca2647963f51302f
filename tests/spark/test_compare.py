"""``compare`` with and without Spark: the same document."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pointsman_report.io import SparkPast, Warehouse
from pointsman_report.io.embedded_past import EmbeddedPast
from pointsman_report.io.past import Past
from pointsman_report.questions.day_comparison import compare
from pointsman_report.schemas import TABLES
from tests.spark.compared_days import BEFORE, ONE, OTHER, QUIET, TABLES_OF_DAYS, stated_days

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stated days as tables."""
    folder = tmp_path_factory.mktemp("compare")
    made = Warehouse(spark, str(folder))
    for table in (*BEFORE, "computed_days"):
        schema = TABLES[table].schema
        rows = [facts | {"dt": day} for day, tables in TABLES_OF_DAYS.items() for facts in tables[table]]
        made.stage(
            table, spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)
        )
    made.publish(first_day=ONE, last_day=QUIET)
    return folder


def test_stated_days_compare_the_same_with_spark_without_it_and_without_a_warehouse(
    spark: SparkSession, warehouse: Path
) -> None:
    pasts: list[Past] = [
        SparkPast(Warehouse(spark, str(warehouse))),
        EmbeddedPast(warehouse),
        stated_days(TABLES_OF_DAYS),
    ]

    for days in ((ONE, OTHER), (OTHER, ONE), (OTHER, QUIET)):
        with_spark, embedded, stated = (compare(past, *days).as_dict() for past in pasts)
        assert with_spark == embedded == stated
