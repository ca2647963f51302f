"""Queues of topics that do not exist yet, at brokers that create a topic with its first message.

Such brokers (``autoCreateTopicEnable``) have the topic TBW102, whose route then stands for that of an unknown topic, as
in RocketMQ's ``DefaultMQProducerImpl.tryToFindTopicPublishInfo``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pointsman.clock import Clock
from pointsman_client.client import NameServerClient
from pointsman_client.core.message_queue import MessageQueue, to_publish_queues
from pointsman_client.errors import (
    BrokerRefusedError,
    PointsmanError,
    RequestRejectedError,
    ResponseCode,
    TopicNotFoundError,
)
from pointsman_client.ports.transport import CreatesTopics

VALID_SECONDS = 30.0
"""Time after which the name servers are queried again for the new topic, or for the default topic that had no route.

RocketMQ's ``pollNameServerInterval``.
"""
MAX_TOPICS = 1_000
PERM_INHERIT = 1
"""Bit of a topic's ``perm``: brokers create topics from it (``PermName.PERM_INHERIT``)."""


@dataclass(frozen=True, slots=True)
class _NewTopic:
    queues: tuple[MessageQueue, ...]
    valid_until: float


class NewTopics:
    """Those that one producer has sent to, at most :data:`MAX_TOPICS`."""

    def __init__(self, client: NameServerClient, transport: CreatesTopics, *, clock: Clock) -> None:
        self._client = client
        self._transport = transport
        self._clock = clock
        self._topics: dict[str, _NewTopic] = {}
        self._none_until = float("-inf")

    def known_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that :meth:`queues` returned within :data:`VALID_SECONDS`; empty: none."""
        found = self._topics.get(topic)
        return found.queues if found is not None and self._clock.monotonic() < found.valid_until else ()

    def renewed_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the last queues of a topic and use them for :data:`VALID_SECONDS` more; empty: none."""
        found = self._topics.get(topic)
        if found is None:
            return ()
        self._topics[topic] = replace(found, valid_until=self._clock.monotonic() + VALID_SECONDS)
        return found.queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that brokers would create for a topic without a route; empty: no broker creates topics.

        Raises :class:`NameServersUnavailableError`.
        """
        now = self._clock.monotonic()
        if now < self._none_until:
            return ()
        try:
            default = await self._client.topic_route(self._transport.default_topic)
        except (TopicNotFoundError, RequestRejectedError):  # The account may not read the default topic.
            self._none_until = now + VALID_SECONDS
            return ()
        most = self._transport.default_topic_queue_nums
        created = tuple(
            replace(data, write_queue_nums=min(most, data.write_queue_nums))
            for data in default.queue_datas
            if data.perm & PERM_INHERIT
        )
        queues = to_publish_queues(replace(default, topic=topic, queue_datas=created, order_topic_conf=""))
        if queues:
            self._topics.pop(topic, None)
            if len(self._topics) >= MAX_TOPICS:
                del self._topics[next(iter(self._topics))]
            self._topics[topic] = _NewTopic(queues, now + VALID_SECONDS)
        return queues

    def is_not_created(self, topic: str, error: PointsmanError) -> bool:
        """Whether a broker with the default topic did not create the topic: ``autoCreateTopicEnable`` was switched off.

        It then takes the permission to create topics from its default topic.
        """
        is_unknown = isinstance(error, BrokerRefusedError) and error.response_code == ResponseCode.TOPIC_NOT_EXIST
        return is_unknown and bool(self.known_queues(topic))
