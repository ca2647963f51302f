"""The days that a run computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, timedelta

import pytest

from pointsman_report.jobs.history_reading import LATE_DAYS, Computed, DayRange, day_range
from pointsman_report.report_errors import ReportError

DAY = date(2026, 3, 10)
MADE_BY = ("1.0", "{}")


def ago(days: int) -> date:
    return DAY - timedelta(days=days)


def decided(
    rows: Mapping[date, int],
    computed: Mapping[date, int],
    *,
    accept_late: bool = True,
    reread: bool = False,
    holes: Collection[date] = (),
) -> DayRange:
    known = {day: Computed(count, MADE_BY) for day, count in computed.items()}
    return day_range(
        DAY,
        DAY,
        rows=rows,
        computed=known,
        made_by=MADE_BY,
        accept_late=accept_late,
        reread=reread,
        ends_in_hole=lambda day: day in holes,
    )


def test_a_night_without_late_rows_computes_its_day() -> None:
    assert decided({ago(1): 5, DAY: 9}, {ago(1): 5}) == DayRange(DAY, DAY, (), None)


def test_a_night_begins_at_the_first_day_that_got_late_rows() -> None:
    rows, computed = {ago(3): 6, ago(2): 5, ago(1): 7}, {ago(3): 5, ago(2): 5, ago(1): 5}

    assert decided(rows, computed) == DayRange(ago(3), DAY, (ago(3), ago(1)), None)
    assert decided(rows, computed, accept_late=False).first_day == DAY


def test_a_night_begins_at_a_day_whose_last_rows_are_missing_as_only_the_next_day_shows() -> None:
    rows = {ago(n): 5 for n in range(LATE_DAYS + 3)}
    holes = {ago(1), ago(2), ago(4)}

    assert decided(rows, rows, holes=holes) == DayRange(ago(2), DAY, (ago(2), ago(1)), None)
    assert decided(rows | {ago(3): 6}, rows, holes=holes).first_day == ago(4)
    assert decided(rows, {DAY: 5}, holes=holes).first_day == DAY
    assert decided(rows, rows, holes=holes, accept_late=False).first_day == DAY
    assert decided(rows, rows, holes=set(rows)).first_day == ago(LATE_DAYS)


def test_days_that_were_never_computed_or_lie_further_back_are_not_late() -> None:
    assert decided({ago(2): 4, ago(LATE_DAYS + 1): 9}, {ago(LATE_DAYS + 1): 3}).late_days == ()


def test_days_after_a_changed_one_are_computed_too_or_reported_as_stale() -> None:
    near, far = DAY + timedelta(days=2), DAY + timedelta(days=LATE_DAYS + 1)

    assert decided({DAY: 4}, {DAY: 3, near: 0}) == DayRange(DAY, near, (), None)
    assert decided({DAY: 4}, {DAY: 3, far: 0}) == DayRange(DAY, DAY, (), DAY)


def test_an_unchanged_day_does_not_recompute_later_days() -> None:
    after = DAY + timedelta(days=1)

    assert decided({DAY: 4}, {DAY: 4, after: 0}) == DayRange(DAY, DAY, (), None)
    assert decided({DAY: 4}, {DAY: 4, after: 0}, reread=True).last_day == after


def test_a_day_with_fewer_rows_is_recomputed_only_from_the_raw_history() -> None:
    with pytest.raises(ReportError, match=r"computed from 4 rows, of which registration_events has 3 now.*--reread"):
        decided({DAY: 3}, {DAY: 4})
    assert decided({DAY: 3}, {DAY: 4}, reread=True).first_day == DAY
