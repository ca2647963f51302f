"""Clocks that move only when a test moves them, for code that waits with ``Clock.sleep``."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

SETTLE_ROUNDS = 20
"""Turns of the event loop in which woken tasks may run to their next wait."""


class SteppedClock:
    """A ``pointsman.clock.Clock`` with sleepers in any event loop; subclasses define how they run after a wake-up.

    Starts at monotonic 1,000 s and 2026-01-01T00:00:00Z.
    """

    def __init__(self, now: float = 1_000.0, utc: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now
        self._utc_offset = utc - datetime.fromtimestamp(now, UTC)
        self._lock = threading.Lock()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds on a scale that never jumps."""
        return self.now

    def utc_now(self) -> datetime:
        """Wall clock."""
        return datetime.fromtimestamp(self.now, UTC) + self._utc_offset

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved by ``seconds``; a non-positive time still yields once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), woken))
        await woken

    def _steps(self, seconds: float) -> Iterator[None]:
        """Let time pass, waking each sleeper at its due time, in order; woken tasks run wherever this yields."""
        target = self.now + seconds
        yield
        while (sleeper := self._next(target)) is not None:
            moment, _, woken = sleeper
            self.now = max(self.now, moment)
            self._wake(woken)
            yield
        self.now = target
        yield

    def _wake(self, woken: asyncio.Future[None]) -> None:
        if not woken.done():
            woken.set_result(None)

    def _next(self, target: float) -> tuple[float, int, asyncio.Future[None]] | None:
        with self._lock:
            return heapq.heappop(self._sleepers) if self._has_due(target) else None

    def _has_due(self, target: float) -> bool:
        return bool(self._sleepers) and self._sleepers[0][0] <= target


class ManualClock(SteppedClock):
    """For code in one event loop; moved from inside it."""

    def jump_wall_clock(self, by: timedelta) -> None:
        """Move the wall clock alone, as an operator or NTP may."""
        self._utc_offset += by

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking each sleeper at its due time, in order."""
        for _ in self._steps(seconds):
            await settle()

    async def pause(self, seconds: float) -> None:
        """Let time pass as if the process were stopped: sleepers that become due wake late, at the end."""
        await settle()
        self.now += seconds
        await self.advance(0)


async def settle() -> None:
    """Let the tasks of the running event loop run to their next wait."""
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)
