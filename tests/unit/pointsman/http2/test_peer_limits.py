"""Rates: bursts, refills and credit."""

from __future__ import annotations

import pytest

from pointsman.http2.peer_limits import Allowances, Bound, Limits, Rate

RATE = Rate(burst=10, per_second=2)


def taken(allowances: Allowances, times: int, *, now: float) -> int:
    return sum(allowances.take(Bound.PINGS, RATE, now=now) for _ in range(times))


def test_a_burst_is_allowed_and_one_more_is_not() -> None:
    assert taken(Allowances(), 11, now=5.0) == 10


def test_time_refills_one_burst_at_most() -> None:
    allowances = Allowances()
    taken(allowances, 10, now=0.0)
    assert taken(allowances, 3, now=1.0) == 2
    assert taken(allowances, 50, now=1_000.0) == 10


def test_credit_is_refill_and_a_burst_is_its_bound() -> None:
    allowances = Allowances()
    taken(allowances, 10, now=0.0)
    assert allowances.take(Bound.PINGS, RATE, now=0.0, credit=1)
    assert not allowances.take(Bound.PINGS, RATE, now=0.0)
    assert allowances.take(Bound.PINGS, RATE, now=0.0, credit=1_000_000)
    assert taken(allowances, 20, now=0.0) == 9


def test_each_kind_has_its_burst() -> None:
    allowances = Allowances()
    taken(allowances, 11, now=0.0)
    assert allowances.take(Bound.SETTINGS, RATE, now=0.0)


def test_a_window_below_that_of_the_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="a window must be at least 65535"):
        Limits(stream_window=1_000)
    assert Limits(stream_window=100_000, connection_window=200_000).preface().count(b"\x00\x04\x00\x01\x86\xa0") == 1


def test_allowances_are_full_when_every_burst_is_complete_again() -> None:
    allowances = Allowances()
    assert allowances.are_full(now=0.0)
    taken(allowances, 2, now=0.0)
    allowances.take(Bound.SETTINGS, RATE, now=0.0)
    assert not allowances.are_full(now=0.9)
    assert allowances.are_full(now=1.0)
