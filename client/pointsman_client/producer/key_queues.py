"""The queue of a sharding key in each topic: a map over the topic's configured queues, built when they change."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman_client.errors import NoBrokerUpError, NoWritableQueueError
from pointsman_client.message_queue import MessageQueue, why_without_queue
from pointsman_client.producer.configured_queues import ConfiguredQueues
from pointsman_client.producer.sharding import QueueOfKey, ShardingMap
from pointsman_client.route import TopicRoute


@dataclass(slots=True)
class _TopicMap:
    configured: ConfiguredQueues
    queues: tuple[MessageQueue, ...] = ()
    map: QueueOfKey | None = field(default=None)


class KeyQueues:
    """The maps of one producer, one for each topic that it sends to by key."""

    def __init__(self, sharding: ShardingMap, *, zone: str = "") -> None:
        """``zone``: to which the client's routes are limited, empty: to none."""
        self._sharding = sharding
        self._zone = zone
        self._topics: dict[str, _TopicMap] = {}

    def queue_of(self, route: TopicRoute, key: str, *, second: str | None = None) -> MessageQueue:
        """The key's queue by the topic's route, which may or may not be writable now.

        Raises :class:`NoBrokerUpError` for a topic whose brokers are all down and were not seen before,
        :class:`NoWritableQueueError` for one that has no write queues at all, and
        :class:`OrderTopicConfError`.
        """
        topic = self._topics.get(route.topic)
        if topic is None:
            topic = self._topics[route.topic] = _TopicMap(ConfiguredQueues(route.topic))
        queues = topic.configured.see(route)
        if not queues:
            if route.absent_brokers:
                raise NoBrokerUpError(route.topic, route.absent_brokers)
            why = why_without_queue(route, zone=self._zone) or "its brokers have no write queues"
            raise NoWritableQueueError(route.topic, why)
        if topic.map is None or queues is not topic.queues:
            topic.queues, topic.map = queues, self._sharding.over(queues)
        return topic.map.queue_of(key, second=second)

    def queue_as_seen(self, topic: str, key: str, *, second: str | None = None) -> MessageQueue | None:
        """The key's queue by the routes so far, for a topic that has none now; None if none was ever seen."""
        seen = self._topics.get(topic)
        return None if seen is None or seen.map is None else seen.map.queue_of(key, second=second)

    def forget(self, topic: str) -> None:
        """Forget brokers of the topic that are in no route: they were taken away for good."""
        if topic in self._topics:
            self._topics[topic].configured.forget()
            self._topics[topic].map = None
