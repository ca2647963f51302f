"""Rows that come in after their day was computed, files that are removed, and days that are read again.

Only the first stage runs here: other tests cover the later stages.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pointsman_report.io import History, Warehouse
from pointsman_report.jobs import pipeline
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.ingest_history import ingest
from pointsman_report.jobs.pipeline import compute
from pointsman_report.parameters import Parameters
from pointsman_report.run import Run
from pointsman_report.schemas import WAREHOUSE_VERSION
from tests.spark.histories import MIDNIGHT, NameServer, moment, write_history
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY = MIDNIGHT.date()


@pytest.fixture(autouse=True)
def only_the_first_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "STAGES", ())


class Place:
    """A history and a warehouse that nights are computed into."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.history, self.path = folder / "history", folder / "warehouse"
        self._spark = spark
        self.said: list[str] = []

    def write(self, node: str, *seconds: float, day: int = 0) -> None:
        server = NameServer(node=node)
        for second in seconds:
            server.say("NAMESRV_ALIVE", moment(second, day=day))
        write_history(self.history, server.rows)

    def night(self, day: int = 0, *, to: int | None = None, accept_late: bool = True, reread: bool = False) -> Run:
        first, last = DAY + timedelta(days=day), DAY + timedelta(days=day if to is None else to)
        history, warehouse = History(self._spark, [str(self.history)]), Warehouse(self._spark, str(self.path))
        with warehouse.locked():
            return compute(
                Work(
                    history,
                    warehouse,
                    first,
                    last,
                    Parameters(),
                    self.said.append,
                    accept_late=accept_late,
                    reread=reread,
                )
            )

    def rows(self) -> dict[str, int]:
        """Rows of registration_events by node."""
        read = Warehouse(self._spark, str(self.path)).read(
            "registration_events", first_day=date(1990, 1, 1), last_day=date(2100, 1, 1)
        )
        return dict(Counter(row["node"] for row in read.collect()))


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_late_rows_are_computed_from_their_day_on_and_once(place: Place, run_days: DayRunner) -> None:
    place.write("a", 1, 2)
    place.write("b", 1, day=1)
    place.night(0, to=1, accept_late=False)
    place.write("late", 3)

    run = place.night(2)
    assert (run.late_days, run.first_day, run.last_day, run.files_read) == ((DAY,), DAY, DAY + timedelta(days=2), 1)
    assert f"late rows of {DAY}: recomputing from {DAY}" in place.said
    assert place.rows() == {"a": 2, "b": 1, "late": 1}
    computed = run_days.rows(place.path, "computed_days", DAY, DAY + timedelta(days=9))
    assert [(row["rows"], row["continues"]) for row in computed] == [(3, False), (1, True), (0, True)]
    assert {row["warehouse_version"] for row in computed} == {WAREHOUSE_VERSION}
    label = json.loads((place.path / "_warehouse.json").read_text(encoding="utf-8"))
    assert label == {"warehouse_version": WAREHOUSE_VERSION}

    again = place.night(2)
    assert (again.late_days, again.files_read, again.files, again.first_day) == ((), 0, run.files, run.last_day)


@pytest.mark.slow
def test_rows_older_than_a_week_are_counted_and_wait_in_their_file_for_a_backfill(place: Place) -> None:
    place.write("a", 1)
    place.night(0)
    place.write("late", 2, 3)

    assert place.night(9).rows_too_late == 2
    assert place.night(9).rows_too_late == 2
    assert place.rows() == {"a": 1}
    run = place.night(0, accept_late=False)
    assert (run.stale_after, run.rows_too_late) == (DAY, 0)
    assert place.rows() == {"a": 1, "late": 2}


@pytest.mark.slow
def test_removed_raw_history_stays_in_the_warehouse_unless_it_is_reread(place: Place) -> None:
    place.write("a", 1)
    place.write("b", 1, 2)
    place.night(0)
    shutil.rmtree(place.history / "raw")
    place.write("b", 1, 2)

    place.night(0)
    assert place.rows() == {"a": 1, "b": 2}
    place.night(0, accept_late=False, reread=True)
    assert place.rows() == {"b": 2}


def test_a_backfill_carries_on_to_the_last_computed_day_when_it_changes_something(place: Place) -> None:
    place.write("a", 1)
    place.write("a", 1, day=2)
    place.night(0, to=2, accept_late=False)
    assert place.night(0, accept_late=False).last_day == DAY
    place.write("late", 5)

    assert place.night(0, accept_late=False).last_day == DAY + timedelta(days=2)


def test_a_nightly_run_reads_no_file_of_an_hourly_ingest_again_and_its_late_rows_count(
    place: Place, spark: SparkSession
) -> None:
    place.write("a", 1, 2)
    place.night(0)
    place.write("late", 3)
    place.write("b", 1, day=1)

    result = ingest(spark, [str(place.history)], str(place.path), log=place.said.append)
    assert (result.files, result.rows, result.new_rows, result.bad_lines) == (2, 2, 2, 0)
    assert result.as_dict()["days"] == [str(DAY), str(DAY + timedelta(days=1))]
    assert ingest(spark, [str(place.history)], str(place.path), log=place.said.append).files == 0
    run = place.night(1)
    assert (run.files_read, run.late_days) == (0, (DAY,))
