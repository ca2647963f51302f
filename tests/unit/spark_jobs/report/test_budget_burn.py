"""The burn chart of error budgets: what it draws equals the budgets of the clusters."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from pointsman_report.report.budget_burn import budget_left, burn_plot
from pointsman_report.report.sections.availability_trend import ClusterDay, Trend, TrendDay, TrendSum
from tests.kit.report.contents import DAY, a_cluster, a_row

FIRST = DAY - timedelta(days=3)
WHOLE = 86_400.0


def a_trend(downs: dict[date, float], cluster: str = "c") -> Trend:
    days = [
        a_row(TrendDay, date=f"{day}", clusters={cluster: ClusterDay(None, 0.99, WHOLE - down, down)})
        for day, down in downs.items()
    ]
    return Trend(days, *[a_row(TrendSum)] * 2)


def drawn(found: Trend, slo_days: int = 4, **cluster: Any) -> str:
    known = {"budget_seconds": 4 * 864.0, "slo": 0.99} | cluster
    return burn_plot(found, [a_cluster("c", **known)], last=DAY, slo_days=slo_days)


def test_each_day_takes_its_downtime_from_the_budget_of_the_whole_period() -> None:
    found = a_trend({FIRST - timedelta(days=1): WHOLE, FIRST: 432.0, FIRST + timedelta(days=2): 0.0, DAY: 4_320.0})

    # Three days with data: 1 % of them is 2,592 s.
    points = budget_left(found, "c", slo=0.99, first=FIRST)
    assert [day for day, _ in points] == [FIRST, FIRST + timedelta(days=2), DAY]
    assert [left for _, left in points] == pytest.approx([1 - down / 2_592 for down in (432, 432, 4_752)])
    assert budget_left(found, "another", slo=0.99, first=FIRST) == []


def test_the_chart_names_the_clusters_and_the_even_use() -> None:
    chart = drawn(a_trend({FIRST: 432.0, DAY: 0.0}))

    for text in (">c</text>", ">even use</text>", ">error budget left</text>"):
        assert text in chart


@pytest.mark.parametrize(
    "chart",
    [
        pytest.param(drawn(a_trend({DAY: 432.0})), id="one-dot"),
        pytest.param(drawn(a_trend({FIRST: 0.0, DAY: 0.0}), slo=None), id="no-objective"),
        pytest.param(drawn(a_trend({FIRST: 0.0, DAY: 0.0}), budget_seconds=1.0), id="hardly-covered"),
        pytest.param(drawn(a_trend({FIRST: 0.0, DAY: 0.0}), slo_days=31), id="longer-than-the-trend"),
        pytest.param(drawn(a_trend({FIRST: 0.0, DAY: 0.0}, cluster="all")), id="clusters-summed"),
    ],
)
def test_without_a_period_of_a_clusters_days_there_is_no_chart(chart: str) -> None:
    assert chart == ""
