"""A clock that moves only when it is told to, for every loop that sleeps through ``Clock.sleep``."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

SETTLE_ROUNDS = 20
"""Turns of the event loop in which woken tasks may run on to their next wait."""


class ManualClock:
    """The clock of services and of clients; starts at monotonic 1,000 s and 2026-01-01T00:00:00Z."""

    def __init__(self, now: float = 1_000.0, utc: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now
        self._utc_offset = utc - datetime.fromtimestamp(now, UTC)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds on a scale that never jumps but by :meth:`pause`."""
        return self.now

    def utc_now(self) -> datetime:
        """Wall clock, as services ask for it."""
        return datetime.fromtimestamp(self.now, UTC) + self._utc_offset

    def utc(self) -> datetime:
        """Wall clock, as clients ask for it."""
        return self.utc_now()

    def jump_wall_clock(self, by: timedelta) -> None:
        """Move the wall clock alone, as an operator or NTP may."""
        self._utc_offset += by

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved so far; a non-positive time still yields once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wakened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), wakened))
        await wakened

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking each sleeper at its own moment, in order."""
        target = self.now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            at, _, wakened = heapq.heappop(self._sleepers)
            self.now = max(self.now, at)
            if not wakened.done():
                wakened.set_result(None)
            await self._settle()
        self.now = target
        await self._settle()

    async def pause(self, seconds: float) -> None:
        """Let time pass as while the process is stopped: whoever was due meanwhile wakes late, at the end of it."""
        await self._settle()
        self.now += seconds
        await self.advance(0)

    async def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)
