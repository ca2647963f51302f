"""The readable queues of each topic, from the routes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.group_topics import RETRY_QUEUES, retry_topic
from pointsman_client.core.allocation import Zones
from pointsman_client.core.message_queue import STATIC_TOPIC, MessageQueue, to_subscribe_queues
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import NoBrokerUpError, PointsmanError, TopicNotFoundError
from pointsman_client.ports.coordination import Routes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """One topic's readable queues."""

    queues: tuple[MessageQueue, ...]
    zones: Zones


class ReadableQueues:
    """Queues from routes. The group's retry topic has queues on every broker that has some of a subscribed topic."""

    def __init__(
        self, routes: Routes, *, group: str, with_retry_topic: bool, is_retry_topic_routed: bool = False
    ) -> None:
        """``is_retry_topic_routed``: it has a route, as with RocketMQ brokers, which create it."""
        self._routes = routes
        self._is_retry_topic_routed = is_retry_topic_routed
        self._retry_topic = retry_topic(group) if with_retry_topic else None
        self._unqueued: set[str] = set()

    async def of(self, topics: Iterable[str]) -> dict[str, TopicQueues | None]:
        """Return the queues of each topic, and of the retry topic; None: unknown.

        A topic that does not exist has no queues. Neither a master nor a writable broker is required: a replica group
        without its master is read at its slaves.
        """
        found = {topic: await self._of(topic) for topic in topics}
        if self._retry_topic is not None and self._is_retry_topic_routed:
            found[self._retry_topic] = await self._of(self._retry_topic)
        elif self._retry_topic is not None:
            known = [each for each in found.values() if each is not None]
            # An unknown topic could be on a further broker, which may have failed messages.
            found[self._retry_topic] = self._retry_queues(known) if len(known) == len(found) else None
        return found

    async def _of(self, topic: str) -> TopicQueues | None:
        try:
            route = await self._routes.topic_route(topic)
        except TopicNotFoundError as error:
            if topic != self._retry_topic:  # A broker creates it at the first heartbeat of the group.
                self._log_once(topic, error)
            return TopicQueues((), {})
        except PointsmanError as error:
            self._log_once(topic, error)
            return None
        queues = to_subscribe_queues(route)
        if queues:
            self._unqueued.discard(topic)
        else:
            down = NoBrokerUpError(topic, route.absent_brokers) if route.absent_brokers else None
            none = "no broker in its route has readable queues of it (perm, readQueueNums)"
            self._log_once(topic, down or (STATIC_TOPIC if route.is_static else none))
        zones = {data.key: data.zone for data in route.broker_datas if data.zone}
        return TopicQueues(queues, zones)

    def _retry_queues(self, topics: Iterable[TopicQueues]) -> TopicQueues:
        assert self._retry_topic is not None  # noqa: S101  # checked by of()
        brokers: set[BrokerKey] = set()
        zones: dict[BrokerKey, str] = {}
        for each in topics:
            brokers.update(queue.broker_key for queue in each.queues)
            zones.update(each.zones)
        queues = (
            MessageQueue(self._retry_topic, cluster, broker_name, queue_id)
            for cluster, broker_name in sorted(brokers)
            for queue_id in range(RETRY_QUEUES)
        )
        return TopicQueues(tuple(queues), zones)

    def _log_once(self, topic: str, problem: object) -> None:
        if topic not in self._unqueued:
            self._unqueued.add(topic)
            logger.warning("topic %s cannot be consumed: %s", topic, problem)
