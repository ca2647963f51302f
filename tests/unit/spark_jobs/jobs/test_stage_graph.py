"""The declared stages: each error is found when they are checked, and the drawing has what is declared."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pointsman_report.jobs.stage_graph import Before, Intermediate, Part, Since, Stage, as_rows, checked, mermaid
from pointsman_report.schemas import TABLES, Table
from pointsman_report.schemas.history_tables import REGISTRATION_EVENTS
from pointsman_report.schemas.liveness_tables import AVAILABILITY, BROKER_INTERVALS
from pointsman_report.schemas.table_types import DAY, struct

STEPS = Intermediate("steps")
GIVEN = [table for table in TABLES.values() if table not in {BROKER_INTERVALS, AVAILABILITY}]


def one(_: Any, rows: Any) -> Any:
    return rows


def two(_: Any, rows: Any, before: Any) -> Any:
    return rows, before


SWEEP = Stage(STEPS, (REGISTRATION_EVENTS,), one)
INTERVALS = Stage(BROKER_INTERVALS, (STEPS, Before(BROKER_INTERVALS)), two)
SUMS = Stage(AVAILABILITY, (Since(BROKER_INTERVALS),), one)


def part(*stages: Stage) -> tuple[Part, ...]:
    return (Part("all", stages),)


def test_stages_in_order_have_no_errors() -> None:
    parts = (Part("intervals", (SWEEP, INTERVALS)), Part("sums", (SUMS,)))
    assert checked(parts, given=GIVEN) == parts


OTHER = Table("other", (), struct(dt=DAY))


@pytest.mark.parametrize(
    ("stages", "error"),
    [
        pytest.param(
            (SWEEP, INTERVALS, SUMS, Stage(OTHER, (STEPS,), one)),
            "stage other: other is not a table of the schemas",
            id="writes-an-unknown-table",
        ),
        pytest.param(
            (SWEEP, INTERVALS, Stage(AVAILABILITY, (BROKER_INTERVALS, Before(OTHER)), two)),
            "stage availability: other is not a table of the schemas",
            id="reads-an-unknown-table",
        ),
        pytest.param((SWEEP, INTERVALS, SUMS, SUMS), "availability is written 2 times", id="written-twice"),
        pytest.param(
            (SWEEP, INTERVALS, SUMS, Stage(REGISTRATION_EVENTS, (STEPS,), one)),
            "registration_events is written 2 times",
            id="written-by-reading-as-well",
        ),
        pytest.param((SWEEP, INTERVALS), "no stage writes the table availability", id="never-written"),
        pytest.param(
            (INTERVALS, SUMS), "stage broker_intervals reads steps, which no stage writes", id="reads-what-is-not-there"
        ),
        pytest.param(
            (INTERVALS, SWEEP, SUMS), "stage broker_intervals reads steps, before it is written", id="a-wrong-order"
        ),
        pytest.param(
            (Stage(STEPS, (AVAILABILITY,), one), INTERVALS, SUMS),
            "stage steps reads availability, before it is written",
            id="a-cycle",
        ),
        pytest.param(
            (SWEEP, Stage(BROKER_INTERVALS, (STEPS, Since(BROKER_INTERVALS)), two), SUMS),
            "stage broker_intervals reads broker_intervals, before it is written",
            id="a-cycle-of-one",
        ),
        pytest.param(
            (SWEEP, Stage(BROKER_INTERVALS, (REGISTRATION_EVENTS,), one), SUMS),
            "no stage reads steps",
            id="rows-computed-for-no-stage",
        ),
        pytest.param(
            (SWEEP, Stage(BROKER_INTERVALS, (STEPS,), two), SUMS),
            "stage broker_intervals reads 1 inputs, but its function differs: missing a required argument: 'before'",
            id="a-function-with-other-inputs",
        ),
    ],
)
def test_an_error_is_found_and_is_the_only_one(stages: tuple[Stage, ...], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)) as raised:
        checked(part(*stages), given=GIVEN)
    assert str(raised.value) == error


def test_all_errors_are_listed_together() -> None:
    with pytest.raises(ValueError, match="no stage writes the table availability; no stage reads steps"):
        checked(part(SWEEP, Stage(BROKER_INTERVALS, (REGISTRATION_EVENTS,), one)), given=GIVEN)


def test_the_drawing_has_each_stage_and_no_arrow_that_follows_from_others() -> None:
    late = Stage(AVAILABILITY, (STEPS, Since(BROKER_INTERVALS)), two)
    assert mermaid(part(SWEEP, INTERVALS, late), given=[REGISTRATION_EVENTS]).splitlines() == [
        "flowchart TD",
        '  subgraph given["read from the history"]',
        "    registration_events",
        "  end",
        '  subgraph part1["all"]',
        '    steps(["steps"])',
        '    broker_intervals["broker_intervals<br/>earlier days: broker_intervals"]',
        '    availability["availability<br/>earlier days: broker_intervals"]',
        "  end",
        "  registration_events --> steps",
        "  steps --> broker_intervals",
        "  broker_intervals --> availability",
    ]


def test_as_json_a_stage_has_everything_that_it_reads() -> None:
    (row,) = as_rows(part(Stage(AVAILABILITY, (STEPS, Since(BROKER_INTERVALS)), two)))
    assert row == {
        "part": "all",
        "writes": "availability",
        "is_table": True,
        "reads": ["steps", "broker_intervals"],
        "reads_earlier_days_of": ["broker_intervals"],
    }
