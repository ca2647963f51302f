"""What every strategy but a configured list asks first, in RocketMQ's order and words."""

from __future__ import annotations

from pointsman_client.allocation.strategy import AllocationRequest
from pointsman_client.errors import AllocationError


def is_member(request: AllocationRequest) -> bool:
    """Whether the asking client is one of the members; if not, its share is empty. Raises :class:`AllocationError`."""
    if not request.client_id:
        raise AllocationError("currentCID is empty")
    if not request.queues:
        raise AllocationError("mqAll is null or mqAll empty")
    if not request.client_ids:
        raise AllocationError("cidAll is null or cidAll empty")
    return request.client_id in request.client_ids
