"""Threads of the synchronous facade: one with an event loop per process, from the first start to the last close, and
one per facade for the application's callbacks, which must not block that loop."""

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
"""Maximum number of callbacks of one facade that wait for its thread."""


class LoopThread:
    """An asyncio loop in a daemon thread, with a count of its users."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        """A thread does not survive a fork."""
        self._lock = threading.Lock()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the loop, started for the first user, and add a user."""
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
        """Remove a user; after the last one the loop stops, within :data:`END_SECONDS`."""
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._stop is None or self._thread is None:
                return
            loop, stop, thread = self._loop, self._stop, self._thread
            self._loop = self._stop = self._thread = None
            loop.call_soon_threadsafe(stop.set)
        thread.join(END_SECONDS)

    def _run(self, started: threading.Event) -> None:
        async def run_until_stopped() -> None:
            stop = asyncio.Event()
            self._loop, self._stop = asyncio.get_running_loop(), stop
            started.set()
            await stop.wait()

        # Independent of the application's event loop policy: calls here use gRPC's own threads.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(run_until_stopped())


_shared: list[LoopThread] = []


def shared() -> LoopThread:
    """Return the loop thread of this process; a forked child gets its own."""
    if not _shared or _shared[0].pid != os.getpid():
        _shared[:] = [LoopThread()]
    return _shared[0]


class CallbackThread:
    """One daemon thread, started with the first callback; calls callbacks in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(MAX_PENDING_CALLBACKS)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.dropped = 0
        """Number of callbacks dropped because :data:`MAX_PENDING_CALLBACKS` were already queued."""

    def submit(self, callback: Callable[[], object]) -> None:
        """Queue a call; from any thread, without waiting."""
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
                logger.error("callback dropped: %d already queued", MAX_PENDING_CALLBACKS)  # noqa: TRY400  no traceback

    def close(self, *, timeout_seconds: float) -> None:
        """Call the queued callbacks within the timeout; one that does not return is abandoned."""
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
            except Exception:  # a callback of the application may raise any exception
                logger.exception("a callback of the application raised an exception")
