"""When a consumer rebalances."""

from __future__ import annotations

import pytest

from pointsman_client.core.rebalance import RebalanceTiming, RebalanceTrigger


def ran(timing: RebalanceTiming, *, now: float, balanced: bool = True) -> RebalanceTrigger:
    trigger = timing.begin()
    timing.end(balanced=balanced, now=now)
    return trigger


def test_the_first_rebalance_is_immediate_with_reason_start() -> None:
    timing = RebalanceTiming()
    timing.wake(RebalanceTrigger.ROUTE)
    assert timing.delay(now=5.0) == 0
    assert ran(timing, now=5.0) is RebalanceTrigger.START


def test_without_events_it_is_due_every_20_seconds() -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0)
    assert [timing.delay(now=now) for now in (5.0, 24.0, 25.0, 60.0)] == [20.0, 1.0, 0.0, 0.0]
    assert ran(timing, now=25.0) is RebalanceTrigger.PERIOD
    assert timing.delay(now=25.0) == 20.0


def test_the_members_are_queried_once_per_interval_for_any_trigger() -> None:
    timing = RebalanceTiming()
    assert [timing.is_refresh_due(now=now) for now in (5.0, 6.0, 24.9, 25.0, 26.0, 46.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("trigger", [RebalanceTrigger.MEMBERS, RebalanceTrigger.ROUTE, RebalanceTrigger.SUBSCRIPTION])
def test_w12_an_event_makes_it_due_immediately_but_not_within_a_second_of_the_last(trigger: RebalanceTrigger) -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0)
    timing.wake(trigger)
    assert [timing.delay(now=now) for now in (5.0, 5.25, 6.0, 17.0)] == [1.0, 0.75, 0.0, 0.0]
    assert ran(timing, now=17.0) is trigger
    assert timing.delay(now=17.0) == 20.0


def test_the_first_of_several_reasons_is_reported_and_one_run_covers_all() -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0)
    timing.wake(RebalanceTrigger.MEMBERS)
    timing.wake(RebalanceTrigger.ROUTE)
    assert ran(timing, now=9.0) is RebalanceTrigger.MEMBERS
    assert timing.delay(now=9.0) == 20.0


def test_an_event_during_a_run_is_due_after_it() -> None:
    timing = RebalanceTiming()
    timing.begin()
    timing.wake(RebalanceTrigger.MEMBERS)
    timing.end(balanced=True, now=7.0)
    assert timing.delay(now=7.5) == 0.5
    assert timing.begin() is RebalanceTrigger.MEMBERS


def test_a_member_that_is_not_balanced_tries_again_after_a_second() -> None:
    timing = RebalanceTiming()
    ran(timing, now=5.0, balanced=False)
    assert timing.delay(now=5.0) == 1.0
    assert ran(timing, now=6.0, balanced=False) is RebalanceTrigger.RETRY
    assert ran(timing, now=7.0) is RebalanceTrigger.RETRY
    assert timing.delay(now=7.0) == 20.0


def test_the_intervals_are_settings() -> None:
    timing = RebalanceTiming(wait_interval_seconds=3.0, min_interval_seconds=0.5)
    ran(timing, now=0.0)
    assert timing.delay(now=0.0) == 3.0
    timing.wake(RebalanceTrigger.ROUTE)
    assert timing.delay(now=0.0) == 0.5
