"""Lag of consumer groups on this broker, measured only during a drain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from pointsman.clock import Clock
from pointsman.group_topics import RETRY_QUEUES, is_retry_topic, retry_topic
from pointsman.names import PERM_READ
from pointsman_agent.core.drain_lag import LagReport, LagTally
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.queue_stats.collector import MAX_QUEUES, slices
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError

SLICE = 500
"""Commits processed between two pauses of a measurement; one to two milliseconds."""


class GroupLags:
    """A queue of a topic that a group has begun, without an offset of the group, is unread from its first message.

    ``members`` returns the number of clients of each group, None while it is unknown. Broadcasting groups store their
    offsets themselves and are in neither.
    """

    def __init__(
        self,
        source: QueueEnds,
        *,
        topics: Callable[[], TopicSet],
        offsets: Offsets,
        members: Callable[[], Mapping[str, int] | None],
        clock: Clock,
    ) -> None:
        self._source = source
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._clock = clock
        self._readable_of: TopicSet | None = None
        self._readable: Mapping[str, int] = {}

    async def measure(self) -> LagReport | None:
        """Return the lag of all groups; None while the broker does not report queue ends.

        A retry queue without a committed offset of its group is unread from its first message.
        """
        readable, tally, ends = self._readable_queues(), LagTally(), _Ends(self._source)
        groups: set[str] = set()
        retried: set[QueueKey] = set()
        try:
            for commits in slices(chain(self._offsets.commits(), self._offsets.uncommitted(readable)), SLICE):
                queues = {QueueKey(topic, queue_id) for _, topic, queue_id, _ in commits}
                found = await ends.of(queue for queue in queues if _is_readable(queue, readable))
                for group, topic, queue_id, committed in commits:
                    queue = QueueKey(topic, queue_id)
                    groups.add(group)
                    if is_retry_topic(topic):
                        retried.add(queue)
                    if queue in found:
                        tally.add(group, queue, committed, found[queue])
                await self._clock.sleep(0)
            members = self._members()
            for retries in slices(_retry_queues(groups | set(members or ())), SLICE):
                new = [(group, queue) for group, queue in retries if queue not in retried]
                found = await ends.of(queue for _, queue in new)
                for group, queue in new:
                    if queue in found:
                        tally.add(group, queue, 0, found[queue])
                await self._clock.sleep(0)
        except QueueEndsError:
            return None
        return tally.finish(members, unmeasured=ends.unmeasured)

    def _readable_queues(self) -> Mapping[str, int]:
        """Return the number of readable queues by topic; messages in other queues stay unread during any drain."""
        topics = self._topics()
        if self._readable_of is not topics:
            self._readable = {each.topic: each.read_queue_nums for each in topics.topics if each.perm & PERM_READ}
            self._readable_of = topics
        return self._readable


class _Ends:
    """Requests the end of each queue once, for at most MAX_QUEUES queues."""

    def __init__(self, source: QueueEnds) -> None:
        self._source = source
        self._known: dict[QueueKey, QueueEnd | None] = {}
        """None: the broker does not report its end."""
        self.unmeasured = 0

    async def of(self, queues: Iterable[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        """Return the ends of those queues whose end is known. Raises QueueEndsError."""
        wanted = list(queues)
        new = [queue for queue in wanted if queue not in self._known]
        asked = new[: max(0, MAX_QUEUES - len(self._known))]
        self.unmeasured += len(new) - len(asked)
        if asked:
            found = await self._source.ends(asked)
            self._known.update((queue, found.get(queue)) for queue in asked)
        ends = ((queue, self._known.get(queue)) for queue in wanted)
        return {queue: end for queue, end in ends if end is not None}


def _is_readable(queue: QueueKey, readable: Mapping[str, int]) -> bool:
    return is_retry_topic(queue.topic) or queue.queue_id < readable.get(queue.topic, 0)


def _retry_queues(groups: Iterable[str]) -> Iterator[tuple[str, QueueKey]]:
    for group in groups:
        for queue_id in range(RETRY_QUEUES):
            yield group, QueueKey(retry_topic(group), queue_id)
