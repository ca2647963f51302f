"""A list of queues that stands in the configuration, whoever else is in the group."""

from __future__ import annotations

from collections.abc import Iterable

from pointsman_client.allocation.strategy import AllocationRequest
from pointsman_client.message_queue import MessageQueue


class ByConfig:
    """The configured queues as they are, unchecked (RocketMQ ``AllocateMessageQueueByConfig``).

    Whoever configures the members sees to it that each queue is in one list. The retry topic's queues need no list:
    consumers share them averagely, whatever the strategy.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue] = ()) -> None:
        self._queues = tuple(queues)

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:  # noqa: ARG002 - the protocol's
        """Return the list, those of other topics included."""
        return self._queues
