"""What a strategy is asked and must answer. A user's own is one class with a name and one method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from pointsman_client.message_queue import MessageQueue
from pointsman_client.route import BrokerKey

Zones = Mapping[BrokerKey, str]
"""Zone of each replica group, from the route; without an entry: none is known."""


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """The queues of one topic and the members that share them, as one member sees them."""

    group: str
    client_id: str
    """The member that asks for its own share."""
    queues: tuple[MessageQueue, ...]
    """Sorted."""
    client_ids: tuple[str, ...]
    """Sorted."""
    zones: Zones = field(default_factory=lambda: MappingProxyType({}))


class AllocationStrategy(Protocol):
    """Every member asks on its own, so the same request but for ``client_id`` must give shares that fit together."""

    @property
    def name(self) -> str:
        """For logs and ``describe``."""
        ...

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share. Pure. Raises :class:`AllocationError`."""
        ...
