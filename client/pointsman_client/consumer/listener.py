"""Calls the application's listener and converts its return value or exception to a result."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import CallEnd, ConsumeResult, Outcome, Reject
from pointsman_client.tracing_hook import TracingHook

ListenerResult = ConsumeResult | None
Listener = Callable[[ReceivedMessage], ListenerResult | Awaitable[ListenerResult]]


SUCCEEDED = CallEnd(Outcome.SUCCESS)
"""The result of every successful call, so that it can be compared by identity."""


def raised(error: BaseException) -> CallEnd:
    """Return the result of a call that raised."""
    return CallEnd(Outcome.RAISED, f"{type(error).__name__}: {error}", error)


class ListenerCaller:
    """Calls one listener; a plain function runs in a pool of threads that are started when first needed."""

    def __init__(self, listener: Listener, *, threads: int) -> None:
        self._listener = listener
        self._threads: ListenerThreads[ListenerResult | Awaitable[ListenerResult]] = ListenerThreads(threads)
        self.is_plain = not (
            inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004
        )

    async def call(self, message: ReceivedMessage) -> CallEnd:
        """Call the listener and wait for its end. Raises only CancelledError, and logs nothing."""
        try:
            if not self.is_plain:
                result = await cast("Awaitable[ListenerResult]", self._listener(message))
            else:
                returned = await self._threads.run(lambda: self._listener(message))
                result = await returned if inspect.isawaitable(returned) else returned
        except Reject as rejection:
            return CallEnd(Outcome.REJECTED, rejection.reason)
        except Exception as error:  # noqa: BLE001  # of the application: a failure is a result
            return raised(error)
        if result is None or result is ConsumeResult.SUCCESS:
            return SUCCEEDED
        if not isinstance(result, ConsumeResult):
            return CallEnd(Outcome.RAISED, f"returned {result!r}, which is neither a ConsumeResult nor None")
        if result is ConsumeResult.DEAD_LETTER:
            return CallEnd(Outcome.REJECTED, f"returned {result.value}")
        return CallEnd(Outcome.LATER, f"returned {result.value}")

    def abandon_thread(self) -> None:
        """Replace a thread whose listener does not return."""
        self._threads.abandon_one()

    def close(self) -> None:
        """Start no further calls in threads. A running one cannot be stopped."""
        self._threads.close()


class TracedCaller(ListenerCaller):
    """Calls one listener, each time inside a span."""

    def __init__(self, listener: Listener, *, threads: int, group: str, tracing_hook: TracingHook) -> None:
        super().__init__(listener, threads=threads)
        self._group = group
        self._tracing_hook = tracing_hook

    async def call(self, message: ReceivedMessage) -> CallEnd:
        """See :meth:`ListenerCaller.call`."""
        with self._tracing_hook.processing(message, group=self._group) as note_end:
            end = await super().call(message)
            note_end(end.outcome.value, end.error, end.exception)
            return end


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
