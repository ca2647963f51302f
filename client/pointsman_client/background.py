"""Tasks in the background, whose death is said and not swallowed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

END_SECONDS = 0.1
"""What cancelled work gets to end in, when the time for finishing it is over."""


def start_task(work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """Start a task; the caller keeps it and ends it. What it dies of goes to the log."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_death)
    return task


async def end_tasks(tasks: Collection[asyncio.Task[Any]], *, timeout_seconds: float) -> None:
    """Cancel tasks and wait for them, at most so long."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_seconds)


async def finish_tasks(tasks: Collection[asyncio.Task[Any]], *, timeout_seconds: float) -> None:
    """Wait for tasks at most so long, then cancel those that are left and give them a moment to end."""
    late: set[asyncio.Task[Any]] = set(tasks)
    if late and timeout_seconds > 0:
        _, late = await asyncio.wait(late, timeout=timeout_seconds)
    for task in late:
        task.cancel()
    if late:
        _, late = await asyncio.wait(late, timeout=END_SECONDS)
    for task in late:
        logger.error("%s does not end, though it was cancelled", task.get_name())


class Closing:
    """The close of an object: who asks again joins it, and it goes on to its end when whoever asked is cancelled."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def do(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``close`` unless it was begun already; return when it has ended."""
        if self._task is None:
            self._task = start_task(close(), name="pointsman-closing")
        await asyncio.shield(self._task)


def _log_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s died", task.get_name(), exc_info=error)
