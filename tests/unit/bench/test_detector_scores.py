"""Scores of the detector's flags against labels, checked by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from tests.bench.detector_scores import Flag, either, score
from tests.bench.histories import Kind, Label

MONDAY = date(2026, 3, 2)
LOOP, CUT, QUIET = ("c1", "loop", 0), ("c1", "cut", 0), ("c1", "quiet", 0)


def label(broker: tuple[str, str, int], kind: Kind, began: str, ended: str) -> Label:
    return Label(*broker, kind, f"2026-03-{began}:00:00+00:00", f"2026-03-{ended}:00:00+00:00", fault=1)


LABELS = [label(LOOP, Kind.RESTART_LOOP, "02T10", "02T14"), label(CUT, Kind.ZONE_CUT, "02T10", "02T11")]


def test_a_flag_of_a_broker_that_flaps_is_right_and_its_delay_counts_from_the_beginning() -> None:
    found = score([Flag(LOOP, MONDAY, datetime(2026, 3, 2, 10, 30, tzinfo=UTC))], LABELS)

    assert (found.precision, found.recall, found.delay_hours) == (1.0, 1.0, 0.5)
    assert found.found_by_kind == {Kind.RESTART_LOOP: 1.0}


def test_a_flag_without_a_moment_is_known_at_the_end_of_its_day() -> None:
    assert score([Flag(LOOP, MONDAY)], LABELS).delay_hours == 14.0


@pytest.mark.parametrize(
    ("flag", "because"),
    [
        pytest.param(Flag(CUT, MONDAY), "zone_cut", id="a-cut-network-is-no-flapping-broker"),
        pytest.param(Flag(QUIET, MONDAY), "nothing", id="a-quiet-broker"),
        pytest.param(Flag(LOOP, date(2026, 3, 1)), "nothing", id="before-the-fault"),
        pytest.param(Flag(LOOP, date(2026, 3, 9)), "nothing", id="more-than-a-week-after-it"),
    ],
)
def test_a_wrong_flag_is_reported_with_its_background(flag: Flag, because: str) -> None:
    found = score([flag], LABELS)

    assert (found.precision, found.recall, found.delay_hours) == (0.0, 0.0, None)
    assert found.wrong_because == {because: 1}


def test_a_flag_within_the_week_after_a_fault_is_right_but_detects_nothing() -> None:
    found = score([Flag(LOOP, date(2026, 3, 8))], LABELS)

    assert (found.precision, found.recall) == (1.0, 0.0)


def test_a_detector_without_flags_has_no_precision() -> None:
    assert score([], LABELS).precision is None


def test_of_two_detectors_the_earlier_moment_counts_once() -> None:
    early = Flag(LOOP, MONDAY, datetime(2026, 3, 2, 11, tzinfo=UTC))

    assert either([Flag(LOOP, MONDAY)], [early]) == [early]
