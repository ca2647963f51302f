"""What time does to the groups: one task that sleeps until something is due, and is woken when that becomes earlier.

Nothing runs in between: without groups there is the scan for silent clients alone. How late the task wakes is a pause
of our own (a process that was stopped, a machine that was busy), in which nobody was heard: clients are credited with
it before they are judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman.wire.clock import Clock
from pointsman_agent.core.group_membership import Changes
from pointsman_agent.core.groups import Groups

PAUSE_SECONDS = 0.5
"""Lateness beyond this is a pause; what is below it every busy loop has."""


class GroupTimer:
    """Acts on time. :meth:`run` must run as long as there are groups; ``apply`` is told what changed."""

    def __init__(self, groups: Groups, *, clock: Clock, apply: Callable[[Changes], None]) -> None:
        self._groups = groups
        self._clock = clock
        self._apply = apply
        self._sleeping: asyncio.Future[None] | None = None
        self._due = 0.0

    def reschedule(self) -> None:
        """Wake up earlier if something is due earlier now. To be called after every change."""
        if self._sleeping is not None and self._groups.next_due() < self._due:
            self._sleeping.cancel()

    async def run(self) -> None:
        """Do what is due, for ever."""
        now = self._clock.monotonic()
        while True:
            # What was due before it was looked at is no pause.
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
