"""Asyncio building blocks: background tasks with logged failures, loop binding, waits, callbacks, shared work."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Generic, TypeVar

from pointsman.clock import Clock
from pointsman_client.errors import ClientClosedError, ClientNotStartedError, ForkedError, WrongEventLoopError

logger = logging.getLogger(__name__)

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")
SubjectT = TypeVar("SubjectT")

END_SECONDS = 0.1
"""Grace period for cancelled tasks after the timeout."""


def start_task(work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """Start a task; the caller keeps a reference and cancels it. A failure is logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def end_tasks(tasks: Collection[asyncio.Task[Any]], *, timeout_seconds: float) -> None:
    """Cancel tasks and wait for them, at most ``timeout_seconds``."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_seconds)


async def finish_tasks(tasks: Collection[asyncio.Task[Any]], *, timeout_seconds: float) -> None:
    """Wait for tasks at most ``timeout_seconds``, then cancel the remaining ones and wait :data:`END_SECONDS`."""
    late: set[asyncio.Task[Any]] = set(tasks)
    if late and timeout_seconds > 0:
        _, late = await asyncio.wait(late, timeout=timeout_seconds)
    for task in late:
        task.cancel()
    if late:
        _, late = await asyncio.wait(late, timeout=END_SECONDS)
    for task in late:
        logger.error("task %s did not stop after cancellation", task.get_name())


class Closing:
    """The close of an object: a second call joins the first, and a cancelled caller does not stop it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def do(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``close`` unless it has already been started; return when it has ended."""
        if self._task is None:
            self._task = start_task(close(), name="pointsman-closing")
        await asyncio.shield(self._task)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("background task %s ended with an unexpected exception", task.get_name(), exc_info=error)


def deadline_in(seconds: float) -> float:
    """Return the time of the running event loop at which this many seconds have passed."""
    return asyncio.get_running_loop().time() + seconds


class LoopBinding:
    """Binds an object to the event loop and process in which it was started, until it is closed.

    gRPC's threads and event loops do not survive a fork, and no object of this library supports two loops. An owner
    that was started and is garbage-collected before it was closed causes a ResourceWarning.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._closed = False

    @property
    def is_bound(self) -> bool:
        """Whether it was started."""
        return self._loop is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def bind(self) -> None:
        """Bind to the running event loop and this process."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def check(self, *, to_close: bool = False) -> None:
        """Raise ClientClosedError, ClientNotStartedError, ForkedError or WrongEventLoopError unless it may be used.

        ``to_close``: or unless it may be closed, which is also allowed before the start and a second time.
        """
        if self._closed and not to_close:
            raise ClientClosedError
        if self._loop is None:
            if to_close:
                return
            raise ClientNotStartedError
        if os.getpid() != self._pid:
            raise ForkedError
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongEventLoopError from None
        if here is not self._loop:
            raise WrongEventLoopError

    def close(self) -> None:
        """Mark it as closed."""
        self._closed = True

    def __del__(self) -> None:
        # A forked child does not warn about objects that its parent started.
        if not self._closed and self._loop is not None and self._pid == os.getpid():
            text = f"unclosed {self._owner}: use it in an `async with` block, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


async def done_within(work: asyncio.Future[Any], seconds: float, *, clock: Clock) -> bool:
    """Wait for ``work``, at most ``seconds`` by the clock; return whether it is done. ``work`` is not cancelled."""
    late = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, late), return_when=asyncio.FIRST_COMPLETED)
    finally:
        late.cancel()
    return work.done()


class Wakeup:
    """An event that is cleared when a wait ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_woken = False
        self._waits: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """End the current wait, or the next one."""
        self._is_woken = True
        for wait in self._waits:
            _end_wait(wait)

    async def wait(self, seconds: float) -> bool:
        """Wait until woken, at most ``seconds``; return whether it was woken."""
        if not self._is_woken:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            late = asyncio.ensure_future(self._clock.sleep(seconds))
            late.add_done_callback(lambda _: _end_wait(ended))
            self._waits.add(ended)
            try:
                await ended
            finally:
                self._waits.discard(ended)
                late.cancel()
        was_woken, self._is_woken = self._is_woken, False
        return was_woken


def _end_wait(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


class Callbacks(Generic[ArgumentT]):
    """Functions of the application, called for each event until they are removed.

    The event loop calls them, so an exception goes to its exception handler, not to the caller of :meth:`notify`.
    """

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[ArgumentT], object]] = {}

    def add(self, callback: Callable[[ArgumentT], object]) -> Callable[[], None]:
        """Add ``callback``; return the function that removes it. A callback added twice is called twice."""
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def notify(self, argument: ArgumentT) -> None:
        """Schedule a call of each callback."""
        for callback in list(self._callbacks.values()):
            asyncio.get_running_loop().call_soon(callback, argument)


