"""Short forms for queues and members of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pointsman_client.core.allocation import AllocationRequest, AllocationStrategy
from pointsman_client.core.message_queue import MessageQueue


def queues(topic: str = "orders", cluster: str = "c1", /, **counts: int) -> tuple[MessageQueue, ...]:
    """The given number of queues of each broker, in this order: ``queues(a=2, b=1)``."""
    return tuple(MessageQueue(topic, cluster, name, i) for name, count in counts.items() for i in range(count))


def short(given: Iterable[MessageQueue]) -> str:
    """``a:0 a:1 b:0``."""
    return " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in given)


def request(
    client_id: str,
    client_ids: Iterable[str],
    of: Iterable[MessageQueue],
    *,
    zones: Mapping[tuple[str, str], str] | None = None,
) -> AllocationRequest:
    """A member's allocation request, with everything in the given order."""
    return AllocationRequest("G", client_id, tuple(of), tuple(client_ids), zones or {})


def shares(
    strategy: AllocationStrategy,
    client_ids: Iterable[str],
    of: Iterable[MessageQueue],
    *,
    zones: Mapping[tuple[str, str], str] | None = None,
) -> dict[str, tuple[MessageQueue, ...]]:
    """The allocation of each member."""
    members, these = tuple(client_ids), tuple(of)
    return {each: strategy.allocate(request(each, members, these, zones=zones)) for each in members}
