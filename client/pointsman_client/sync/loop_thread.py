"""The event loop behind the synchronous facade: one a process, in a thread, from the first facade's start to the last
one's close."""

from __future__ import annotations

import asyncio
import os
import threading

START_SECONDS = 10.0
END_SECONDS = 5.0


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
