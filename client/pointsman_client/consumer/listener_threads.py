"""Threads for listeners that are plain functions: started when first needed, bounded, and never in the way of an exit.

The standard library's pool joins its threads when the process ends, so one listener that never returns would keep the
process for ever. These are daemons: close waits for what is in flight, within its time, and then they do not matter.
"""

from __future__ import annotations

import asyncio
import contextvars
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
        """In the thread. What nobody waits for any more when its turn comes is not begun."""
        outcome: _Outcome[ResultT] = _Outcome(None, None)
        try:
            if not self.done.cancelled():
                outcome = _Outcome(self._context.run(self._work), None)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the caller gets it
            outcome = _Outcome(None, error)

        def tell() -> None:
            self._ended()
            if not self.done.done():
                self.done.set_result(outcome)

        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return  # The loop is closed: nobody waits any more.


class ListenerThreads(Generic[ResultT]):
    """At most ``most`` threads, and one more for each that was given up on."""

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
        # Counted in the loop alone: a count that threads keep is behind, and a job would wait for a busy one.
        if self._started < min(self._unfinished, self._most):
            self._started += 1
            name = f"pointsman-listener-{self._started}"
            threading.Thread(target=self._work_off, name=name, daemon=True).start()
        outcome = await job.done
        if outcome.error is not None:
            raise outcome.error
        return cast("ResultT", outcome.result)

    def give_up_on_one(self) -> None:
        """Let another thread take the place of one that does not return."""
        self._most += 1

    def close(self) -> None:
        """Let the threads end after what they were given."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work_off(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job

    def _end_one(self) -> None:
        self._unfinished -= 1
