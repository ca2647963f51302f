"""When a server that has just started may say that a topic is not there."""

from __future__ import annotations

import pytest

from namesrv.core.warm_up import WarmUp

START = 1_000.0


@pytest.mark.parametrize(
    ("after", "still_provisional", "over"),
    [
        pytest.param(4.9, 0, False, id="all-heard-but-others-may-just-be-reconnecting"),
        pytest.param(5.0, 0, True, id="all-heard"),
        pytest.param(5.0, 1, False, id="one-not-heard"),
        pytest.param(44.9, 1, False, id="one-not-heard-for-long"),
        pytest.param(45.0, 1, True, id="at-the-latest"),
    ],
)
def test_with_a_snapshot_it_is_over_when_all_are_heard(after: float, still_provisional: int, over: bool) -> None:
    warm_up = WarmUp(started_at=START, warm_up_seconds=45.0, restored=3)
    assert warm_up.is_over(now=START + after, still_provisional=still_provisional) is over


@pytest.mark.parametrize(
    "warm_up",
    [
        pytest.param(WarmUp(started_at=START, warm_up_seconds=45.0), id="no-broker-restored"),
        pytest.param(WarmUp(started_at=START, warm_up_seconds=45.0, restored=2, complete=False), id="a-part-was-lost"),
    ],
)
def test_what_no_snapshot_tells_can_only_be_waited_for(warm_up: WarmUp) -> None:
    assert not warm_up.is_over(now=START + 44.9, still_provisional=0)
    assert warm_up.is_over(now=START + 45.0, still_provisional=0)


def test_a_short_warm_up_is_never_exceeded() -> None:
    warm_up = WarmUp(started_at=START, warm_up_seconds=2.0, restored=3)
    assert not warm_up.is_over(now=START + 1.9, still_provisional=0)
    assert warm_up.is_over(now=START + 2.0, still_provisional=3)


def test_without_a_warm_up_it_is_over_at_once() -> None:
    assert WarmUp(started_at=START, warm_up_seconds=0.0, restored=3).is_over(now=START, still_provisional=3)


def test_once_it_is_over_it_stays_over() -> None:
    warm_up = WarmUp(started_at=START, warm_up_seconds=45.0, restored=3)
    assert warm_up.is_over(now=START + 6.0, still_provisional=0)
    assert warm_up.is_over(now=START + 7.0, still_provisional=1)
