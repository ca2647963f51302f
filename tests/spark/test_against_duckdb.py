"""DuckDB, with the same rules in SQL, computes the same rows and intervals of a fleet's day as Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.histories import Fleet, write
from tests.bench.nightly import oracle
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_first_day_is_the_same_in_both(run_days: DayRunner, tmp_path: Path) -> None:
    fleet = Fleet(brokers=60, nodes=3, flapping_share=0.1, heartbeats=False, seed=11)
    history = write(fleet, tmp_path / "history")
    run_days.compute(tmp_path / "warehouse", history.histories, fleet.first_day, fleet.last_day)

    found = oracle.compute(history.histories, tmp_path / "warehouse", day=fleet.first_day)

    assert found.differing == []
    assert found.events_differ == 0
    assert found.intervals > 200
