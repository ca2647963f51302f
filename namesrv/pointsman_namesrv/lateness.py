"""Lateness of the event loop: how a process that was stopped or blocked detects its own pause."""

from __future__ import annotations

from pointsman.clock import Clock


class LoopLateness:
    """Sleeps for one loop, and measures how late that loop is. Create it where the loop begins.

    The time between two sleeps counts as well: a loop that computes without awaiting blocks the event loop, and a pause
    may begin anywhere. So each loop has its own instance and awaits only :meth:`sleep`. A suspended machine is not
    detected: Linux's monotonic clock stops during that time, and all ages with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.woken_at = clock.monotonic()
        """Time of the last wake-up; use it as ``now``, so that no pause is counted before it is measured."""

    async def sleep(self, seconds: float) -> float:
        """Sleep until ``seconds`` after the last wake-up; return how late the wake-up was, seconds, at least 0."""
        due = self.woken_at + max(0.0, seconds)
        await self._clock.sleep(due - self._clock.monotonic())
        self.woken_at = self._clock.monotonic()
        return max(0.0, self.woken_at - due)
