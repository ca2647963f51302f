"""The clock of a fleet for tests: it moves in steps, and lets whoever wakes run on in the event loop it sleeps in."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from concurrent import futures

from pointsman.wire.manual_clock import SteppedClock, settle

QUIET_SECONDS = 0.001
"""In which an answer comes over the loopback."""
PATIENCE_SECONDS = 10.0


class FleetClock(SteppedClock):
    """A ``pointsman.wire.clock.Clock`` for any number of event loops; moved from a thread that runs none of them."""

    def __init__(self) -> None:
        super().__init__()
        # Weak: a loop of a test that is over is nobody's.
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    async def sleep(self, seconds: float) -> None:
        """Wait until the fleet's time has come so far; a non-positive time still yields once."""
        with self._lock:
            self._loops.add(asyncio.get_running_loop())
        await super().sleep(seconds)

    def advance(self, seconds: float, *, settle: bool = True) -> None:
        """Let time pass, waking each sleeper at its own moment, in order; blocks.

        With ``settle`` each one runs on to its next wait before time continues; without, when its loop comes to it.
        """
        for _ in self._steps(seconds):
            # All of one moment run on together.
            if settle and not self._has_due(self.now):
                self._settle()

    def _wake(self, woken: asyncio.Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed
            woken.get_loop().call_soon_threadsafe(super()._wake, woken)

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


async def _rest() -> None:
    await settle()
    await asyncio.sleep(QUIET_SECONDS)
