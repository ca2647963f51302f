"""Fixtures for every layer."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings

from tests.fakes.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.tables import DayRunner

settings.register_profile("default", max_examples=200, deadline=None)
settings.register_profile("mutants", max_examples=2_000, phases=(Phase.generate,), database=None, deadline=None)
settings.load_profile("default")


def pytest_configure() -> None:
    """Take SIGINT, as do all that tests start, behind a shell that ignores it (a job begun with ``&``)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print into their files")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that need one."""
    # Late: most runs need no Spark, and pyspark takes its time to import.
    from tests.fakes.spark_session import small_session  # noqa: PLC0415

    with small_session() as session:
        yield session


@pytest.fixture(scope="session")
def run_days(spark: SparkSession) -> DayRunner:
    """Compute the days first..last of a history into a warehouse."""
    from tests.spark.tables import DayRunner  # noqa: PLC0415

    return DayRunner(spark)
