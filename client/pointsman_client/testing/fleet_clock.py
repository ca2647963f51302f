"""Clock of a test fleet. It advances in steps and lets woken tasks run in their event loops."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from concurrent import futures

from pointsman.manual_clock import SteppedClock, settle

SETTLE_SECONDS = 0.001
"""Time for a response over the loopback interface."""
SETTLE_TIMEOUT_SECONDS = 10.0


class FleetClock(SteppedClock):
    """A ``pointsman.clock.Clock`` for several event loops; advanced from a thread that runs none of them."""

    def __init__(self) -> None:
        super().__init__()
        # Weak, so that loops of completed tests are released.
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    async def sleep(self, seconds: float) -> None:
        """Wait until the fleet's time has advanced by ``seconds``; a non-positive time still yields once."""
        with self._lock:
            self._loops.add(asyncio.get_running_loop())
        await super().sleep(seconds)

    def advance(self, seconds: float, *, settle: bool = True) -> None:
        """Advance time, waking each sleeper at its time, in order; blocks.

        With ``settle`` woken tasks run to their next wait before time continues; without, when their loop runs them.
        """
        for _ in self._steps(seconds):
            # Sleepers with the same time run together.
            if settle and not self._has_due(self.now):
                self._settle()

    def _wake(self, woken: asyncio.Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed
            woken.get_loop().call_soon_threadsafe(super()._wake, woken)

    def _settle(self) -> None:
        with self._lock:
            running = [loop for loop in self._loops if loop.is_running()]
        for loop in running:
            settling = asyncio.run_coroutine_threadsafe(_settle_loop(), loop)
            try:
                settling.result(SETTLE_TIMEOUT_SECONDS)
            except futures.CancelledError:  # its loop ends
                continue
            except TimeoutError:
                if loop.is_running():
                    raise RuntimeError(
                        f"an event loop that uses the fleet's clock was blocked for {SETTLE_TIMEOUT_SECONDS:g} s; "
                        "do not call blocking functions in it"
                    ) from None


async def _settle_loop() -> None:
    await settle()
    await asyncio.sleep(SETTLE_SECONDS)
