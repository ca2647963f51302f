"""The one place of the client that reads a clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as the client sees it; tests put a manual one in its place."""

    def monotonic(self) -> float:
        """Seconds on a scale that never jumps."""
        ...

    def utc(self) -> datetime:
        """Wall clock, timezone-aware UTC: for what is written down, never for a decision."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a non-positive time still yields once."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """See :meth:`Clock.monotonic`."""
        return time.monotonic()

    def utc(self) -> datetime:
        """See :meth:`Clock.utc`."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """See :meth:`Clock.sleep`."""
        await asyncio.sleep(max(0.0, seconds))
