"""Wait in the event loop for what other tasks bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman.manual_clock import ManualClock


async def eventually(
    condition: Callable[[], object], *, clock: ManualClock | None = None, step: float = 0.05, seconds: float = 60.0
) -> None:
    """Return when the condition holds; TimeoutError if it does not in time. Each check advances ``clock`` by a step."""
    async with asyncio.timeout(seconds):
        while not condition():
            if clock is not None:
                await clock.advance(step)
            await asyncio.sleep(0.005)
