"""Waiting for what others bring about: in the event loop and in threads; and a clock that does not wait."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pointsman.manual_clock import ManualClock

T = TypeVar("T")


async def eventually(
    condition: Callable[[], object],
    *,
    clock: ManualClock | None = None,
    step: float = 0.05,
    seconds: float = 60.0,
    what: str = "the condition",
) -> None:
    """Return when the condition holds; AssertionError if it does not in time. Checks advance ``clock`` by a step."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, f"waited {seconds:g} s for {what}"
        if clock is not None:
            await clock.advance(step)
        await asyncio.sleep(0.005)


async def read_until(
    read: Callable[[], Awaitable[T]], holds: Callable[[T], object] = bool, *, seconds: float = 60.0
) -> T:
    """Return the first result that holds, of as many queries as it takes; TimeoutError if none comes in time."""
    async with asyncio.timeout(seconds):
        while not holds(found := await read()):  # noqa: ASYNC110  # other processes decide
            await asyncio.sleep(0.02)
    return found


def until(condition: Callable[[], T], *, seconds: float = 60.0, what: str = "the condition") -> T:
    """Wait for something true and return it; AssertionError if it does not come in time."""
    ends_at = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends_at, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)
    return found


def pause(pid: int) -> None:
    """Send SIGSTOP to a child, and wait until it has stopped: its threads may run on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run it in a task, which is cancelled at the end; what it raised before comes out."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        was_done = task.done()
        task.cancel()
        await asyncio.wait([task])
        if was_done:
            task.result()


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
