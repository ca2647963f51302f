"""Base of the blocking classes: runs calls from any thread in the background loop and returns their results."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, wait
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pointsman_client.errors import (
    BlockingCallError,
    CallTimeoutError,
    ClientClosedError,
    ClientNotStartedError,
    ForkedError,
)
from pointsman_client.sync.background_threads import CallbackThread, LoopThread, shared

T = TypeVar("T")

CALLBACKS_END_SECONDS = 2.0
SIGNAL_SECONDS = 0.5
"""Longest delay of KeyboardInterrupt in a wait. Python runs signal handlers only between instructions of the main
thread, which a signal just before the wait, or in another thread, does not wake."""


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """Options of the blocking classes in addition to those of the async ones."""

    call_timeout_seconds: float = 60.0
    """Timeout of a call; a call's own ``timeout_seconds`` is added to it."""


class Wrapped(Protocol):
    """An object that is started and closed."""

    def start(self) -> Coroutine[Any, Any, object]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class Facade:
    """Owns async objects in the background loop; its methods block and are thread-safe.

    No call blocks for longer than ``call_timeout_seconds`` plus its own timeout. The exception is waiting for the next
    message or change, which ends with :meth:`close` or KeyboardInterrupt.
    """

    def __init__(self, wrapped: Wrapped, *, call_timeout_seconds: float, dependency: Facade | None = None) -> None:
        """``wrapped`` is started and closed with this object; so is ``dependency``, which ``wrapped`` uses."""
        self._wrapped = wrapped
        self._dependency = dependency
        self._call_timeout_seconds = call_timeout_seconds
        self._pid: int | None = None
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._callbacks = CallbackThread("pointsman-callbacks")

    def start(self) -> Self:
        """Start; a second call does nothing. Raises as the async class."""
        self._check_place()
        with self._lock:
            if self._closed:
                raise ClientClosedError
            if self._loop is None:
                with ExitStack() as undo:
                    if self._dependency is not None:
                        undo.callback(self._dependency.close)
                        self._dependency.start()
                    self._thread = shared()
                    loop = self._thread.acquire()
                    undo.callback(self._thread.release)
                    self._submit(loop, self._wrapped.start, self._call_timeout_seconds)
                    undo.pop_all()
                self._loop, self._pid = loop, os.getpid()
        return self

    def close(self) -> None:
        """Close within a bounded time; a second call does nothing. Waiting calls raise ClientClosedError."""
        self._check_place()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._loop is None or self._thread is None:
                return
            with ExitStack() as steps:
                if self._dependency is not None:
                    steps.callback(self._dependency.close)
                steps.callback(self._thread.release)
                self._submit(self._loop, self._wrapped.close, self._call_timeout_seconds)
                self._callbacks.close(timeout_seconds=CALLBACKS_END_SECONDS)

    def __del__(self) -> None:
        # If the constructor raised, there are no attributes.
        if not getattr(self, "_closed", True) and self._loop is not None and self._pid == os.getpid():
            text = f"unclosed {type(self).__name__}: use it in a `with` block, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]], *, seconds: float = 0.0) -> T:
        """Run ``work`` in the loop, within ``seconds`` plus the call timeout."""
        return self._submit(self._usable_loop(), work, seconds + self._call_timeout_seconds)

    def _wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``work`` in the loop without a timeout."""
        return self._submit(self._usable_loop(), work, None)

    def _invoke(self, function: Callable[[], T]) -> T:
        """Call a function that does not wait, in the loop if it runs."""
        self._check_place()
        if self._loop is None or self._closed:
            return function()

        async def work() -> T:
            return function()

        return self._call(work)

    def _called_back(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return a function for the loop that calls ``callback`` on the callback thread."""

        def hand_over(*arguments: object) -> None:
            self._callbacks.submit(lambda: callback(*arguments))

        return hand_over

    def _usable_loop(self) -> asyncio.AbstractEventLoop:
        self._check_place()
        if self._closed:
            raise ClientClosedError
        if self._loop is None:
            raise ClientNotStartedError
        return self._loop

    def _check_place(self) -> None:
        if self._pid is not None and self._pid != os.getpid():
            raise ForkedError
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise BlockingCallError

    def _submit(
        self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]], seconds: float | None
    ) -> T:
        coroutine = work()
        try:
            done = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop ended between the check and here
            coroutine.close()
            raise ClientClosedError from None
        left = math.inf if seconds is None else seconds
        try:
            while left > 0 and not done.done():
                step = min(left, SIGNAL_SECONDS)
                wait([done], timeout=step)
                left -= step
            if not done.done():
                raise CallTimeoutError(seconds or 0.0)
            return done.result()
        except CancelledError:
            raise ClientClosedError from None
        finally:
            # After a timeout or KeyboardInterrupt it must not continue.
            done.cancel()
