"""Run work that may block, or take its time, beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class SingleCallThread:
    """One call at a time, each on a thread that does not keep the process alive; ``busy`` is raised for one too many.

    A file system that hangs holds a thread for ever, and no cancellation reaches it: with a pool the next look would
    take another thread, and the process would wait for all of them when it ends.
    """

    def __init__(self, name: str, *, busy: type[Exception]) -> None:
        self._name = name
        self._busy = busy
        self._is_busy = False

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or raise what it raises.

        Raises ``busy`` while the call before, given up by its caller, has not ended.
        """
        if self._is_busy:
            raise self._busy("the look before this one still hangs")
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
        except Exception as raised:  # noqa: BLE001  # whatever it is, the caller gets it
            error = raised
        self._is_busy = False
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_give, answer, result, error)


def _give(answer: asyncio.Future[T], result: list[T], error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result[0])
