"""Mappings of static topics: which logical queues a broker leads, and the physical queue of each.

Clients of a static topic address logical queues. A broker takes every queue id of such a topic for a logical one, so a
route without the mapping sends messages to other queues than clients mean. Sources: RocketMQ 5
``TopicQueueMappingInfo``, ``RouteInfoManager.registerBroker`` (a registration adds mappings, the last one counts) and
``pickupTopicRouteData``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pointsman.names import MAX_NAME_LENGTH, MAX_QUEUES, registered_name_problem, text_problem
from pointsman.wire.refusals import shown

MAX_QUEUES_PER_BROKER = 50_000
"""Logical queues of all static topics that one broker leads; a topic of which it leads none counts as one."""
QUEUES_LIMIT = "static_topic_queues_per_broker"
"""Name of that bound in errors and metrics."""
MAX_BYTES = 32 * 1024 * 1024
"""Memory of the mappings of all brokers together."""
BYTES_LIMIT = "bytes_of_static_topics"
"""Name of that bound in errors and metrics."""
MAX_EPOCH = 2**63 - 1


class QueueMapping(NamedTuple):
    """The logical queues of one topic that one broker leads."""

    broker_name: str
    """Normally that of the broker that registered it; a broker that was renamed may still name itself as before."""
    scope: str
    """``__global__``; clients name the broker of its logical queues ``__syslo__global__``."""
    total_queues: int
    """Logical queues of the topic on all brokers."""
    epoch: int
    """Of two mappings of a logical queue clients use the one with the higher epoch."""
    dirty: bool
    queue_ids: tuple[tuple[int, int], ...]
    """Logical and physical id of each queue, sorted."""

    @property
    def queue_count(self) -> int:
        """Return what it counts of :data:`MAX_QUEUES_PER_BROKER`."""
        return max(1, len(self.queue_ids))

    def problem(self, topic: str) -> str | None:
        """Return the rule that it breaks, with field and value; None: it breaks none."""
        return next(self._problems(topic), None)

    def _problems(self, topic: str) -> Iterator[str]:
        for field, value, problem in (
            ("topic", topic, registered_name_problem(topic)),
            ("bname", self.broker_name, registered_name_problem(self.broker_name)),
            ("scope", self.scope, text_problem(self.scope, longest=MAX_NAME_LENGTH)),
        ):
            if problem is not None:
                yield f"{field} {problem}, not {shown(value)}"
        if not 0 <= self.total_queues <= MAX_QUEUES:
            yield f"totalQueues must be from 0 to {MAX_QUEUES}, not {self.total_queues}"
        if not 0 <= self.epoch <= MAX_EPOCH:
            yield f"epoch must be from 0 to {MAX_EPOCH}, not {shown(self.epoch)}"
        for pair in self.queue_ids:
            for queue_id in pair:
                if not 0 <= queue_id <= MAX_QUEUES:
                    yield f"currIdMap has {shown(queue_id)}, a queue id is from 0 to {MAX_QUEUES}"


@dataclass(frozen=True, slots=True)
class StaticTopics:
    """The mappings that one broker registered, by topic. Must not be altered."""

    mappings: Mapping[str, QueueMapping]
    size: int
    """Estimated memory, bytes."""

    def get(self, topic: str) -> QueueMapping | None:
        """Return the mapping of a topic; None: it is not static."""
        return self.mappings.get(topic)

    def merged(self, added: Mapping[str, QueueMapping], topics: Mapping[str, object]) -> StaticTopics:
        """Return these mappings and some more, without those of topics that are not held; itself if nothing changes."""
        before = self.mappings
        if all(before.get(topic) == mapping for topic, mapping in added.items()):
            return self.within(topics)
        return static_topics({**before, **added}, topics)

    def within(self, topics: Mapping[str, object]) -> StaticTopics:
        """Return these mappings without those of topics that are not held."""
        return self if self.mappings.keys() <= topics.keys() else static_topics(self.mappings, topics)

    def differences(self, other: StaticTopics) -> Iterator[str]:
        """Yield the topics whose mappings differ."""
        mine, others = self.mappings, other.mappings
        yield from (topic for topic, mapping in mine.items() if others.get(topic) != mapping)
        yield from (topic for topic in others if topic not in mine)


NO_STATIC_TOPICS = StaticTopics({}, 0)


def static_topics(mappings: Mapping[str, QueueMapping], topics: Mapping[str, object]) -> StaticTopics:
    """Return the mappings of those topics that are held."""
    kept = {topic: mapping for topic, mapping in mappings.items() if topic in topics}
    if not kept:
        return NO_STATIC_TOPICS
    return StaticTopics(kept, sum(_size(topic, mapping) for topic, mapping in kept.items()))


def queue_count(mappings: Mapping[str, QueueMapping]) -> int:
    """Return what mappings count of :data:`MAX_QUEUES_PER_BROKER`."""
    return sum(mapping.queue_count for mapping in mappings.values())


def _size(topic: str, mapping: QueueMapping) -> int:
    """Estimate memory: an entry with its texts, and a pair of numbers for each queue (sys.getsizeof)."""
    return 500 + len(topic) + 130 * len(mapping.queue_ids)
