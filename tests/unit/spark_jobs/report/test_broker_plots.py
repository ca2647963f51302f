"""Plots: names of every kind, colours of the page, no ids shared by two drawings of one page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from matplotlib.figure import Figure

from pointsman_report.parameters import FlapParameters
from pointsman_report.report.broker_plots import (
    SHADES,
    BrokerDowns,
    Charge,
    Curve,
    StateBar,
    Transitions,
    heat_map,
    penalty_curves,
    penalty_points,
    shade_of,
    timeline,
    within,
)
from pointsman_report.report.drawing import VARIABLES
from pointsman_report.report.sections.availability_trend import ClusterDay, TrendDay, availability_plot
from pointsman_report.report.sections.heartbeat_times import BeatsUpTo, histogram
from pointsman_report.report.sections.incident_list import IncidentPoint, incident_scatter
from pointsman_report.report.sections.outage_lengths import (
    Distribution,
    Outage,
    OutageLengths,
    Step,
    cumulative,
    outages_section,
)
from pointsman_report.report.span import Span
from tests.kit.report.contents import DAY, TIME, a_row

NAMES = ("c/$a$_{/0", "_hidden", "\N{CJK UNIFIED IDEOGRAPH-4E2D}", "a<b>&")
WINDOW = (0, 3_600_000_000)
UTC = ZoneInfo("UTC")


def bars(names: tuple[str, ...] = NAMES) -> str:
    keys = [(("c", name, 0), name) for name in names]
    intervals = [StateBar("c", names[0], 0, state, planned=False, start=0, end=60_000_000) for state in ("up", "down")]
    return timeline(keys, intervals, window=WINDOW, zone=UTC)


def curves(names: tuple[str, ...] = NAMES) -> str:
    scored = [Curve(("c", name, 0), name, 0.0) for name in names]
    charges = [Charge("c", name, 0, at=60_000_000, penalty=1_000.0) for name in names]
    return penalty_curves(scored, charges, FlapParameters(), window=WINDOW, zone=UTC)


def heat(names: tuple[str, ...] = NAMES) -> str:
    rows = [BrokerDowns("c", name, 0, downs=[0, 1, 9]) for name in names]
    return heat_map(Transitions(3_600, columns=3, rows=rows), start=0, zone=UTC)


def a_day(date: str, **clusters: ClusterDay) -> TrendDay:
    return a_row(TrendDay, date=date, clusters=clusters)


def trend(names: tuple[str, ...] = NAMES) -> str:
    clusters = dict.fromkeys(names, ClusterDay(0.99, 0.999))
    return availability_plot([a_day("2026-03-04", **clusters), a_day("2026-03-05", **clusters)])


DRAWINGS: dict[str, Callable[[], str]] = {
    "timeline": bars,
    "penalty": curves,
    "heat map": heat,
    "trend": trend,
    "cumulative": lambda: cumulative([Step(1.0, 2), Step(79.4, 1)], "Lasted"),
    "histogram": lambda: histogram([BeatsUpTo(1_000, 7), BeatsUpTo(None, 1)]),
    "scatter": lambda: incident_scatter([IncidentPoint(TIME, 3, "zone")] * 3, Span(DAY, DAY).interval),
}


@pytest.mark.parametrize("draw", [bars, curves, heat, trend])
def test_a_name_is_drawn_literally_without_a_warning_about_its_characters(draw: Any) -> None:
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

    monkeypatch.setattr("pointsman_report.report.broker_plots.svg", keep)
    penalty_curves([Curve(("c", "a", 0), "a", 16_000.0)], [], FlapParameters(), window=WINDOW, zone=UTC)

    assert drawn[0].axes[0].get_ylim()[1] > 16_000


def test_without_data_there_is_no_plot() -> None:
    assert availability_plot([a_day("2026-03-05", c=ClusterDay(0.9, 0.999))]) == ""
    assert cumulative([], "x") == histogram([]) == ""
    assert availability_plot([a_day("2026-03-04", c=ClusterDay(None, 0.999))]) == ""


@pytest.mark.parametrize(
    ("window", "start", "downs"),
    [
        ((0, 4), 0, [0, 1, 9, 2]),
        ((1.1, 1.2), 1, [1]),
        ((1.9, 2.1), 1, [1, 9]),
        ((2, 3), 2, [9]),
        ((3.5, 9), 3, [2]),
        ((5, 9), 4, []),
    ],
)
def test_the_heat_map_covers_the_hours_with_data(window: tuple[float, float], start: int, downs: list[int]) -> None:
    hour = 3_600_000_000
    found = Transitions(3_600, columns=4, rows=[BrokerDowns("c", "b", 0, downs=[0, 1, 9, 2])])

    begin, shown = within(found, start=7 * hour, window=(int((7 + window[0]) * hour), int((7 + window[1]) * hour)))

    assert (begin, shown.columns, shown.rows[0].downs) == ((7 + start) * hour, len(downs), downs)


def test_outages_that_are_shown_as_equally_long_are_sorted_by_time() -> None:
    lengths = (("10:00:16", 3.04), ("10:00:10", 2.96), ("10:00:13", 2.99), ("10:00:01", 3.2), ("10:00:05", 1.0))
    listed = [
        (f"b{at}", a_row(Outage, start_at=f"2026-03-05T{at}.000Z", seconds=seconds, last_sign_of_life_at=None))
        for at, seconds in lengths
    ]

    shown = outages_section(OutageLengths(Distribution(), Distribution(), 0), listed, left_out=0)

    assert shown is not None
    longest: Any = shown.shown["longest"]
    times = [outage.start_at[11:19] for _, outage in longest]
    assert times == ["10:00:01", "10:00:10", "10:00:13", "10:00:16", "10:00:05"]


def test_a_penalty_decays_by_half_each_half_life_however_far_apart_the_charges_are() -> None:
    minute, day = 60_000_000, 86_400_000_000
    drawn = penalty_points([(0, 1_000.0), (20 * day, 500.0)], 0.0, 60.0, (0, 30 * day))
    decayed = [(at, value) for at, value in drawn if 0 < at < 20 * day]

    assert [round(value / (1_000 * 2 ** (-at / (60 * minute))), 6) for at, value in decayed] == [1.0] * len(decayed)
    assert len([at for at, _ in decayed if at <= 600 * minute]) > 10
    assert drawn[-1][0] == 30 * day
    assert len(drawn) < 100
