"""A clock whose waits return immediately, for code that waits for a file to settle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman.manual_clock import ManualClock


class InstantClock(ManualClock):
    """Only waits advance the time. ``on_sleep`` is called in each."""

    def __init__(self, on_sleep: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.on_sleep = on_sleep

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.on_sleep is not None:
            self.on_sleep()
        await asyncio.sleep(0)
