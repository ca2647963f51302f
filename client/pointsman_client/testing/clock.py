"""The clock of a fleet for tests: it moves in steps, and lets whoever wakes run on in the event loop it sleeps in."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
import weakref
from concurrent import futures
from datetime import UTC, datetime

START_SECONDS = 1_000.0
START_UTC = datetime(2026, 1, 1, tzinfo=UTC)

TURNS = 20
"""Of an event loop, in which woken tasks may run on to their next wait."""
QUIET_SECONDS = 0.001
"""In which an answer comes over the loopback."""
PATIENCE_SECONDS = 10.0


class FleetClock:
    """A ``pointsman_client.clock.Clock`` for any number of event loops; moved from a thread that runs none of them."""

    def __init__(self) -> None:
        self._now = START_SECONDS
        self._lock = threading.Lock()
        self._sleepers: list[tuple[float, int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._order = itertools.count()
        # Weak: a loop of a test that is over is nobody's.
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def monotonic(self) -> float:
        """Seconds on a scale that never jumps."""
        return self._now

    def utc(self) -> datetime:
        """Wall clock of the fleet; it begins with the year 2026."""
        return datetime.fromtimestamp(START_UTC.timestamp() + self._now - START_SECONDS, UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait until the fleet's time has come so far; a non-positive time still yields once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._loops.add(loop)
            heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), loop, woken))
        await woken

    def advance(self, seconds: float, *, settle: bool = True) -> None:
        """Let time pass, waking each sleeper at its own moment, in order; blocks.

        With ``settle`` whoever wakes runs on to its next wait before time goes on; without, when its loop comes to it.
        """
        target = self._now + seconds
        pause = self._settle if settle else _nothing
        pause()
        while (moment := self._next_moment(target)) is not None:
            self._now = max(self._now, moment)
            self._wake()
            pause()
        self._now = target
        pause()

    def _next_moment(self, target: float) -> float | None:
        with self._lock:
            return self._sleepers[0][0] if self._sleepers and self._sleepers[0][0] <= target else None

    def _wake(self) -> None:
        while True:
            with self._lock:
                if not self._sleepers or self._sleepers[0][0] > self._now:
                    return
                _, _, loop, woken = heapq.heappop(self._sleepers)
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(_wake_one, woken)

    def _settle(self) -> None:
        with self._lock:
            running = [loop for loop in self._loops if loop.is_running()]
        for loop in running:
            resting = asyncio.run_coroutine_threadsafe(_rest(), loop)
            try:
                resting.result(PATIENCE_SECONDS)
            except futures.CancelledError:  # its loop ends
                continue
            except TimeoutError:
                if loop.is_running():
                    raise RuntimeError(
                        f"an event loop with the fleet's clock is blocked for {PATIENCE_SECONDS:g} s: time cannot pass"
                    ) from None


def _nothing() -> None:
    return


def _wake_one(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _rest() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
    await asyncio.sleep(QUIET_SECONDS)
