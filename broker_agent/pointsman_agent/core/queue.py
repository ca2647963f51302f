"""The queues of this broker."""

from __future__ import annotations

from typing import NamedTuple

from pointsman.group_topics import RETRY_QUEUES, is_retry_topic
from pointsman.wire.refusals import FieldViolation
from pointsman_agent.core.topic_set import TopicSet


class QueueKey(NamedTuple):
    """A queue of this broker; equal to the plain tuple."""

    topic: str
    queue_id: int


class BrokerQueues:
    """Index of the broker's queues, rebuilt when the topic set changes."""

    def __init__(self) -> None:
        self._of: TopicSet | None = None
        self._queue_nums: dict[str, int] = {}

    def fault(self, queue: QueueKey, topics: TopicSet) -> FieldViolation | None:
        """Return why the broker has no such queue, with the field's name; None if it has.

        A queue counts while it can be read or written: a topic that shrinks loses its write queues first. A group's
        retry topic exists without being listed.
        """
        if self._of is not topics:
            self._queue_nums = {each.topic: max(each.read_queue_nums, each.write_queue_nums) for each in topics.topics}
            self._of = topics
        queue_nums = RETRY_QUEUES if is_retry_topic(queue.topic) else self._queue_nums.get(queue.topic)
        if queue_nums is None:
            return FieldViolation("topic", f"is not a topic of this broker: {queue.topic!r}")
        if queue.queue_id >= queue_nums:
            return FieldViolation(
                "queue_id", f"is beyond the {queue_nums} queues of topic {queue.topic!r}: {queue.queue_id}"
            )
        return None
