"""Waits for something or for time, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import Any

from pointsman_client.clock import Clock


async def done_within(work: asyncio.Future[Any], seconds: float, *, clock: Clock) -> bool:
    """Wait for ``work``, at most so long by the clock; return whether it is done. It is left as it is, also running."""
    late = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, late), return_when=asyncio.FIRST_COMPLETED)
    finally:
        late.cancel()
    return work.done()


class Wakeup:
    """An event that is forgotten when it was waited for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def wake(self) -> None:
        """End the wait that is on, or the next one."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until woken, at most so long; return whether it was woken."""
        if not self._event.is_set():
            woken = asyncio.ensure_future(self._event.wait())
            try:
                await done_within(woken, seconds, clock=self._clock)
            finally:
                woken.cancel()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