class SingleFlight(Generic[ResultT]):
    """Runs work once per key at a time; callers that request a key while its work runs share the result.

    Each flight is a separate task, so cancelling one caller does not affect the others.
    """

    def __init__(self) -> None:
        self._flights: dict[str, asyncio.Task[ResultT]] = {}
        self._closed = False

    async def do(self, key: str, start: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Join the flight of ``key``, or start one, and return its result or raise its error."""
        if self._closed:
            raise ClientClosedError
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(start(), name=f"pointsman-lookup-{key}")
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._land(key, done))
        # Unlike awaiting the task, this does not cancel it with the caller.
        await asyncio.wait([flight])
        if flight.cancelled():
            raise ClientClosedError
        return flight.result()

    async def rerun(self, key: str, start: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """As :meth:`do`, but never join a flight that started before this call."""
        flight = self._flights.get(key)
        if flight is not None:
            await asyncio.wait([flight])
        return await self.do(key, start)

    def _land(self, key: str, flight: asyncio.Task[ResultT]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            # Mark the exception as retrieved: all callers may have been cancelled.
            flight.exception()

    async def close(self, *, timeout_seconds: float) -> None:
        """Cancel all flights; their callers get :class:`ClientClosedError`."""
        self._closed = True
        await end_tasks(list(self._flights.values()), timeout_seconds=timeout_seconds)


class BatchedQuery(Generic[SubjectT, ResultT]):
    """Combines queries of the same loop iteration into one call.

    Otherwise a rebalance of thousands of queues would make thousands of calls.
    """

    def __init__(
        self, query: Callable[[Collection[SubjectT]], Awaitable[ResultT]], *, one_at_a_time: bool = False
    ) -> None:
        """``one_at_a_time``: queries made during a call are also combined, into the next call."""
        self._query = query
        self._turn: AbstractAsyncContextManager[None] = asyncio.Lock() if one_at_a_time else nullcontext()
        self._next: _Batch[SubjectT, ResultT] | None = None

    async def about(self, *subjects: SubjectT) -> ResultT:
        """Return the result of the call that includes ``subjects``; raises what ``query`` raises."""
        current = self._next
        if current is None:
            current = self._next = _Batch()
            current.task = asyncio.create_task(self._run(current), name="pointsman-batched-query")
        current.subjects.update(dict.fromkeys(subjects))
        assert current.task is not None  # noqa: S101  created with the batch
        current.waiting += 1
        try:
            # Cancelling one caller must not cancel the call of the others.
            return await asyncio.shield(current.task)
        finally:
            current.waiting -= 1
            if not current.waiting:
                self._end(current)
                current.task.cancel()

    async def _run(self, current: _Batch[SubjectT, ResultT]) -> ResultT:
        await asyncio.sleep(0)
        async with self._turn:
            self._end(current)
            return await self._query(list(current.subjects))

    def _end(self, current: _Batch[SubjectT, ResultT]) -> None:
        """Stop further callers from joining."""
        if self._next is current:
            self._next = None


class _Batch(Generic[SubjectT, ResultT]):
    def __init__(self) -> None:
        self.subjects: dict[SubjectT, None] = {}
        self.waiting = 0
        self.task: asyncio.Task[ResultT] | None = None
