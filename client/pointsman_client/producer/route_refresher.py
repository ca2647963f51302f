"""Asks for the routes of topics whose sends fail, beside the sends: none of them waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pointsman_client.background import end_tasks
from pointsman_client.clock import Clock
from pointsman_client.errors import PointsmanError

logger = logging.getLogger(__name__)

LEAST_GAP_SECONDS = 1.0
"""Between two lookups of a topic: while a broker is down every send may fail; name servers are not to feel it."""
MOST_AT_ONCE = 16
"""Topics that are looked up at the same time; one more is left to the watch and the poll."""


class RouteRefresher:
    """One lookup of a topic at a time. The first failure asks at once; one soon after that, when the gap is over."""

    def __init__(self, refresh: Callable[[str], Awaitable[object]], *, clock: Clock) -> None:
        self._refresh = refresh
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.left_out = 0
        """Requests beyond what may run at the same time."""

    def ask_for(self, topic: str) -> None:
        """Have the route looked up; returns at once."""
        if topic in self._tasks:
            return
        if len(self._tasks) >= MOST_AT_ONCE:
            self.left_out += 1
            return
        task = asyncio.create_task(self._look_up(topic), name=f"pointsman-refresh-{topic}")
        self._tasks[topic] = task
        task.add_done_callback(lambda done: self._end(topic, done))

    async def close(self, *, timeout_seconds: float) -> None:
        """End what is under way."""
        await end_tasks(list(self._tasks.values()), timeout_seconds=timeout_seconds)

    async def _look_up(self, topic: str) -> None:
        now = self._clock.monotonic()
        self._asked_at = {each: at for each, at in self._asked_at.items() if now - at < LEAST_GAP_SECONDS}
        if (wait := self._asked_at.get(topic, now - LEAST_GAP_SECONDS) + LEAST_GAP_SECONDS - now) > 0:
            await self._clock.sleep(wait)
        self._asked_at[topic] = self._clock.monotonic()
        try:
            await self._refresh(topic)
        except PointsmanError as error:
            logger.debug("no newer route of %s: %s", topic, error)

    def _end(self, topic: str, task: asyncio.Task[None]) -> None:
        del self._tasks[topic]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("looking up %s after a failed send failed", topic, exc_info=error)
