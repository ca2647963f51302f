"""Publishing: all of a run or none of it, and one run at a time."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import ReportError
from spark_jobs.files import Files
from spark_jobs.io import Warehouse
from spark_jobs.schemas import TABLES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(60)]

DAY = date(2026, 3, 2)


def partition(root: Path, table: str, text: str) -> None:
    folder = root / table / f"dt={DAY}"
    folder.mkdir(parents=True)
    (folder / "part").write_text(text, encoding="utf-8")


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    """One that holds a day, with the same day staged anew, without a Spark job."""
    found = Warehouse(spark, str(tmp_path))
    for table in TABLES:
        partition(tmp_path, table, "old")
        partition(Path(found._staging), table, "new")
    return found


def contents(root: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for table in TABLES for path in (root / table).rglob("part")]


def test_publishing_replaces_the_day_in_every_table(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.publish(first_day=DAY, last_day=DAY)

    assert contents(tmp_path) == ["new"] * len(TABLES)
    assert warehouse.published


def test_an_interrupt_while_publishing_puts_every_table_back(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, moved = Files.move, []

    def interrupted(self: Files, source: str, target: str) -> None:
        moved.append(source)
        if len(moved) == 6:
            raise KeyboardInterrupt
        move(self, source, target)

    monkeypatch.setattr(Files, "move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        warehouse.publish(first_day=DAY, last_day=DAY)
    assert contents(tmp_path) == ["old"] * len(TABLES)
    assert not warehouse.published


def test_a_second_run_is_refused_and_what_a_killed_one_left_is_cleared(spark: SparkSession, tmp_path: Path) -> None:
    left = tmp_path / "_staging" / "of-a-killed-run"
    left.mkdir(parents=True)
    with Warehouse(spark, str(tmp_path)).held():
        assert not left.exists()
        second = Warehouse(spark, str(tmp_path)).held()
        with pytest.raises(ReportError, match=f"another run is at work in this warehouse .process {os.getpid()}"):
            second.__enter__()
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_warehouse_that_cannot_be_made_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    held = Warehouse(spark, str(tmp_path / "file" / "w")).held()
    with pytest.raises(ReportError, match="cannot write to the warehouse"):
        held.__enter__()


def test_the_last_day_before_another_is_found_by_its_folder(warehouse: Warehouse) -> None:
    assert warehouse.last_day_before(date(2026, 3, 5)) == DAY
    assert warehouse.last_day_before(DAY) is None
