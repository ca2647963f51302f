"""Locks of queues at the agents of their brokers: RocketMQ's LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from pointsman.v1 import queue_lock_service_pb2 as wire
from pointsman.wire.wire_time import seconds_of
from pointsman_client.consumer.agents.broker_agents import RoutedBrokers
from pointsman_client.consumer.agents.queue_batch import Answers, Queues, ask_agents
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import PointsmanError
from pointsman_client.rpc.links import AgentLink, AgentLinks

LOCKS_PER_PAGE = 1_000

logger = logging.getLogger(__name__)


class AgentQueueLocks:
    """See :class:`~pointsman_client.consumer.coordination.QueueLocks`. Raises nothing for agents that fail.

    All calls of one method end within a second together: a lock that comes later is worth little.
    """

    def __init__(self, client: RoutedBrokers, links: AgentLinks, *, group: str, client_id: str) -> None:
        self._brokers = client
        self._links = links
        self._group = group
        self._client_id = client_id
        self._failing: set[BrokerKey] = set()

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """See :meth:`QueueLocks.lock`."""

        async def question(link: AgentLink, part: Queues, deadline: float) -> wire.LockQueuesResponse:
            request = wire.LockQueuesRequest(group=self._group, client_id=self._client_id, queues=_to_messages(part))
            return await link.call(link.locks.LockQueues, request, deadline=deadline)

        answers = await ask_agents(self._brokers, self._links, queues, question)
        self._note(queues, answers.failed)
        granted: set[MessageQueue] = set()
        for _, part, answer in answers.given:
            named = {(each.topic, each.queue_id) for each in answer.granted}
            granted.update(queue for queue in part if (queue.topic, queue.queue_id) in named)
        return frozenset(granted)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """See :meth:`QueueLocks.unlock`. A lock that is left behind ends by itself, an agent's lifetime later."""

        async def question(link: AgentLink, part: Queues, deadline: float) -> wire.UnlockQueuesResponse:
            request = wire.UnlockQueuesRequest(group=self._group, client_id=self._client_id, queues=_to_messages(part))
            return await link.call(link.locks.UnlockQueues, request, deadline=deadline)

        answers = await ask_agents(self._brokers, self._links, queues, question)
        self._note(queues, answers.failed)

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        """See :meth:`QueueLocks.holders`."""
        asked: dict[str, asyncio.Task[Mapping[tuple[str, int], str]]] = {}

        async def question(link: AgentLink, _part: Queues, deadline: float) -> Mapping[tuple[str, int], str]:
            # One list holds all queues of a broker, however many parts ask for it.
            if link.addr not in asked:
                asked[link.addr] = asyncio.create_task(self._locks_at(link, deadline))
            return await asked[link.addr]

        try:
            answers: Answers[Mapping[tuple[str, int], str]] = await ask_agents(
                self._brokers, self._links, queues, question
            )
        finally:
            for task in asked.values():
                task.cancel()
        return {
            queue: held[queue.topic, queue.queue_id]
            for _, part, held in answers.given
            for queue in part
            if (queue.topic, queue.queue_id) in held
        }

    async def _locks_at(self, link: AgentLink, deadline: float) -> Mapping[tuple[str, int], str]:
        """Client ids of the group's locks that live, by topic and queue id."""
        request = wire.ListQueueLocksRequest(group=self._group, page_size=LOCKS_PER_PAGE)
        held: dict[tuple[str, int], str] = {}
        while True:
            page = await link.call(link.locks.ListQueueLocks, request, deadline=deadline)
            lifetime = seconds_of(page.lifetime)
            held.update(
                ((lock.queue.topic, lock.queue.queue_id), lock.client_id)
                for lock in page.locks
                if seconds_of(lock.renewed_ago) <= lifetime
            )
            if not page.next_page_token:
                return held
            request.page_token = page.next_page_token

    def _note(self, asked: Iterable[MessageQueue], failed: Mapping[MessageQueue, PointsmanError]) -> None:
        """Say once that a broker's queues cannot be locked, and once that they can again."""
        problems = {queue.broker_key: error for queue, error in failed.items()}
        for broker in sorted({queue.broker_key for queue in asked}):
            name = "/".join(broker)
            if broker in problems and broker not in self._failing:
                logger.warning("queues of %s cannot be locked: %s", name, problems[broker])
                self._failing.add(broker)
            elif broker not in problems and broker in self._failing:
                logger.warning("queues of %s can be locked again", name)
                self._failing.discard(broker)


def _to_messages(queues: Queues) -> list[wire.LockedQueue]:
    return [wire.LockedQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]
