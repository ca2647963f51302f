"""The Spark session of the tests: one core, and nothing that pays off only with many rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pointsman_report.spark_session import LOCAL_SETTINGS, SETTINGS, SMALL_SETTINGS

SMALL = {
    "spark.default.parallelism": "1",
}


@contextmanager
def small_session() -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[1]").appName("tests")
    for key, value in (SETTINGS | LOCAL_SETTINGS | SMALL_SETTINGS | SMALL).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
