"""Running stages: what a function gets, and what is written. The rows are texts, the warehouse records its calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any, cast

import pytest

from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.pipeline import run_stages
from pointsman_report.jobs.stage_graph import Before, Context, Intermediate, Part, Since, Stage
from pointsman_report.parameters import Parameters
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS
from pointsman_report.schemas.liveness_tables import AVAILABILITY, BROKER_INTERVALS, BROKER_STATE

FIRST, LAST = date(2026, 3, 5), date(2026, 3, 6)
STEPS = Intermediate("steps")


class Rows(str):
    __slots__ = ()

    def unionByName(self, other: Rows) -> Rows:  # noqa: N802 - Spark's name
        return Rows(f"{self} + {other}")


@dataclass
class RecordingWarehouse:
    staged_rows: dict[str, str] = field(default_factory=dict)
    kept_rows: dict[str, str] = field(default_factory=dict)

    def read(self, table: str, *, first_day: date, last_day: date) -> Rows:
        return Rows(f"{table} {first_day:%d}-{last_day:%d}")

    def staged(self, table: str) -> Rows:
        return Rows(f"staged {table}")

    def stage(self, table: str, rows: str) -> Rows:
        self.staged_rows[table] = rows
        return Rows(table)

    def materialize(self, name: str, rows: str) -> Rows:
        self.kept_rows[name] = rows
        return Rows(name)


@pytest.fixture
def warehouse() -> RecordingWarehouse:
    return RecordingWarehouse()


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def work(warehouse: RecordingWarehouse, logged: list[str]) -> Work:
    return Work(cast("Any", None), cast("Any", warehouse), FIRST, LAST, Parameters(), logged.append)


def listed(_: Context, *rows: Any) -> Any:
    return ", ".join(rows)


def test_a_function_gets_the_rows_that_its_stage_declares(work: Work, warehouse: RecordingWarehouse) -> None:
    reads = (REGISTRATION_EVENTS, STEPS, Before(BROKER_STATE), Since(BROKER_INTERVALS, lambda _: 3))
    stages = (Stage(STEPS, (), listed), Stage(BROKER_INTERVALS, (STEPS,), listed), Stage(AVAILABILITY, reads, listed))
    run_stages((Part("all", stages),), work)

    assert warehouse.kept_rows == {"steps": ""}
    assert warehouse.staged_rows == {
        "broker_intervals": "steps",
        "availability": "staged registration_events, steps, broker_state 04-04, "
        "broker_intervals 02-04 + broker_intervals",
    }


def test_a_function_can_keep_rows_that_it_needs_several_times(work: Work, warehouse: RecordingWarehouse) -> None:
    stage = Stage(STEPS, (REGISTRATION_EVENTS,), lambda context, events: context.checkpoint(events))
    run_stages((Part("all", (stage,)),), work)
    assert warehouse.kept_rows == {"steps_checkpoint": "staged registration_events", "steps": "steps_checkpoint"}


def test_a_part_is_reported_when_its_last_stage_is_done_and_the_slowest_stages_are_logged(
    work: Work, logged: list[str]
) -> None:
    titles: list[str] = []
    first = Part("first", (Stage(STEPS, (), listed), Stage(BROKER_INTERVALS, (STEPS,), listed)))
    run_stages((first, Part("second", (Stage(AVAILABILITY, (BROKER_INTERVALS,), listed),))), work, done=titles.append)

    assert titles == ["first", "second"]
    (line,) = logged
    assert re.fullmatch(r" {10}slowest stages: (\w+ \d\.\d s(, |$)){3}", line)


def test_after_a_stage_that_fails_no_later_one_runs(work: Work, warehouse: RecordingWarehouse) -> None:
    def fails(_: Context) -> Any:
        raise OSError("disk full")

    stages = (Stage(STEPS, (), fails), Stage(BROKER_INTERVALS, (STEPS,), listed))
    with pytest.raises(OSError, match="disk full"):
        run_stages((Part("all", stages),), work)
    assert (warehouse.kept_rows, warehouse.staged_rows) == ({}, {})
