"""The one history that the tests of the whole job share."""

from __future__ import annotations

import pytest

from tests.spark.storybook import FIRST, LAST, Tables, Told, book
from tests.spark.tables import DayRunner
from tests.spark.topic_days import topic_book


@pytest.fixture(scope="session")
def told(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """All stories, computed in one pass over their three days."""
    return book.tell(run_days, tmp_path_factory.mktemp("storybook"))


@pytest.fixture(scope="session")
def topic_tables(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The stage of topics alone over everything in the `topic_book`, in one pass over its three days."""
    warehouse = tmp_path_factory.mktemp("topics") / "warehouse"
    topic_book.compute(run_days.spark, warehouse, FIRST, LAST)
    return Tables(run_days, warehouse)
