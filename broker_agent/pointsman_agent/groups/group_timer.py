"""Timer of the groups: a task that sleeps until something is due, and is woken when that becomes earlier.

Without groups it runs only the scan for silent clients. If the task wakes late, this process was paused (stopped, or on
a busy machine) and received no heartbeats, so all clients are credited with the delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman.clock import Clock
from pointsman_agent.core.group_membership import Changes
from pointsman_agent.core.groups import Groups

PAUSE_SECONDS = 0.5
"""Delay from which a late wake-up counts as a pause; shorter ones occur in every busy loop."""


class GroupTimer:
    """Runs due work. :meth:`run` must run while there are groups; ``apply`` is called with the changes."""

    def __init__(self, groups: Groups, *, clock: Clock, apply: Callable[[Changes], None]) -> None:
        self._groups = groups
        self._clock = clock
        self._apply = apply
        self._sleeping: asyncio.Future[None] | None = None
        self._due = 0.0

    def reschedule(self) -> None:
        """Wake up earlier if the next due time has moved forward. Call it after every change."""
        if self._sleeping is not None and self._groups.next_due() < self._due:
            self._sleeping.cancel()

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        now = self._clock.monotonic()
        while True:
            # Work that was already overdue does not make a pause.
            self._due = max(now, self._groups.next_due())
            await self._sleep(self._due - self._clock.monotonic())
            now = self._clock.monotonic()
            if now - self._due > PAUSE_SECONDS:
                self._groups.credit_pause(now - self._due, now=now)
            self._apply(self._groups.advance(now=now))

    async def _sleep(self, seconds: float) -> None:
        self._sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({self._sleeping})
        finally:
            self._sleeping.cancel()
            self._sleeping = None
