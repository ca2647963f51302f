"""Health checks of the broker. A probe is any class with :class:`Probe`'s one method."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pointsman_agent.core.probe_verdict import ProbeResult
from pointsman_agent.probe.redis_facts import RedisFacts


class ProbeNotInstalledError(Exception):
    """The probe needs a package that is not installed; the text names it."""


@runtime_checkable
class ReadsRedis(Protocol):
    """A probe that reads the state of a Redis server."""

    facts: RedisFacts | None
    """Of the last check; None: there was none, or it could not read them."""


class Probe(Protocol):
    """Checks the broker once."""

    async def check(self) -> ProbeResult:
        """Return the broker's condition. Need not return in time: the caller has a deadline and cancels."""
        ...
