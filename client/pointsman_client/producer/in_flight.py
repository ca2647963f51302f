"""Sends that are under way: those that nobody awaits are bounded here, and ``close()`` waits for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from pointsman_client.aio import finish_tasks
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.errors import ClientClosedError, TooManyInFlightError

SendCallback = Callable[[SendResult | Exception], object]
"""Called in the event loop with the result of a send, or with the error that :meth:`Producer.send` would raise."""


class InFlight:
    """The sends of one producer."""

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._tasks: set[asyncio.Task[SendResult]] = set()
        self._bytes = 0
        self._awaited = 0
        self._no_awaited = asyncio.Event()
        self._no_awaited.set()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Note that a caller awaits a send inside the block."""
        self._awaited += 1
        self._no_awaited.clear()
        try:
            yield
        finally:
            self._awaited -= 1
            if not self._awaited:
                self._no_awaited.set()

    def check_room(self, size: int) -> None:
        """Raise :class:`TooManyInFlightError` unless a message of this size may be sent unawaited now."""
        if len(self._tasks) >= self._most or (self._tasks and self._bytes + size > self._most_bytes):
            raise TooManyInFlightError(len(self._tasks), self._bytes)

    def start(self, send: Coroutine[Any, Any, SendResult], *, size: int, callback: SendCallback | None) -> None:
        """Run a send in a task of its own; ``callback`` hears how it ended."""
        task = asyncio.create_task(send, name="pointsman-send")
        self._tasks.add(task)
        self._bytes += size
        task.add_done_callback(lambda done: self._end(done, size, callback))

    async def close(self, *, timeout_seconds: float) -> None:
        """Wait for what is under way, at most so long; then end what nobody awaits."""
        no_awaited = asyncio.create_task(self._no_awaited.wait(), name="pointsman-awaited-sends")
        tasks = [*self._tasks]
        _, late = await asyncio.wait([no_awaited, *tasks], timeout=timeout_seconds)
        no_awaited.cancel()
        await finish_tasks([*late], timeout_seconds=0.0)

    def _end(self, task: asyncio.Task[SendResult], size: int, callback: SendCallback | None) -> None:
        self._tasks.discard(task)
        self._bytes -= size
        error = ClientClosedError() if task.cancelled() else task.exception()
        if callback is None or not isinstance(error, Exception | None):
            return
        # It runs from the event loop: its fault goes to the loop's handler, not to us.
        asyncio.get_running_loop().call_soon(callback, task.result() if error is None else error)
