"""When routes are asked for unasked: each topic in use once an interval, and a disputed one soon again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from pointsman_client.clock import Clock
from pointsman_client.routes.look_up_round import LookUp, LookUpRound
from pointsman_client.routes.recheck_plan import RecheckPlan
from pointsman_client.wakeup import Wakeup

IDLE_SECONDS = 3_600.0
"""A wait that something else ends."""


class RoutePoller:
    """One task that wakes after at most an interval and looks up every topic in use."""

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
            # The jitter only shortens: no topic waits longer than the interval.
            share = self._rng.uniform(1.0 - self._jitter, 1.0)
            await self._clock.sleep(self._interval_seconds * share)
            await self._round.run(self._topics(), self._look_up)


class Rechecker:
    """One task that looks up what a :class:`RecheckPlan` says is due."""

    def __init__(self, plan: RecheckPlan, *, clock: Clock, look_up_round: LookUpRound, look_up: LookUp) -> None:
        self._plan = plan
        self._clock = clock
        self._round = look_up_round
        self._look_up = look_up
        self._wakeup = Wakeup(clock)

    def wake(self) -> None:
        """Note that the plan has changed."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Look up until cancelled."""
        while True:
            due_at = self._plan.next_due_at()
            left = IDLE_SECONDS if due_at is None else due_at - self._clock.monotonic()
            if left > 0:
                await self._wakeup.wait(left)
            await self._round.run(self._plan.take_due(now=self._clock.monotonic()), self._look_up)
