"""Queue locks at the masters of the queues: RocketMQ's LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

For ordered consumers only, as in RocketMQ: since 5.1.1 a broker moves plain messages that are sent to a group's retry
topic to its dead letters while any lock of the group is held.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping

from pointsman.rocketmq.codes import BrokerRequestCode
from pointsman.rocketmq.frames import compact
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import PointsmanError
from pointsman_client.ports.coordination import RoutedBrokers
from pointsman_client.rocketmq.groups.member_links import MemberLinks, json_object, master_addr, queue_name

LOCK_SECONDS = 1.0
"""Timeout of a call (RocketMQ ``lockBatchMQ``, 1,000 ms)."""

logger = logging.getLogger(__name__)


class BrokerQueueLocks:
    """See :class:`~pointsman_client.ports.coordination.QueueLocks`. A lock expires 60 s after its last renewal."""

    def __init__(self, brokers: RoutedBrokers, links: MemberLinks, *, group: str, client_id: str) -> None:
        self._brokers = brokers
        self._links = links
        self._group = group
        self._client_id = client_id
        self._failing: set[BrokerKey] = set()

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """See :meth:`QueueLocks.lock`."""
        granted = await asyncio.gather(*(self._lock_at(*each) for each in self._by_broker(queues).items()))
        return frozenset().union(*granted)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """See :meth:`QueueLocks.unlock`."""
        await asyncio.gather(
            *(
                self._call(key, BrokerRequestCode.UNLOCK_BATCH_MQ, of_broker)
                for key, of_broker in self._by_broker(queues).items()
            )
        )

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        """See :meth:`QueueLocks.holders`: brokers do not list locks, and ordered consumers do not need the holders."""
        del queues
        return {}

    async def _lock_at(self, key: BrokerKey, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        body = await self._call(key, BrokerRequestCode.LOCK_BATCH_MQ, queues)
        listed = body.get("lockOKMQSet")
        granted = {queue_name(each) for each in (listed if isinstance(listed, list) else ())}
        return frozenset(queue for queue in queues if (queue.topic, queue.broker_name, queue.queue_id) in granted)

    async def _call(
        self, key: BrokerKey, code: BrokerRequestCode, queues: Collection[MessageQueue]
    ) -> Mapping[str, object]:
        """Make a call at a master; a failure is logged and has an empty result."""
        addr = master_addr(self._brokers.broker(*key))
        request = {
            "consumerGroup": self._group,
            "clientId": self._client_id,
            "onlyThisBroker": False,
            "mqSet": [
                {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in queues
            ],
        }
        problem: object = "the route has no master"
        if addr is not None:
            try:
                response = await self._links.call(addr, code, {}, compact(request), timeout_seconds=LOCK_SECONDS)
                body = json_object(addr, response.body) if response.body else {}
            except PointsmanError as error:
                problem = error
            else:
                if key in self._failing:
                    self._failing.discard(key)
                    logger.warning("queues of %s/%s can be locked again", *key)
                return body
        if key not in self._failing:
            self._failing.add(key)
            logger.warning("queues of %s/%s cannot be locked: %s", *key, problem)
        return {}

    @staticmethod
    def _by_broker(queues: Collection[MessageQueue]) -> Mapping[BrokerKey, list[MessageQueue]]:
        found: defaultdict[BrokerKey, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            found[queue.broker_key].append(queue)
        return found
