"""What the blocking classes have in common: how a call gets from any thread into the background loop and back."""

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
"""How long a wait holds up KeyboardInterrupt: Python runs handlers between instructions of the main thread alone, which
a signal that came just before the wait, or to another thread, does not wake."""


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """What the blocking classes take beside the options of the async ones."""

    call_timeout_seconds: float = 60.0
    """Longest time of a call, beyond what it is given itself."""


class Wrapped(Protocol):
    """What is started and closed."""

    def start(self) -> Coroutine[Any, Any, object]: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class Facade:
    """Owns async objects in the background loop; its methods block, on any number of threads.

    No call blocks for longer than ``call_timeout_seconds`` beyond the time that it was given itself, except waiting
    for a next message or change, which ends with :meth:`close` or KeyboardInterrupt.
    """

    def __init__(self, wrapped: Wrapped, *, call_timeout_seconds: float, dependency: Facade | None = None) -> None:
        """``wrapped`` is started and closed with this; so is ``dependency``, which it stands on."""
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
        """Start; a second call changes nothing. Raises as the async class."""
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
        """Close, in bounded time; a second call does nothing. Calls that wait raise ClientClosedError."""
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
        # One whose constructor raised has no fields.
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
        """Do it in the loop, within ``seconds`` and the time for a call."""
        return self._submit(self._usable_loop(), work, seconds + self._call_timeout_seconds)

    def _wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it in the loop, however long it takes."""
        return self._submit(self._usable_loop(), work, None)

    def _invoke(self, function: Callable[[], T]) -> T:
        """Do in the loop, while it runs, what does not wait."""
        self._check_place()
        if self._loop is None or self._closed:
            return function()

        async def work() -> T:
            return function()

        return self._call(work)

    def _called_back(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Give what can be called in the loop and calls ``callback`` outside it."""

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
            # After a deadline or a KeyboardInterrupt it must not go on.
            done.cancel()
