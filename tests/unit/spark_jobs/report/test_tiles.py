"""The figures of the headline, and how they changed against the day and the week before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pointsman_report.report.contents import Report
from pointsman_report.report.sections.availability_trend import TrendDay
from pointsman_report.report.tiles import DOWN, UP, tiles
from tests.kit.report.contents import DAY, a_row, calm_report


def a_day(ago: int, **figures: Any) -> TrendDay:
    known: dict[str, Any] = {"brokers": 1, "availability": 1.0, "up_seconds": 86_400.0, "down_seconds": 0.0}
    known |= {"outages": 0, "flapping": 0, "topics_at_risk": 0, "clusters": {}}
    return a_row(TrendDay, date=f"{DAY - timedelta(days=ago)}", **known | figures)


def report_after(*days: TrendDay, **change: Any) -> Report:
    return calm_report(trend={"days": list(days)}, **change)


def changes(report: Report) -> dict[str, list[tuple[str, bool]]]:
    return {tile.name: [(change.text, change.worse) for change in tile.changes] for tile in tiles(report)}


def test_each_figure_is_compared_with_the_day_and_the_week_before() -> None:
    before = a_day(1, availability=0.99953, outages=2, flapping=1, brokers=2)
    week = a_day(7, topics_at_risk=1_200)
    found = changes(report_after(week, a_day(3, outages=9), before, headline={"outages": 3, "availability": 0.999}))

    assert found == {
        "availability": [(f"{DOWN} from 99.953 % the day before", True), (f"{DOWN} from 100 % a week before", True)],
        "brokers": [(f"{DOWN} from 2 the day before", False), ("as a week before", False)],
        "flapping": [(f"{DOWN} from 1 the day before", False), ("as a week before", False)],
        "outages": [(f"{UP} from 2 the day before", True), (f"{UP} from 0 a week before", True)],
        "topics at risk": [("as the day before", False), (f"{DOWN} from 1,200 a week before", False)],
        "monitoring coverage": [],
    }


def test_availabilities_that_look_the_same_did_not_change() -> None:
    assert changes(report_after(a_day(1, availability=0.9999999), headline={"availability": 0.9999998}))[
        "availability"
    ] == [("as the day before", False)]


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(report_after(a_day(2)), id="not-computed"),
        pytest.param(report_after(a_day(1, up_seconds=60.0)), id="hardly-covered-before"),
        pytest.param(report_after(a_day(1), coverage={"seconds": 60.0, "is_short": True}), id="hardly-covered-now"),
        pytest.param(report_after(a_day(1), from_=DAY - timedelta(days=2)), id="several-days"),
    ],
)
def test_days_that_cannot_be_compared_are_not(report: Report) -> None:
    assert [found for found in changes(report).values() if found] == []


def test_an_unknown_availability_is_not_compared() -> None:
    assert changes(report_after(a_day(1, availability=None)))["availability"] == []
