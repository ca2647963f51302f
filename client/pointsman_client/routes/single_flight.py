"""One piece of work for each key at a time, shared by all who ask for it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from pointsman_client.background import end_tasks
from pointsman_client.errors import ClientClosedError

ResultT = TypeVar("ResultT")


class SingleFlight(Generic[ResultT]):
    """Runs each flight in a task of its own, so a caller that is cancelled leaves the others' flight alone."""

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

    async def do_anew(self, key: str, start: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """As :meth:`do`, but not in a flight that began before this call."""
        flight = self._flights.get(key)
        if flight is not None:
            await asyncio.wait([flight])
        return await self.do(key, start)

    def _land(self, key: str, flight: asyncio.Task[ResultT]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            # Mark the error as seen: every caller may have been cancelled meanwhile.
            flight.exception()

    async def close(self, *, timeout_seconds: float) -> None:
        """Cancel what is in flight; who waits for it gets :class:`ClientClosedError`."""
        self._closed = True
        await end_tasks(list(self._flights.values()), timeout_seconds=timeout_seconds)
