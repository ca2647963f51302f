"""Plots: names of every kind, colours of the page, nothing that two drawings on one page share."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from matplotlib.figure import Figure

from pointsman_report.parameters import FlapParameters
from pointsman_report.report.plots.distributions import cumulative, histogram
from pointsman_report.report.plots.drawing import VARIABLES
from pointsman_report.report.plots.heat_map import SHADES, heat_map, shade_of
from pointsman_report.report.plots.penalty import penalty_curves
from pointsman_report.report.plots.scatter import incident_scatter
from pointsman_report.report.plots.timeline import Key, timeline
from pointsman_report.report.plots.trend import availability_trend

NAMES = ("c/$a$_{/0", "_hidden", "\N{CJK UNIFIED IDEOGRAPH-4E2D}", "a<b>&")
WINDOW = (0, 3_600_000_000)
UTC = ZoneInfo("UTC")


def bars(names: tuple[str, ...] = NAMES) -> str:
    keys: list[tuple[Key, str]] = [(("c", name, 0), name) for name in names]
    row = {"cluster": "c", "broker_name": names[0], "broker_id": 0, "start": 0, "end": 60_000_000}
    intervals = [row | {"state": "up", "planned": False}, row | {"state": "down", "planned": False}]
    return timeline(keys, intervals, window=WINDOW, zone=UTC)


def curves(names: tuple[str, ...] = NAMES) -> str:
    keys: list[tuple[Key, str, float]] = [(("c", name, 0), name, 0.0) for name in names]
    charge = {"cluster": "c", "broker_id": 0, "at": 60_000_000, "penalty": 1_000.0}
    charges = [charge | {"broker_name": name} for name in names]
    return penalty_curves(keys, charges, FlapParameters(), window=WINDOW, zone=UTC)


def heat(names: tuple[str, ...] = NAMES) -> str:
    rows = [{"cluster": "c", "broker_name": name, "broker_id": 0, "downs": [0, 1, 9]} for name in names]
    return heat_map({"step_seconds": 3_600, "columns": 3, "rows": rows}, start=0, zone=UTC)


def trend(names: tuple[str, ...] = NAMES) -> str:
    told: dict[str, Any] = {name: {"availability": 0.99, "slo": 0.999} for name in names}
    return availability_trend([{"date": "2026-03-04", "clusters": told}, {"date": "2026-03-05", "clusters": told}])


DRAWINGS: dict[str, Callable[[], str]] = {
    "timeline": bars,
    "penalty": curves,
    "heat map": heat,
    "trend": trend,
    "cumulative": lambda: cumulative(
        [{"up_to_seconds": 1.0, "count": 2}, {"up_to_seconds": 79.4, "count": 1}], "Lasted"
    ),
    "histogram": lambda: histogram([{"up_to_ms": 1_000, "beats": 7}, {"up_to_ms": None, "beats": 1}]),
    "scatter": lambda: incident_scatter(
        [{"from_at": "2026-03-05T10:00:00.000Z", "brokers": 3, "scope": "zone"}],
        {"from_at": "2026-03-05T00:00:00.000Z", "to_at": "2026-03-06T00:00:00.000Z"},
        zone=UTC,
    ),
}


@pytest.mark.parametrize("draw", [bars, curves, heat, trend])
def test_a_name_is_drawn_as_it_is_and_nothing_is_said_of_its_signs(draw: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw()

    escaped = [name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for name in NAMES]
    assert [name for name in escaped if name not in drawn] == []


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_a_name_no_size_and_only_the_pages_colours(name: str) -> None:
    drawn = DRAWINGS[name]()

    head = drawn[: drawn.index(">")]
    assert 'role="img" aria-label="' in head
    assert not re.search(r" (width|height)=", head)
    fixed = set(re.findall(r"#[0-9a-f]{6}", drawn)) - {"#ffffff"}
    assert fixed == set()
    used = set(re.findall(r"var\(--(\w+)\)", drawn))
    assert used
    assert used <= set(VARIABLES.values())


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_same_numbers_give_the_same_bytes(name: str) -> None:
    assert DRAWINGS[name]() == DRAWINGS[name]()


def test_two_drawings_on_one_page_share_no_name_unless_it_means_the_same() -> None:
    meant: dict[str, str] = {}
    for drawn in (draw() for draw in DRAWINGS.values()):
        for name, rest in re.findall(r'<(?:path|clipPath) id="(\w+)"(.*?)(?:/>|</clipPath>)', drawn, re.DOTALL):
            assert meant.setdefault(name, rest) == rest
        assert not re.search(r' id="(?![mp][0-9a-f]{10})', drawn)


def test_the_darkest_shade_is_the_highest_count_and_the_lightest_is_one() -> None:
    assert (shade_of(1, 100), shade_of(100, 100)) == (0, len(SHADES) - 1)
    assert shade_of(1, 1) == len(SHADES) - 1


def test_a_curve_that_only_decays_is_drawn_to_its_top(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []

    def keep(figure: Figure, _: str) -> str:
        drawn.append(figure)
        return ""

    monkeypatch.setattr("pointsman_report.report.plots.penalty.svg", keep)
    brokers: list[tuple[Key, str, float]] = [(("c", "a", 0), "a", 16_000.0)]

    penalty_curves(brokers, [], FlapParameters(), window=WINDOW, zone=UTC)

    assert drawn[0].axes[0].get_ylim()[1] > 16_000


def test_nothing_to_draw_is_no_drawing() -> None:
    one_day = {"date": "2026-03-05", "clusters": {"c": {"availability": 0.9, "slo": 0.999}}}
    assert availability_trend([one_day]) == ""
    assert cumulative([], "x") == histogram([]) == ""
    assert availability_trend([{"date": "2026-03-04", "clusters": {"c": {"availability": None, "slo": 0.999}}}]) == ""
