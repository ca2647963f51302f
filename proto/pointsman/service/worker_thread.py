"""A thread for work that may block, and that must hold up neither the event loop nor the end of the process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs jobs one after the other, from :meth:`start` to :meth:`stop`. It does not keep the process from its end."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin. Jobs may have been given before."""
        self._thread.start()

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Have a job done; its result or exception. One that is cancelled before its turn is not begun."""
        outcome: Future[T] = Future()
        self._jobs.put(partial(_run, job, outcome))
        return asyncio.wrap_future(outcome)

    def stop(self) -> None:
        """End after the jobs that were given."""
        self._jobs.put(None)

    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait for its end, at most so many seconds."""
        self._thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _run(job: Callable[[], T], outcome: Future[T]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        outcome.set_result(job())
    except Exception as error:  # noqa: BLE001  # it is for the caller
        outcome.set_exception(error)
