"""The threads behind the synchronous facade: one event loop per process, from the first facade's start to the last
one's close, and one thread per facade for the application's callbacks, which must not hold up that loop."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

START_SECONDS = 10.0
END_SECONDS = 5.0
MAX_PENDING_CALLBACKS = 10_000
"""Callbacks of one facade."""


class LoopThread:
    """A plain asyncio loop in a daemon thread; whoever uses it counts."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        """A thread does not survive a fork."""
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Use the loop, which is started if nobody else does."""
        with self._lock:
            if self._loop is None:
                started = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(started,), name="pointsman-loop", daemon=True)
                self._thread.start()
                if not started.wait(START_SECONDS) or self._loop is None:
                    raise RuntimeError("the event loop of the synchronous facade did not start")
            self._users += 1
            return self._loop

    def release(self) -> None:
        """Use it no more; with its last user it ends, within :data:`END_SECONDS`."""
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._stop is None or self._thread is None:
                return
            loop, stop, thread = self._loop, self._stop, self._thread
            self._loop = self._stop = self._thread = None
            loop.call_soon_threadsafe(stop.set)
        thread.join(END_SECONDS)

    def _run(self, started: threading.Event) -> None:
        async def live() -> None:
            stop = asyncio.Event()
            self._loop, self._stop = asyncio.get_running_loop(), stop
            started.set()
            await stop.wait()

        # Whatever loop the application's policy would make, calls here go through gRPC's threads alone.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(live())


_shared: list[LoopThread] = []


def shared() -> LoopThread:
    """The one of this process; a forked child gets its own."""
    if not _shared or _shared[0].pid != os.getpid():
        _shared[:] = [LoopThread()]
    return _shared[0]


class CallbackThread:
    """One daemon thread, started with the first callback; callbacks keep their order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(MAX_PENDING_CALLBACKS)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.dropped = 0
        """Callbacks that were not called, because :data:`MAX_PENDING_CALLBACKS` others waited already."""

    def submit(self, callback: Callable[[], object]) -> None:
        """Call it soon; from any thread, without waiting."""
        with self._lock:
            if self._is_closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            try:
                self._waiting.put_nowait(callback)
            except queue.Full:
                self.dropped += 1
                logger.error("a callback is not called: %d others wait already", MAX_PENDING_CALLBACKS)  # noqa: TRY400  not an exception here

    def close(self, *, timeout_seconds: float) -> None:
        """Let those that wait be called, as far as the time allows; one that does not return is left alone."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        try:
            self._waiting.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        thread.join(timeout_seconds)

    def _work(self) -> None:
        while (callback := self._waiting.get()) is not None:
            try:
                callback()
            except Exception:  # the border to the application: a callback may raise anything
                logger.exception("a callback raised")
