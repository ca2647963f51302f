"""Ends of queues as a test sets them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.queue_stats.ends import QueueEndsError


class TableOfEnds:
    """Implements ``pointsman_agent.queue_stats.ends.QueueEnds``."""

    def __init__(self) -> None:
        self.table: dict[QueueKey, int] = {}
        self.first: dict[QueueKey, int] = {}
        self.problem = ""

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        if self.problem:
            raise QueueEndsError(self.problem)
        known = [queue for queue in queues if queue in self.first]
        return {queue: QueueEnd(self.first[queue], self.table.get(queue, self.first[queue]), 0) for queue in known}

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        if self.problem:
            raise QueueEndsError(self.problem)
        return {queue: self.table[queue] for queue in queues if queue in self.table}
