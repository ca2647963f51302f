"""A ring of members on which a queue belongs to the next one: who joins or leaves moves only its own queues."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from functools import lru_cache

from pointsman_client.allocation.strategy import AllocationRequest, is_member, queue_text
from pointsman_client.errors import AllocationError
from pointsman_client.message_queue import MessageQueue

VIRTUAL_NODES = 10
"""RocketMQ's default."""


class ConsistentHash:
    """RocketMQ's ``AllocateMessageQueueConsistentHash``, point for point.

    Its shares are uneven, the more so the fewer virtual nodes there are; without any nobody gets a queue. All members
    must have the same number.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 0:
            raise AllocationError(f"illegal virtualNodeCnt :{virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        if not is_member(request):
            return ()
        points, owners = _ring(request.client_ids, self._virtual_nodes)
        if not points:
            return ()
        return tuple(
            queue
            for queue in request.queues
            if owners[bisect_left(points, _hash(queue_text(queue))) % len(points)] == request.client_id
        )


@lru_cache(maxsize=4)
def _ring(client_ids: tuple[str, ...], virtual_nodes: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The points in order and whose they are. Kept for a group's next topic: hashing is most of the work."""
    ring = {_hash(f"{client_id}-{number}"): client_id for client_id in client_ids for number in range(virtual_nodes)}
    points = tuple(sorted(ring))
    return points, tuple(ring[point] for point in points)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])
