"""At the bound on incomplete frames the slowest connection is closed, and a fast one waits."""

from __future__ import annotations

import pytest

from pointsman.daemon.waiting_bytes import COMING_IN_BYTES, MOST_COMING_IN, ComingIn, ReadingTime
from pointsman.manual_clock import ManualClock

SLOW, FAST = 100_000, 280_000
"""Bytes of a half frame, and of an honest broker's."""


class Connection:
    """Implements ``Waiting``: an incomplete frame that began now."""

    def __init__(self, bytes_: int, coming_in: ComingIn, clock: ManualClock) -> None:
        self.held: dict[str, None] = {}
        self.group = ""
        self.reading = ReadingTime()
        self.reading.since = clock.now
        self.unread_since, self.unsent = 0.0, 0
        self.waiting = bytes_
        self.closed = ""
        self.waits = False
        self._coming_in = coming_in
        coming_in.note(self, bytes_)

    def hold(self) -> None:
        self.waits = True

    def go_on(self) -> None:
        self.waits = False

    def abort(self, cause: str) -> None:
        self.closed = cause
        size, self.waiting = self.waiting, 0
        self._coming_in.note(self, -size)


@pytest.fixture
def coming_in(clock: ManualClock) -> ComingIn:
    return ComingIn(clock, lambda: None)


@pytest.mark.parametrize("seconds", [0.1, 0.9, 5.0], ids=["a-moment-ago", "within-a-second", "long-ago"])
def test_half_frames_are_closed_for_honest_ones_however_short_ago_they_began(
    coming_in: ComingIn, clock: ManualClock, seconds: float
) -> None:
    half = [Connection(SLOW, coming_in, clock) for _ in range(COMING_IN_BYTES // SLOW)]
    clock.now += seconds
    honest = [Connection(FAST, coming_in, clock) for _ in range(100)]

    assert [each.closed for each in honest] == [""] * len(honest)
    assert any(each.closed for each in half)
    assert coming_in.total <= COMING_IN_BYTES * MOST_COMING_IN


def test_what_comes_in_at_one_moment_beyond_all_bounds_closes_the_latest(
    coming_in: ComingIn, clock: ManualClock
) -> None:
    most = int(COMING_IN_BYTES * MOST_COMING_IN / FAST)
    together = [Connection(FAST, coming_in, clock) for _ in range(most + 1)]

    assert [each.closed for each in together] == [*[""] * most, "limit"]
    assert [each.waits for each in together].count(True) > 0


def test_a_fast_connection_waits_at_the_bound_until_there_is_room(coming_in: ComingIn, clock: ManualClock) -> None:
    first = Connection(COMING_IN_BYTES, coming_in, clock)
    second = Connection(FAST, coming_in, clock)
    assert (first.waits, second.waits) == (False, True)

    first.waiting = 0
    coming_in.note(first, -COMING_IN_BYTES)
    assert not second.waits
