"""Maintenance windows: which brokers they cover, and when they end."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core import maintenance
from pointsman_namesrv.core.maintenance import MaintenanceWindow, MaintenanceWindows
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.node_refusals import LimitExceeded

A, B, OTHER = GroupKey("c1", "a"), GroupKey("c1", "b"), GroupKey("c2", "a")
WHOLE = GroupKey("c1", "")


def test_without_windows_no_broker_is_covered() -> None:
    assert not MaintenanceWindows().covers(A, now=0.0)


def test_a_window_of_a_broker_name_covers_it_alone() -> None:
    windows = MaintenanceWindows()
    windows.open(A, until=100.0)
    assert [windows.covers(key, now=50.0) for key in (A, B, OTHER)] == [True, False, False]


def test_a_window_of_a_cluster_covers_all_its_brokers() -> None:
    windows = MaintenanceWindows()
    windows.open(WHOLE, until=100.0)
    assert [windows.covers(key, now=50.0) for key in (A, B, OTHER)] == [True, True, False]


@pytest.mark.parametrize("key", [A, WHOLE])
@pytest.mark.parametrize(("now", "covered"), [(99.999, True), (100.0, False)])
def test_a_window_covers_until_its_time_is_over_ended_or_not(key: GroupKey, now: float, covered: bool) -> None:
    windows = MaintenanceWindows()
    windows.open(key, until=100.0)
    assert windows.covers(A, now=now) is covered
    assert (windows.end_overdue(now=now) == []) is covered


def test_the_longer_of_two_windows_counts() -> None:
    windows = MaintenanceWindows()
    windows.open(A, until=10.0)
    windows.open(WHOLE, until=100.0)
    assert windows.covers(A, now=50.0)
    windows.open(A, until=200.0)
    assert windows.covers(A, now=150.0)


def test_a_window_announced_again_replaces_the_first() -> None:
    windows = MaintenanceWindows()
    windows.open(A, until=100.0, note="disk", by="ann")
    windows.open(A, until=50.0, note="kernel", by="bob")
    assert windows.windows() == [MaintenanceWindow(key=A, until=50.0, note="kernel", by="bob")]


def test_a_window_can_be_ended_before_its_time() -> None:
    windows = MaintenanceWindows()
    windows.open(A, until=100.0)
    assert windows.close(A)
    assert not windows.close(A)
    assert not windows.covers(A, now=0.0)


def test_overdue_windows_are_returned_once_in_order() -> None:
    windows = MaintenanceWindows()
    for key, until in ((OTHER, 10.0), (B, 20.0), (WHOLE, 10.0), (A, 99.0)):
        windows.open(key, until=until)
    assert [window.key for window in windows.end_overdue(now=20.0)] == [WHOLE, B, OTHER]
    assert windows.end_overdue(now=20.0) == []
    assert [window.key for window in windows.windows()] == [A]


def test_the_number_of_windows_is_bounded_but_an_open_one_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "MAX_WINDOWS", 1)
    windows = MaintenanceWindows()
    windows.open(A, until=1.0)
    with pytest.raises(LimitExceeded, match="at most 1 maintenance_windows"):
        windows.open(B, until=1.0)
    windows.open(A, until=2.0)
    assert [window.until for window in windows.windows()] == [2.0]


def test_windows_of_a_snapshot_are_restored() -> None:
    before = MaintenanceWindows()
    before.open(A, until=100.0, note="disk", by="ann")
    after = MaintenanceWindows()
    after.restore(before.windows())
    assert after.windows() == before.windows()
