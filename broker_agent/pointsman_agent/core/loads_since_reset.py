"""Which connections have loaded an offset since an operator reset it.

A client of version 0.1.0 commits without an epoch, so its commit does not show whether it is from before the reset.
Such a client loads the offset when it takes over a queue: for an hour after a reset only a connection that has done
that may commit. After that any may: a restart of this agent forgets who loaded, and a client would not commit until its
own restart. A client that states epochs needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable

from pointsman_agent.core.offsets import OffsetKey

REFUSED_MILLIS = 3_600_000
MAX_QUEUES = 10_000
"""Queues that were reset in the last hour and loaded since; of more, the first ones are forgotten."""
MAX_CONNECTIONS = 64
"""Per queue: it has one reader, and one after the other."""


class LoadsSinceReset:
    """Times are milliseconds of the wall clock, as epochs are."""

    def __init__(self) -> None:
        self._loads: dict[OffsetKey, tuple[int, dict[str, None]]] = {}

    def loaded(self, offsets: Iterable[tuple[OffsetKey, int]], connection: str, *, now: int) -> None:
        """Record that a connection has loaded these offsets, each with its epoch."""
        for key, epoch in offsets:
            if not epoch or _is_over(epoch, now=now):
                continue
            known, connections = self._loads.pop(key, (epoch, {}))
            connections = connections if known == epoch else {}
            connections[connection] = None
            if len(connections) > MAX_CONNECTIONS:
                del connections[next(iter(connections))]
            self._loads[key] = (epoch, connections)
        while len(self._loads) > MAX_QUEUES:
            del self._loads[next(iter(self._loads))]

    def may_commit(self, key: OffsetKey, epoch: int, connection: str, *, now: int) -> bool:
        """Whether a commit without an epoch may change an offset of this epoch."""
        if not epoch or _is_over(epoch, now=now):
            return True
        known, connections = self._loads.get(key, (0, {}))
        return known == epoch and connection in connections


def _is_over(epoch: int, *, now: int) -> bool:
    return now - epoch >= REFUSED_MILLIS
