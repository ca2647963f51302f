"""The histogram of beats: buckets end at their edges, and the figures are those of the plain list."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core.punctuality import EDGES, EDGES_MS, Punctuality


def test_the_edges_reach_from_a_quarter_to_a_thousand_seconds_by_square_roots_of_two() -> None:
    assert EDGES[0] == 0.25
    assert EDGES[-1] == 1_024.0
    assert all(after / before == pytest.approx(2**0.5) for before, after in pairwise(EDGES))


def test_edges_are_told_in_milliseconds_and_all_differ() -> None:
    assert EDGES_MS[0] == "250"
    assert EDGES_MS[-2:] == ("1024000", "inf")
    assert len(set(EDGES_MS)) == len(EDGES) + 1


@pytest.mark.parametrize(
    ("interval", "edge"),
    [(0.0, "250"), (0.25, "250"), (0.2501, "354"), (1_024.0, "1024000"), (1_024.1, "inf"), (1e9, "inf")],
)
def test_an_interval_of_exactly_an_edge_belongs_below_it(interval: float, edge: str) -> None:
    punctuality = Punctuality(0.0)
    punctuality.add(interval, is_late=False)
    assert punctuality.detail(now=9.0)["buckets"] == {edge: 1}


@given(st.lists(st.floats(0, 5_000), min_size=1))
def test_the_figures_are_those_of_the_list(intervals: list[float]) -> None:
    punctuality = Punctuality(0.0)
    for interval in intervals:
        punctuality.add(interval, is_late=False)
    detail = punctuality.detail(now=9.0)

    assert detail["count"] == len(intervals)
    assert detail["min_ms"] == round(min(intervals) * 1_000)
    assert detail["max_ms"] == round(max(intervals) * 1_000)
    plain: dict[str, int] = {}
    for interval in sorted(intervals):
        name = next((ms for edge, ms in zip(EDGES, EDGES_MS, strict=False) if interval <= edge), "inf")
        plain[name] = plain.get(name, 0) + 1
    assert list(detail["buckets"].items()) == list(plain.items())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("is_late", "seconds"), [(False, 3_600.0), (True, 600.0)])
def test_a_row_is_due_after_an_hour_or_ten_minutes_if_a_heartbeat_in_it_was_late(is_late: bool, seconds: float) -> None:
    punctuality = Punctuality(100.0)
    punctuality.add(50.0, is_late=is_late)
    punctuality.add(30.0, is_late=False)
    assert not punctuality.is_over(now=100.0 + seconds - 0.001)
    assert punctuality.is_over(now=100.0 + seconds)


def test_without_a_beat_nothing_is_counted() -> None:
    assert Punctuality(0.0).detail(now=9.0) == {"count": 0, "seconds": 9.0, "min_ms": 0, "max_ms": 0, "buckets": {}}


@given(st.lists(st.integers(-(10**13), 10**13)))
def test_of_what_beats_told_of_their_clock_the_most_is_kept(told: list[int]) -> None:
    punctuality = Punctuality(0.0)
    for ahead_ms in told:
        punctuality.add_clock(ahead_ms)
    assert punctuality.detail(now=9.0).get("clock_ahead_ms") == max(told, default=None)
