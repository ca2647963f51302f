"""The course of committed offsets, and what is wrong with a queue."""

from __future__ import annotations

import pytest

from pointsman_agent.core.group_progress import Progress, ProgressMeter, Standing, standing
from pointsman_agent.core.measured_queue_stats import GroupLoad
from pointsman_agent.core.member_readings import QueueReading, QueueReport
from pointsman_agent.core.offsets import OffsetKey

KEY = OffsetKey("billing", "orders", 0)
NOW = 1_000.0


def course(*rounds: tuple[float, int, int]) -> Progress | None:
    """Return the progress after rounds of time, committed offset and end."""
    meter = ProgressMeter()
    for now, committed, end in rounds:
        taken = meter.take(KEY, committed, max_offset=end, now=now)
        assert taken == meter.of(KEY)
        meter.end_round({})
    return meter.of(KEY)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ((), None),
        (((0.0, 10, 10),), Progress(None, None)),
        (((0.0, 10, 12),), Progress(None, 0.0)),
        (((0.0, 10, 12), (30.0, 40, 60)), Progress(1.0, 30.0)),
        (((0.0, 10, 12), (30.0, 40, 40)), Progress(1.0, None)),
        (((0.0, 10, 12), (30.0, 10, 60), (60.0, 10, 90)), Progress(0.0, 0.0)),
        (((0.0, 10, 10), (300.0, 10, 12), (330.0, 10, 15)), Progress(0.0, 300.0)),
        (((0.0, 10, 12), (30.0, 10, 10)), Progress(0.0, None)),
        (((0.0, 40, 60), (30.0, 10, 60)), Progress(None, 30.0)),
    ],
    ids=["none", "new", "new and behind", "moves", "caught up", "still", "idle before", "end went back", "reset"],
)
def test_the_course_of_an_offset(rounds: tuple[tuple[float, int, int], ...], expected: Progress | None) -> None:
    assert course(*rounds) == expected


def test_an_offset_that_is_no_longer_committed_is_forgotten() -> None:
    meter = ProgressMeter()
    meter.take(KEY, 1, max_offset=2, now=0.0)
    meter.end_round({"billing": GroupLoad(lag=1)})
    assert meter.of(KEY) is not None
    assert meter.loads == {"billing": GroupLoad(lag=1)}
    meter.end_round({})
    assert (meter.of(KEY), meter.loads) == (None, {})


def report(*, call: float | None = None, is_waiting: bool = False) -> QueueReport:
    return QueueReport(QueueReading(5, 5, 1, call, is_waiting), NOW)


MOVES, STILL, BLOCKED = Progress(10.0, NOW), Progress(0.0, NOW - 61.0), Progress(0.0, NOW - 121.0)


@pytest.mark.parametrize(
    ("of", "progress", "lag", "put_rate", "expected"),
    [
        (report(), MOVES, 100, 10.0, None),
        (report(), None, 100, 10.0, None),
        (report(), STILL, 100, 0.0, None),
        (report(), BLOCKED, 100, 10.0, Standing.STUCK_OFFSET),
        (report(), Progress(None, NOW - 500.0), 100, 0.0, None),
        (report(), Progress(5.0, NOW - 500.0), 100, 0.0, None),
        (report(), BLOCKED, 0, 10.0, None),
        (report(), BLOCKED, None, 10.0, None),
        (report(is_waiting=True), BLOCKED, 100, 10.0, None),
        (report(call=60.0), MOVES, 0, 0.0, None),
        (report(call=60.5), MOVES, 0, 0.0, Standing.STUCK_CALL),
        (report(call=90.0), BLOCKED, 100, 0.0, Standing.STUCK_CALL),
        (report(), MOVES, 661, 11.0, Standing.BEHIND),
        (report(), MOVES, 660, 11.0, None),
        (report(), MOVES, 100_000, 10.0, None),
        (None, STILL, 100, 0.0, Standing.NO_READER),
        (None, MOVES, 100, 0.0, None),
        (None, STILL, 0, 0.0, None),
    ],
)
def test_what_is_wrong_with_a_queue(
    of: QueueReport | None, progress: Progress | None, lag: int | None, put_rate: float, expected: Standing | None
) -> None:
    assert standing(of, progress, lag=lag, put_rate=put_rate, all_report=True, now=NOW) is expected


def test_a_queue_may_be_read_by_a_member_that_reports_nothing() -> None:
    assert standing(None, STILL, lag=9, put_rate=0.0, all_report=False, now=NOW) is None
    assert standing(None, BLOCKED, lag=9, put_rate=0.0, all_report=False, now=NOW) is Standing.STUCK_OFFSET
