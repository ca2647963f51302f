"""A deadline by the injected clock, where ``asyncio.timeout`` would go by the event loop's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pointsman.service.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it and raise TimeoutError after ``seconds``.

    The work runs in the caller's task, for an idle agent does little else than look at something within a deadline.
    """
    async with asyncio.timeout(None) as deadline:
        timer = asyncio.ensure_future(_end(deadline, clock, seconds))
        try:
            return await work
        finally:
            timer.cancel()


async def _end(deadline: asyncio.Timeout, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    deadline.reschedule(asyncio.get_running_loop().time())
