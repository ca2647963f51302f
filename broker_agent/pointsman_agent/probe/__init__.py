"""How the agent looks at its broker. A probe is whatever has :class:`Probe`'s one method."""

from __future__ import annotations

from typing import Protocol

from pointsman_agent.core.probe_verdict import ProbeResult


class ProbeNotInstalledError(Exception):
    """The probe needs a package that is not installed; the text says which."""


class Probe(Protocol):
    """Looks at the broker once."""

    async def check(self) -> ProbeResult:
        """Say how the broker is. Need not end by itself: the caller has the deadline and cancels."""
        ...
