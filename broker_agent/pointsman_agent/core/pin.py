"""A pin: all queues of a group for some of its members, until a time, whoever comes and goes meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.wire.client_id import address_of


@dataclass(frozen=True, slots=True)
class Pin:
    """``targets`` are client ids, or addresses: every client there."""

    targets: frozenset[str]
    until: float
    """Monotonic seconds; it ends at this moment by itself."""

    def members(self, client_ids: Iterable[str]) -> tuple[str, ...]:
        """Those of the clients that it names, in their order; none may be there."""
        return tuple(each for each in client_ids if each in self.targets or address_of(each) in self.targets)
