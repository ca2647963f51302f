"""Maintenance windows: the days of a window and the name servers that have it are one."""

from __future__ import annotations

from typing import Any

from pointsman_report.report.sections.planned_work import WindowDay, merged

TEN, ELEVEN, TWELVE = (f"2026-03-05T{hour}:00:00.000Z" for hour in (10, 11, 12))
MIDNIGHT, NEXT = "2026-03-06T00:00:00.000Z", "2026-03-06T01:00:00.000Z"


def row(node: str, from_at: str, to_at: str, **change: Any) -> WindowDay:
    known: dict[str, Any] = {"cluster": "c", "broker_name": None, "until_at": None, "open": False, "day": "2026-03-05"}
    return WindowDay(node=node, from_at=from_at, to_at=to_at, **known | change)


def test_overlapping_windows_of_several_name_servers_are_one() -> None:
    first, second = merged(
        [row("n2", TEN, ELEVEN, until_at=TWELVE), row("n1", TEN, TWELVE), row("n1", MIDNIGHT, NEXT, open=True)]
    )

    assert (first.from_at, first.to_at, first.until_at, first.nodes) == (TEN, TWELVE, TWELVE, ["n1", "n2"])
    assert (first.open, first.seconds) == (False, 7_200.0)
    assert (second.from_at, second.open, second.nodes) == (MIDNIGHT, True, ["n1"])


def test_a_window_over_midnight_has_ended_if_its_last_day_shows_that() -> None:
    days = [row("n1", TEN, MIDNIGHT, open=True), row("n1", TEN, NEXT, day="2026-03-06")]
    (window,) = merged(reversed(days))

    assert (window.from_at, window.to_at, window.open) == (TEN, NEXT, False)


def test_windows_of_a_broker_and_of_its_cluster_are_two() -> None:
    found = merged(
        [row("n1", TEN, ELEVEN, broker_name="a"), row("n1", TEN, ELEVEN), row("n1", TEN, ELEVEN, cluster="b")]
    )

    assert [(window.cluster, window.broker_name) for window in found] == [("b", None), ("c", None), ("c", "a")]
