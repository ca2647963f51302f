"""Shares that differ by one queue at most: consecutive queues, or every n-th."""

from __future__ import annotations

from pointsman_client.allocation.precondition import is_member
from pointsman_client.allocation.strategy import AllocationRequest
from pointsman_client.message_queue import MessageQueue


class Averagely:
    """Consecutive queues (RocketMQ ``AllocateMessageQueueAveragely``): most queues of a member are on one broker."""

    name = "AVG"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share; the members before the remainder get one queue more."""
        if not is_member(request):
            return ()
        at = request.client_ids.index(request.client_id)
        size, surplus = divmod(len(request.queues), len(request.client_ids))
        start = at * size + min(at, surplus)
        return request.queues[start : start + size + (at < surplus)]


class AveragelyByCircle:
    """Every n-th queue (RocketMQ ``AllocateMessageQueueAveragelyByCircle``): each broker's queues are spread."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        if not is_member(request):
            return ()
        return request.queues[request.client_ids.index(request.client_id) :: len(request.client_ids)]
