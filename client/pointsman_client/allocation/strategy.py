"""What a strategy is asked and must answer, and what RocketMQ's have in common.

A user's own is one class with a name and one method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from pointsman_client.errors import AllocationError
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


def is_member(request: AllocationRequest) -> bool:
    """Whether the asking client is one of the members; if not, its share is empty.

    Every strategy but a configured list checks this first. Raises :class:`AllocationError`, in RocketMQ's order and
    words.
    """
    if not request.client_id:
        raise AllocationError("currentCID is empty")
    if not request.queues:
        raise AllocationError("mqAll is null or mqAll empty")
    if not request.client_ids:
        raise AllocationError("cidAll is null or cidAll empty")
    return request.client_id in request.client_ids


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as RocketMQ writes it (``MessageQueue.toString``): consistent hashing hashes it, errors name it.

    It has no cluster, since RocketMQ's queues have none.
    """
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
