"""A deadline by the injected clock, where ``asyncio.timeout`` would go by the event loop's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pointsman.service.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it and raise TimeoutError after ``seconds``."""
    working = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({working, timer}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TimeoutError
    finally:
        working.cancel()
        timer.cancel()
        await asyncio.gather(working, timer, return_exceptions=True)
