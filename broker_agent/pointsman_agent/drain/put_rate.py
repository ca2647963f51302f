"""Current put rate of this broker, from the ends of its queues; measured only during a drain."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from pointsman.clock import Clock
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError

MAX_QUEUES = 50_000
"""Of more queues only the first by name are measured."""


class PutRate:
    """Each call returns the rate since the previous one.

    A new queue counts as 0, because its start is unknown. So does a queue that shrank: it was deleted and created
    again.
    """

    def __init__(self, ends: QueueEnds, *, topics: Callable[[], TopicSet], clock: Clock) -> None:
        self._ends = ends
        self._topics = topics
        self._clock = clock
        self._last: tuple[dict[QueueKey, int], float] | None = None

    async def measure(self) -> float | None:
        """Return messages per second; None for the first call, and if the broker does not report queue ends."""
        wanted = (
            QueueKey(each.topic, queue_id)
            for each in self._topics().topics
            for queue_id in range(each.write_queue_nums)
        )
        try:
            ends = dict(await self._ends.max_offsets(list(islice(wanted, MAX_QUEUES))))
        except QueueEndsError:
            return None
        now, before = self._clock.monotonic(), self._last
        self._last = (ends, now)
        if before is None or not ends or now <= before[1]:
            return None
        then, since = before
        written = sum(max(0, end - then.get(queue, end)) for queue, end in ends.items())
        return written / (now - since)
