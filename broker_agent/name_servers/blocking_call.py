"""A call that blocks, in a daemon thread, so that neither the loop nor the end of the process waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BlockingCall(Generic[T]):
    """One call at a time. One that hangs is waited for again next time and not made a second time beside it.

    (The loop's own pool would do worse: a resolver that hangs would take one of its few threads each time, and hold
    up the end of the process.)
    """

    def __init__(self, call: Callable[[], T], *, name: str) -> None:
        self._call = call
        self._name = name
        self._running: asyncio.Future[T] | None = None

    async def result(self) -> T:
        """Wait for the call that runs, else for a new one. Cancelling the wait leaves the call alone."""
        if self._running is None or self._running.cancelled():
            self._running = self._start()
        running = self._running
        try:
            return await asyncio.shield(running)
        finally:
            if running.done():
                self._running = None

    def _start(self) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(value)  # type: ignore[arg-type]  # there is a value where there is no error
            else:
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more; that is no fault

        def work() -> None:
            value: T | None = None
            error: Exception | None = None
            try:
                value = self._call()
            except Exception as raised:  # noqa: BLE001  # carried over to whoever waits
                error = raised
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                return  # the loop was closed meanwhile

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return future
