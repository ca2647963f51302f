"""Runs an application's callbacks one after the other, beside the event loop that they must not hold up."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

MAX_WAITING = 10_000


class CallbackThread:
    """One daemon thread, started with the first callback; callbacks keep their order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.dropped = 0
        """Callbacks that were not called, because :data:`MAX_WAITING` others waited already."""

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
                logger.error("a callback is not called: %d others wait already", MAX_WAITING)  # noqa: TRY400  no fault of ours

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
