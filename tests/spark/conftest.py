"""One Spark session for all tests that need one, and what runs the whole job in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import LOCAL_SETTINGS, SETTINGS
from tests.spark.tables import DayRunner

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    # Compiling a plan costs more than running it on so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").appName("tests")
    for key, value in (SETTINGS | LOCAL_SETTINGS | SMALL).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def run_days(spark: SparkSession) -> DayRunner:
    """Compute the days first..last of a history into a warehouse."""
    return DayRunner(spark)
