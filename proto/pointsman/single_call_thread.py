"""Run blocking work outside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class SingleCallThread:
    """Runs one call at a time, each on a new daemon thread; a call during another one raises ``busy``.

    A hanging file system blocks a thread indefinitely and ignores cancellation. With a pool each poll would block one
    more thread, and the process would wait for all of them at its end.
    """

    def __init__(self, name: str, *, busy: type[Exception]) -> None:
        self._name = name
        self._busy = busy
        self._is_busy = False

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or raise what it raises.

        Raises ``busy`` while the previous call, cancelled by its caller, is still running.
        """
        if self._is_busy:
            raise self._busy("the previous call is still blocked")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        thread = threading.Thread(target=self._work, args=(work, answer, loop), name=self._name, daemon=True)
        self._is_busy = True
        try:
            thread.start()
        except RuntimeError:  # no thread can be started now
            self._is_busy = False
            raise
        return await answer

    def _work(self, work: Callable[[], T], answer: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
        result: list[T] = []
        error: Exception | None = None
        try:
            result.append(work())
        except Exception as raised:  # noqa: BLE001  # passed to the caller
            error = raised
        self._is_busy = False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_give, answer, result, error)


def _give(answer: asyncio.Future[T], result: list[T], error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result[0])
