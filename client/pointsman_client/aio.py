"""What the client adds to asyncio: background tasks, the loop an object belongs to, waits, callbacks, shared work."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Generic, TypeVar

from pointsman.wire.clock import Clock
from pointsman_client.errors import ClientClosedError, ClientNotStartedError, ForkedError, WrongEventLoopError

logger = logging.getLogger(__name__)

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")
SubjectT = TypeVar("SubjectT")
AnswerT = TypeVar("AnswerT")

END_SECONDS = 0.1
"""What cancelled work gets to end in, when the time for finishing it is over."""


def start_task(work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """Start a task; the caller keeps it and ends it. What it dies of goes to the log."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def end_tasks(tasks: Collection[asyncio.Task[Any]], *, timeout_seconds: float) -> None:
    """Cancel tasks and wait for them, at most so long."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_seconds)


async def finish_tasks(tasks: Collection[asyncio.Task[Any]], *, timeout_seconds: float) -> None:
    """Wait for tasks at most so long, then cancel those that are left and give them a moment to end."""
    late: set[asyncio.Task[Any]] = set(tasks)
    if late and timeout_seconds > 0:
        _, late = await asyncio.wait(late, timeout=timeout_seconds)
    for task in late:
        task.cancel()
    if late:
        _, late = await asyncio.wait(late, timeout=END_SECONDS)
    for task in late:
        logger.error("%s does not end, though it was cancelled", task.get_name())


class Closing:
    """The close of an object: a second call joins the first, and a cancelled caller does not stop it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def do(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``close`` unless it was begun already; return when it has ended."""
        if self._task is None:
            self._task = start_task(close(), name="pointsman-closing")
        await asyncio.shield(self._task)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s died", task.get_name(), exc_info=error)


class LoopBinding:
    """Where and when an object may be used: in the event loop and process in which it was started, until it is closed.

    gRPC's threads and an event loop do not survive a fork, and nothing here is made for two loops.

    Of an owner that was started and is collected before it was closed, a ResourceWarning is given.
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
        """Whether its use has ended."""
        return self._closed

    def bind(self) -> None:
        """Note where it is started."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def check(self) -> None:
        """Raise ClientClosedError, ClientNotStartedError, ForkedError or WrongEventLoopError unless it may be used."""
        if self._closed:
            raise ClientClosedError
        if self._loop is None:
            raise ClientNotStartedError
        self.check_place()

    def check_place(self) -> None:
        """Raise ForkedError or WrongEventLoopError elsewhere than where it was started."""
        if self._loop is None:
            return
        if os.getpid() != self._pid:
            raise ForkedError
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongEventLoopError from None
        if here is not self._loop:
            raise WrongEventLoopError

    def close(self) -> None:
        """End its use."""
        self._closed = True

    def __del__(self) -> None:
        # A part of the interpreter may be gone at its end; a child did not start what its parent did.
        if not self._closed and self._loop is not None and self._pid == os.getpid():
            text = f"unclosed {self._owner}: use it in an `async with` block, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


async def done_within(work: asyncio.Future[Any], seconds: float, *, clock: Clock) -> bool:
    """Wait for ``work``, at most so long by the clock; return whether it is done. It is left as it is, also running."""
    late = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, late), return_when=asyncio.FIRST_COMPLETED)
    finally:
        late.cancel()
    return work.done()


class Wakeup:
    """An event that is forgotten when it was waited for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def wake(self) -> None:
        """End the wait that is on, or the next one."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until woken, at most so long; return whether it was woken."""
        if not self._event.is_set():
            woken = asyncio.ensure_future(self._event.wait())
            try:
                await done_within(woken, seconds, clock=self._clock)
            finally:
                woken.cancel()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set


class Callbacks(Generic[ArgumentT]):
    """Functions of the application, called for each event until they are removed.

    The event loop calls them, so a callback's fault goes to the loop's handler, not to the caller of :meth:`notify`.
    """

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[ArgumentT], object]] = {}

    def add(self, callback: Callable[[ArgumentT], object]) -> Callable[[], None]:
        """Add ``callback``; return the function that removes it. Added twice it is called twice."""
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def notify(self, argument: ArgumentT) -> None:
        """Have each called soon."""
        for callback in list(self._callbacks.values()):
            asyncio.get_running_loop().call_soon(callback, argument)


class SingleFlight(Generic[ResultT]):
    """One piece of work for each key at a time, shared by all callers that ask for it while it runs.

    Each flight is a task of its own, so a caller that is cancelled leaves the others' flight alone.
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
        # Unlike awaiting the task, this leaves it running when the caller is cancelled.
        await asyncio.wait([flight])
        if flight.cancelled():
            raise ClientClosedError
        return flight.result()

    async def rerun(self, key: str, start: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """As :meth:`do`, but not in a flight that began before this call."""
        flight = self._flights.get(key)
        if flight is not None:
            await asyncio.wait([flight])
        return await self.do(key, start)

    def _land(self, key: str, flight: asyncio.Task[ResultT]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            # Mark the error as seen: every caller may have been cancelled by then.
            flight.exception()

    async def close(self, *, timeout_seconds: float) -> None:
        """Cancel what is in flight; who waits for it gets :class:`ClientClosedError`."""
        self._closed = True
        await end_tasks(list(self._flights.values()), timeout_seconds=timeout_seconds)


class BatchedQuery(Generic[SubjectT, AnswerT]):
    """One question about many subjects: what is asked in one turn of the loop is one call.

    Thousands of queues that are taken up or let go of at once would else be thousands of calls.
    """

    def __init__(
        self, ask: Callable[[Collection[SubjectT]], Awaitable[AnswerT]], *, one_at_a_time: bool = False
    ) -> None:
        """``one_at_a_time``: what is asked while a question is on its way is one, too."""
        self._ask = ask
        self._turn: AbstractAsyncContextManager[None] = asyncio.Lock() if one_at_a_time else nullcontext()
        self._next: _Round[SubjectT, AnswerT] | None = None

    async def about(self, *subjects: SubjectT) -> AnswerT:
        """The answer to the question in which ``subjects`` are some of several; raises what asking raises."""
        current = self._next
        if current is None:
            current = self._next = _Round()
            current.task = asyncio.create_task(self._run(current), name="pointsman-shared-question")
        current.subjects.update(dict.fromkeys(subjects))
        assert current.task is not None  # noqa: S101  made with the round
        current.waiting += 1
        try:
            # One who is cancelled must not take the answer from the others.
            return await asyncio.shield(current.task)
        finally:
            current.waiting -= 1
            if not current.waiting:
                self._end(current)
                current.task.cancel()

    async def _run(self, current: _Round[SubjectT, AnswerT]) -> AnswerT:
        await asyncio.sleep(0)
        async with self._turn:
            self._end(current)
            return await self._ask(list(current.subjects))

    def _end(self, current: _Round[SubjectT, AnswerT]) -> None:
        """Let no further caller join."""
        if self._next is current:
            self._next = None


class _Round(Generic[SubjectT, AnswerT]):
    def __init__(self) -> None:
        self.subjects: dict[SubjectT, None] = {}
        self.waiting = 0
        self.task: asyncio.Task[AnswerT] | None = None
