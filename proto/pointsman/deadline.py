"""Deadlines by the injected clock (``asyncio.timeout`` uses the event loop's own), and closing when cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pointsman.clock import Clock

CLOSING_SECONDS = 1.0

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it and raise TimeoutError after ``seconds``.

    The work runs in the caller's task: a separate one would noticeably raise the CPU time of an idle agent.
    """
    async with asyncio.timeout(None) as deadline:
        timer = asyncio.ensure_future(_end(deadline, clock, seconds))
        try:
            return await work
        finally:
            timer.cancel()


async def finish(closing: Coroutine[Any, Any, object]) -> None:
    """Run ``closing`` to its end; a cancellation of the caller takes effect after it.

    redis-py's pool closes its connections in tasks: cancelled before they start, they close nothing.
    """
    task = asyncio.ensure_future(closing)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks an exception as retrieved
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=CLOSING_SECONDS)
        raise


async def _end(deadline: asyncio.Timeout, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    deadline.reschedule(asyncio.get_running_loop().time())
