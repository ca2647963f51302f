"""Locks of queues at the agents of their brokers: RocketMQ's LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from pointsman.v1 import queue_lock_service_pb2 as wire
from pointsman.wire.wire_time import seconds_of
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import PointsmanError
from pointsman_client.pointsman_grpc.agents.queue_batch import Queues, Responses, query_agents
from pointsman_client.pointsman_grpc.links import AgentLink, AgentLinks
from pointsman_client.ports.coordination import RoutedBrokers

LOCKS_PER_PAGE = 1_000

logger = logging.getLogger(__name__)


class AgentQueueLocks:
    """See :class:`~pointsman_client.ports.coordination.QueueLocks`. Does not raise for agents that fail.

    Each method takes at most one second in total, since a later lock is of little use.
    """

    def __init__(self, client: RoutedBrokers, links: AgentLinks, *, group: str, client_id: str) -> None:
        self._brokers = client
        self._links = links
        self._group = group
        self._client_id = client_id
        self._failing: set[BrokerKey] = set()

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """See :meth:`QueueLocks.lock`."""

        async def query(link: AgentLink, part: Queues, deadline: float) -> wire.LockQueuesResponse:
            request = wire.LockQueuesRequest(group=self._group, client_id=self._client_id, queues=_to_messages(part))
            return await link.call(link.locks.LockQueues, request, deadline=deadline)

        responses = await query_agents(self._brokers, self._links, queues, query)
        self._note(queues, responses.failed)
        granted: set[MessageQueue] = set()
        for _, part, response in responses.given:
            named = {(each.topic, each.queue_id) for each in response.granted}
            granted.update(queue for queue in part if (queue.topic, queue.queue_id) in named)
        return frozenset(granted)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """See :meth:`QueueLocks.unlock`. A lock that cannot be released expires at the agent."""

        async def query(link: AgentLink, part: Queues, deadline: float) -> wire.UnlockQueuesResponse:
            request = wire.UnlockQueuesRequest(group=self._group, client_id=self._client_id, queues=_to_messages(part))
            return await link.call(link.locks.UnlockQueues, request, deadline=deadline)

        responses = await query_agents(self._brokers, self._links, queues, query)
        self._note(queues, responses.failed)

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        """See :meth:`QueueLocks.holders`."""
        requests: dict[str, asyncio.Task[Mapping[tuple[str, int], str]]] = {}

        async def query(link: AgentLink, _part: Queues, deadline: float) -> Mapping[tuple[str, int], str]:
            # One list contains all queues of a broker, so all parts share one request.
            if link.addr not in requests:
                requests[link.addr] = asyncio.create_task(self._locks_at(link, deadline))
            return await requests[link.addr]

        try:
            responses: Responses[Mapping[tuple[str, int], str]] = await query_agents(
                self._brokers, self._links, queues, query
            )
        finally:
            for task in requests.values():
                task.cancel()
        return {
            queue: held[queue.topic, queue.queue_id]
            for _, part, held in responses.given
            for queue in part
            if (queue.topic, queue.queue_id) in held
        }

    async def _locks_at(self, link: AgentLink, deadline: float) -> Mapping[tuple[str, int], str]:
        """Return the client ids of the group's unexpired locks, by topic and queue id."""
        request = wire.ListQueueLocksRequest(group=self._group, page_size=LOCKS_PER_PAGE)
        response = await link.all_pages(link.locks.ListQueueLocks, request, deadline=deadline)
        lifetime = seconds_of(response.lifetime)
        return {
            (lock.queue.topic, lock.queue.queue_id): lock.client_id
            for lock in response.locks
            if seconds_of(lock.renewed_ago) <= lifetime
        }

    def _note(self, requests: Iterable[MessageQueue], failed: Mapping[MessageQueue, PointsmanError]) -> None:
        """Log once when locking the queues of a broker fails, and once when it works again."""
        problems = {queue.broker_key: error for queue, error in failed.items()}
        for broker in sorted({queue.broker_key for queue in requests}):
            name = "/".join(broker)
            if broker in problems and broker not in self._failing:
                logger.warning("queues of %s cannot be locked: %s", name, problems[broker])
                self._failing.add(broker)
            elif broker not in problems and broker in self._failing:
                logger.warning("queues of %s can be locked again", name)
                self._failing.discard(broker)


def _to_messages(queues: Queues) -> list[wire.LockedQueue]:
    return [wire.LockedQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]
