"""Threads for plain functions of the application: listeners, and checks of transactions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[ResultT]):
    result: ResultT | None
    error: BaseException | None


class _Job(Generic[ResultT]):
    def __init__(self, work: Callable[[], ResultT], ended: Callable[[], None]) -> None:
        self._work = work
        self._ended = ended
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[_Outcome[ResultT]] = self._loop.create_future()

    def run(self) -> None:
        """Run in the thread. Work whose caller was cancelled is not started."""
        outcome: _Outcome[ResultT] = _Outcome(None, None)
        try:
            if not self.done.cancelled():
                outcome = _Outcome(self._context.run(self._work), None)
        except BaseException as error:  # noqa: BLE001  # raised in the caller
            outcome = _Outcome(None, error)

        def settle() -> None:
            self._ended()
            if not self.done.done():
                self.done.set_result(outcome)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # The loop is closed, so no caller is waiting.


class ListenerThreads(Generic[ResultT]):
    """At most ``most`` threads, plus one for each abandoned one; started on demand.

    They are daemon threads. The standard library's pool joins its threads at exit, so a listener that never returns
    would block the exit of the process indefinitely.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._started = 0
        self._unfinished = 0
        self._jobs: queue.SimpleQueue[_Job[ResultT] | None] = queue.SimpleQueue()

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Do ``work`` in a thread; return its result or raise what it raised. Cancelling only stops the waiting."""
        job = _Job(work, self._end_one)
        self._unfinished += 1
        self._jobs.put(job)
        # Counted only in the loop: a count by the threads would lag, and a job would wait for a busy thread.
        if self._started < min(self._unfinished, self._most):
            self._started += 1
            name = f"pointsman-listener-{self._started}"
            threading.Thread(target=self._work_off, name=name, daemon=True).start()
        outcome = await job.done
        if outcome.error is not None:
            raise outcome.error
        return cast("ResultT", outcome.result)

    def abandon_one(self) -> None:
        """Replace a thread that does not return."""
        self._most += 1

    def close(self) -> None:
        """End the threads after their queued work."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work_off(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job

    def _end_one(self) -> None:
        self._unfinished -= 1


def is_plain(function: Callable[..., object]) -> bool:
    """Whether a function of the application is to be called in a thread, and not ``async def``."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call))
