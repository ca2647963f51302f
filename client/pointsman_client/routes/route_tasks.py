"""Background tasks that keep cached routes current: the watch, the poll, and rechecks of disputed routes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from pointsman.clock import Clock
from pointsman_client.aio import Wakeup, end_tasks, start_task
from pointsman_client.core.recheck_plan import RecheckPlan
from pointsman_client.errors import ClientStateError, NameServersUnavailableError, NotFoundError, PointsmanError
from pointsman_client.ports.route_source import RouteWatcher
from pointsman_client.routes.route_keeper import RouteKeeper

logger = logging.getLogger(__name__)

IDLE_SECONDS = 3_600.0
"""Longest wait while nothing is due; :class:`Wakeup` ends it."""

LookUp = Callable[[str], Awaitable[object]]


class RouteTasks:
    """All of these tasks of one client, from :meth:`start` to :meth:`close`."""

    def __init__(
        self,
        *,
        keeper: RouteKeeper,
        plan: RecheckPlan,
        watcher: RouteWatcher | None,
        follow_credentials: Callable[[], Coroutine[Any, Any, None]],
        follow_list: Callable[[], Coroutine[Any, Any, None]] | None,
        clock: Clock,
        rng: random.Random,
        interval_seconds: float,
        jitter: float,
        concurrency: int,
    ) -> None:
        """``watcher`` None: routes are only polled. ``follow_credentials`` and ``follow_list`` run until
        cancelled; None: the list of name servers does not change.
        """
        look_up_round = LookUpRound(concurrency=concurrency)
        poller = RoutePoller(
            clock=clock,
            rng=rng,
            interval_seconds=interval_seconds,
            jitter=jitter,
            look_up_round=look_up_round,
            topics=keeper.topics,
            look_up=keeper.look_up,
        )
        self._rechecker = Rechecker(plan, clock=clock, look_up_round=look_up_round, look_up=keeper.look_up_again)
        self._watcher = watcher
        self._runs = {
            "pointsman-route-poll": poller.run,
            "pointsman-route-recheck": self._rechecker.run,
            "pointsman-credentials": follow_credentials,
        }
        if follow_list is not None:
            self._runs["pointsman-name-server-list"] = follow_list
        if watcher is not None:
            self._runs["pointsman-route-watch"] = watcher.run
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def watched(self) -> frozenset[str]:
        """Topics whose changes a name server pushes."""
        return frozenset() if self._watcher is None else self._watcher.watched

    def start(self) -> None:
        """Start the tasks in the running event loop."""
        self._tasks = [start_task(run(), name=name) for name, run in self._runs.items()]

    def wake(self) -> None:
        """Notify the tasks that the topics in use or the recheck plan changed."""
        self._rechecker.wake()
        if self._watcher is not None:
            self._watcher.topics_changed()

    async def close(self, *, timeout_seconds: float) -> None:
        """Cancel the tasks."""
        # An ended task refers to the frames of its exception, and these to a stream, whose connection would stay open.
        tasks, self._tasks = self._tasks, []
        await end_tasks(tasks, timeout_seconds=timeout_seconds)


class LookUpRound:
    """Looks several topics up, a few in parallel. A failure is logged once and leaves the cached routes unchanged.

    When no name server responds, the remaining topics of a round are skipped: each would wait for the same timeout.
    """

    def __init__(self, *, concurrency: int) -> None:
        self._concurrency = concurrency
        self._failing = False

    async def run(self, topics: Iterable[str], look_up: LookUp) -> None:
        """Look each topic up once."""
        waiting = deque(topics)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(waiting))):
                group.create_task(self._look_up_waiting(waiting, look_up))

    async def _look_up_waiting(self, waiting: deque[str], look_up: LookUp) -> None:
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
            except Exception:  # a fault here must not end the polls of all topics
                logger.exception("unexpected error in the lookup of topic %s", topic)
            else:
                self._note_success()

    def _note_failure(self, error: PointsmanError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("route refresh failed; using cached routes: %s", error)

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            logger.warning("route refresh recovered")


class RoutePoller:
    """Looks up every topic in use once per interval."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        interval_seconds: float,
        jitter: float,
        look_up_round: LookUpRound,
        topics: Callable[[], Iterable[str]],
        look_up: LookUp,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._interval_seconds = interval_seconds
        self._jitter = jitter
        self._round = look_up_round
        self._topics = topics
        self._look_up = look_up

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            # The jitter only shortens the wait, so no topic waits longer than the interval.
            share = self._rng.uniform(1.0 - self._jitter, 1.0)
            await self._clock.sleep(self._interval_seconds * share)
            await self._round.run(self._topics(), self._look_up)


class Rechecker:
    """Looks up the topics that are due by a :class:`RecheckPlan`."""

    def __init__(self, plan: RecheckPlan, *, clock: Clock, look_up_round: LookUpRound, look_up: LookUp) -> None:
        self._plan = plan
        self._clock = clock
        self._round = look_up_round
        self._look_up = look_up
        self._wakeup = Wakeup(clock)

    def wake(self) -> None:
        """Notify the task that the plan changed."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            due_at = self._plan.next_due_at()
            left = IDLE_SECONDS if due_at is None else due_at - self._clock.monotonic()
            if left > 0:
                await self._wakeup.wait(left)
            await self._round.run(self._plan.take_due(now=self._clock.monotonic()), self._look_up)
