"""The one history that the tests of the whole job share."""

from __future__ import annotations

import pytest

from tests.spark.storybook import Told, book
from tests.spark.tables import DayRunner


@pytest.fixture(scope="session")
def told(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """All stories, computed in one pass over their three days."""
    return book.tell(run_days, tmp_path_factory.mktemp("storybook"))
