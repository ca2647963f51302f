"""A thread for blocking work that must block neither the event loop nor the exit of the process."""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs jobs one after the other, from :meth:`start` to :meth:`stop`. It does not delay the exit of the process."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Start. Jobs may have been queued before."""
        self._thread.start()

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a job; returns its result or exception. One that is cancelled before its turn does not run."""
        outcome: Future[T] = Future()
        self._jobs.put(partial(_run, job, outcome))
        return asyncio.wrap_future(outcome)

    async def run_within(
        self, job: Callable[[], T], seconds: float, *, sleep: Callable[[float], Coroutine[Any, Any, None]]
    ) -> T:
        """Run a job that uses a disk; start the thread if necessary.

        A job whose turn does not come in time does not run; one that has begun ends later. Raises what the job raises,
        and OSError after ``seconds`` of ``sleep``, or when the thread was stopped.
        """
        if not self._thread.is_alive():
            if self._thread.ident is not None:
                raise OSError(errno.EBADF, "it was closed")
            self._thread.start()
        running, late = self.run(job), asyncio.ensure_future(sleep(seconds))
        try:
            await asyncio.wait((running, late), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise OSError(errno.ETIMEDOUT, f"the disk did not respond in {seconds:g} s")
            return running.result()
        finally:
            late.cancel()
            running.cancel()

    def stop(self) -> None:
        """Stop after the queued jobs."""
        self._jobs.put(None)

    def is_alive(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait for its end, at most ``timeout`` seconds."""
        self._thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _run(job: Callable[[], T], outcome: Future[T]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        outcome.set_result(job())
    except Exception as error:  # noqa: BLE001  # raised in the caller
        outcome.set_exception(error)
