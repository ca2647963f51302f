"""How late the event loop is: what a process that was stopped, or held, knows of its own pause."""

from __future__ import annotations

from pointsman.wire.clock import Clock


class LoopLateness:
    """Sleeps for one loop, and measures by how much that loop is behind. Make it where the loop begins.

    The time between two sleeps counts as well: a loop that computes and awaits nothing else holds the event loop
    meanwhile, and a pause may begin anywhere. So each loop has an instance of its own, and awaits nothing but
    :meth:`sleep`. A suspended machine is not seen: Linux's monotonic clock stands still meanwhile, with every age.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.woken_at = clock.monotonic()
        """When it last woke; the ``now`` of what follows, so that no pause is counted before it is measured."""

    async def sleep(self, seconds: float) -> float:
        """Sleep until ``seconds`` after the last wake-up; return by how many seconds it came late, 0 or more."""
        due = self.woken_at + max(0.0, seconds)
        await self._clock.sleep(due - self._clock.monotonic())
        self.woken_at = self._clock.monotonic()
        return max(0.0, self.woken_at - due)
