"""The one place that reads a clock, in daemons and clients. Everything else takes times or a :class:`Clock`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Source of time; tests use a manual one."""

    def monotonic(self) -> float:
        """Seconds on a scale that never jumps: for every wait, deadline and age."""
        ...

    def utc_now(self) -> datetime:
        """Wall clock, timezone-aware UTC: for operators and the history. It decides nothing shorter than days."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a non-positive time still yields once."""
        ...


def utc_millis(clock: Clock) -> int:
    """Return milliseconds since the epoch by the wall clock: for times that outlive the process."""
    return round(clock.utc_now().timestamp() * 1000)


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    """See :meth:`Clock.monotonic`. Not a function of ours: it is called several times for each message and query."""

    def utc_now(self) -> datetime:
        """See :meth:`Clock.utc_now`."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """See :meth:`Clock.sleep`."""
        await asyncio.sleep(max(0.0, seconds))
