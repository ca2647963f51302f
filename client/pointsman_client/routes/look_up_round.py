"""Looks several topics up, a few at a time; what fails is said once and leaves the cached routes as they are."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from pointsman_client.errors import ClientStateError, NameServersUnavailableError, NotFoundError, PointsmanError

logger = logging.getLogger(__name__)

LookUp = Callable[[str], Awaitable[object]]


class LookUpRound:
    """When no name server answers, the rest of a round is left out: it would only wait for the same deadline again."""

    def __init__(self, *, concurrency: int) -> None:
        self._concurrency = concurrency
        self._failing = False

    async def run(self, topics: Iterable[str], look_up: LookUp) -> None:
        """Look each topic up once."""
        waiting = deque(topics)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(waiting))):
                group.create_task(self._work_off(waiting, look_up))

    async def _work_off(self, waiting: deque[str], look_up: LookUp) -> None:
        while waiting:
            topic = waiting.popleft()
            try:
                await look_up(topic)
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
