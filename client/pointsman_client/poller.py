"""Keeps routes fresh: looks every topic in use up again, once an interval."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from pointsman_client.clock import Clock
from pointsman_client.errors import ClientStateError, NameServersUnavailableError, NotFoundError, PointsmanError

logger = logging.getLogger(__name__)


class RoutePoller:
    """One task that wakes after at most an interval and looks up each topic, a few at a time.

    A lookup that fails leaves the cached route as it is. When no name server answers, the rest of the round is left
    out: it would only wait for the same deadline again.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        interval_seconds: float,
        jitter: float,
        concurrency: int,
        topics: Callable[[], Iterable[str]],
        look_up: Callable[[str], Awaitable[object]],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._interval_seconds = interval_seconds
        self._jitter = jitter
        self._concurrency = concurrency
        self._topics = topics
        self._look_up = look_up
        self._failing = False

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            # The jitter only shortens: no topic waits longer than the interval.
            share = self._rng.uniform(1.0 - self._jitter, 1.0)
            await self._clock.sleep(self._interval_seconds * share)
            await self.poll_once()

    async def poll_once(self) -> None:
        """Look every topic up once."""
        waiting = deque(self._topics())
        if not waiting:
            return
        workers = min(self._concurrency, len(waiting))
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work_off(waiting))

    async def _work_off(self, waiting: deque[str]) -> None:
        while waiting:
            topic = waiting.popleft()
            try:
                await self._look_up(topic)
            except ClientStateError:
                waiting.clear()
            except NameServersUnavailableError as error:
                waiting.clear()
                self._note_failure(error)
            except NotFoundError:
                self._note_success()
            except PointsmanError as error:
                self._note_failure(error)
            else:
                self._note_success()

    def _note_failure(self, error: PointsmanError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("routes are not refreshed, cached ones stay in use: %s", error)

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            logger.warning("routes are refreshed again")
