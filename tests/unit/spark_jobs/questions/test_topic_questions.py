"""What is known of a name server's run at a moment: its holes, with and without the tables of the days."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from pointsman.history.row_format import Row, microseconds
from pointsman.history.topic_history import NameServerRun
from pointsman.history.topic_selection import ROW_FIELDS, ObserverRows, TopicQuestion, TopicRows
from pointsman_report.questions.topic_questions import read_topic_history
from tests.kit.report.stated_past import StatedPast
from tests.spark.histories import MIDNIGHT, moment

DAY = MIDNIGHT.date()
BEFORE = DAY - timedelta(days=1)
AT = moment(100)


def past_with(
    windows: tuple[Row, ...] = (),
    *,
    next_seq: int | None = 11,
    next_at: float = 110.0,
    days: tuple[date, ...] = (DAY,),
    alive_seconds: object = None,
) -> StatedPast:
    """Rows of ten numbers up to the moment, of which two are missing, and the next row."""
    observer = ObserverRows(
        "ns1",
        "b1",
        frozenset(days),
        first_us=microseconds(moment(0)),
        end_us=microseconds(moment(next_at)),
        rows=8,
        last_us=microseconds(moment(90)),
        first_seq=1,
        last_seq=10,
        next_us=None if next_seq is None else microseconds(moment(next_at)),
        next_seq=next_seq,
    )
    started: Row = dict.fromkeys(ROW_FIELDS) | {"node": "ns1", "boot_id": "b1", "seq": 1, "event": "NAMESRV_STARTED"}
    detail = "not json" if alive_seconds is None else f'{{"alive_seconds": {alive_seconds}}}'
    rows = TopicRows([started | {"at": microseconds(moment(0)), "detail": detail, "entry": None}], [observer])
    return StatedPast({"observer_windows": list(windows)}, topic=rows)


def window(*gaps: tuple[int, int], day: date = DAY, alive_seconds: float | None = None) -> Row:
    holes = [{"from_seq": from_seq, "to_seq": to_seq} for from_seq, to_seq in gaps]
    return {"dt": day, "node": "ns1", "boot_id": "b1", "gaps": holes, "alive_seconds": alive_seconds}


def run_of(past: StatedPast) -> NameServerRun:
    (run,) = read_topic_history(past, TopicQuestion("orders", AT, BEFORE, DAY)).runs
    return run


def test_without_tables_every_missing_number_is_a_lost_row() -> None:
    assert run_of(past_with()).missing == 2


def test_rows_that_compact_dropped_are_not_lost() -> None:
    assert run_of(past_with((window((3, 3)),))).missing == 1
    assert run_of(past_with((window(),))).missing == 0


def test_a_hole_over_midnight_is_listed_on_both_days_and_counts_once() -> None:
    past = past_with(
        (
            window((3, 3), day=BEFORE),
            window((3, 3)),
        ),
        days=(BEFORE, DAY),
    )

    assert run_of(past).missing == 1


def test_rows_of_a_day_that_is_not_computed_yet_are_lost_although_the_day_before_lists_no_hole() -> None:
    past = past_with((window(day=BEFORE),), days=(BEFORE, DAY), next_seq=15)

    assert run_of(past).missing == 2
    assert (run_of(past).hole_from_at, run_of(past).hole_to_at) == (moment(90), moment(110))


def test_a_moment_between_rows_that_compact_dropped_is_in_no_hole() -> None:
    assert run_of(past_with((window(),), next_seq=15)).hole_from_at is None
    assert run_of(past_with((window((12, 13)),), next_seq=15)).hole_from_at == moment(90)


@pytest.mark.parametrize(
    ("stated", "computed", "next_at", "silent"),
    [
        (60, None, 90 + 180, False),
        (60, None, 90 + 180.001, True),
        (None, 60.0, 90 + 180.001, True),
        (0, 60.0, 90 + 1_000, False),
        ('"often"', None, 90 + 1_000, False),
    ],
)
def test_a_run_is_silent_after_three_of_its_intervals_without_a_row(
    stated: object, computed: float | None, next_at: float, *, silent: bool
) -> None:
    windows = [] if computed is None else [window(alive_seconds=computed)]
    run = run_of(past_with(tuple(windows), alive_seconds=stated, next_at=next_at))

    assert run.silent is silent
    assert (run.hole_to_at is not None) is silent


def test_a_run_without_a_row_after_the_moment_does_not_continue() -> None:
    run = run_of(past_with(next_seq=None))

    assert (run.continues, run.hole_to_at) == (False, None)
