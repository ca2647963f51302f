"""Health checks of the broker. A probe is any class with :class:`Probe`'s one method."""

from __future__ import annotations

from typing import Protocol

from pointsman_agent.core.probe_verdict import ProbeResult


class ProbeNotInstalledError(Exception):
    """The probe needs a package that is not installed; the text names it."""


class Probe(Protocol):
    """Checks the broker once."""

    async def check(self) -> ProbeResult:
        """Return the broker's condition. Need not return in time: the caller has a deadline and cancels."""
        ...
