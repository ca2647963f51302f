"""Committed offsets at the agents of the queues' brokers: RocketMQ's RemoteBrokerOffsetStore.

Commits are by level, not by edge: the caller names the offset of every queue that it holds each time, and what an agent
is known to have costs nothing. After a failover the new agent is known to have nothing, and is told all of it; so is an
agent that failed, one that :meth:`AgentOffsetStore.distrust` names, and every agent once a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from pointsman.v1 import offset_service_pb2 as wire
from pointsman.wire.clock import Clock
from pointsman_client.consumer.agents.broker_agents import RoutedBrokers, agent_of_queues
from pointsman_client.consumer.agents.queue_batch import Queues, ask_agents, ask_other_agents
from pointsman_client.consumer.agents.topic_begins import TopicBegins
from pointsman_client.consumer.coordination import BegunTopics, LoadedOffsets, OffsetStore
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import PointsmanError, RequestRejectedError
from pointsman_client.rpc.links import AgentLink, AgentLinks

logger = logging.getLogger(__name__)

TRUSTED_SECONDS = 60.0
"""For so long an agent is believed to have what it confirmed: it may have lost its memory unnoticed."""
EXCHANGE_SECONDS = 3.0
"""For a whole load or commit, in calls of at most a second."""


class _Confirmed(NamedTuple):
    addr: str
    offset: int
    at: float


class AgentOffsetStore:
    """See :class:`~pointsman_client.consumer.coordination.OffsetStore`. Remembers one offset a queue."""

    def __init__(self, client: RoutedBrokers, links: AgentLinks, *, group: str, clock: Clock) -> None:
        self._brokers = client
        self._links = links
        self._group = group
        self._begins = TopicBegins(client, links, group=group)
        self._clock = clock
        self._confirmed: dict[MessageQueue, _Confirmed] = {}
        # A reset must not be overtaken by a commit that was on its way before it.
        self._turn = asyncio.Lock()

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`. An agent that has not loaded its offsets yet leaves its queues unknown.

        An agent beside a slave may have offsets that were committed while no master was there, and that the master's
        agent does not know yet: of all the highest counts. One that is not responding is not waited for.
        """

        async def question(link: AgentLink, part: Queues, deadline: float) -> wire.GetOffsetsResponse:
            request = wire.GetOffsetsRequest(group=self._group, queues=_to_messages((queue, 0) for queue in part))
            return await link.call(link.offsets.GetOffsets, request, deadline=deadline)

        async def pending_question(link: AgentLink, part: Queues, deadline: float) -> wire.GetOffsetsResponse:
            named = _to_messages((queue, 0) for queue in part)
            request = wire.GetOffsetsRequest(group=self._group, queues=named, pending_only=True)
            return await link.call(link.offsets.GetOffsets, request, deadline=deadline)

        answers, pending = await asyncio.gather(
            ask_agents(self._brokers, self._links, queues, question, timeout_seconds=EXCHANGE_SECONDS),
            ask_other_agents(self._brokers, self._links, queues, pending_question),
        )
        offsets: dict[MessageQueue, int] = {}
        for _, part, answer in answers.given:
            offsets.update(_of_queues(part, answer.offsets))
        lower: dict[MessageQueue, int] = {}
        for _, part, answer in pending.given:
            for queue, offset in _of_queues(part, answer.offsets):
                held = offsets.get(queue)
                if held is None or held < offset:
                    offsets[queue] = offset
                    if held is not None:
                        lower.setdefault(queue, held)
        return LoadedOffsets(offsets, answers.failed, lower)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`."""
        return await self._begins.begin(moments)

    async def commit(
        self, offsets: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`; name every queue that is held. A higher offset that is stored stays."""
        async with self._turn:
            self._forget_the_old()
            missing = [queue for queue, offset in offsets.items() if reset or not self._has(queue, offset)]

            async def question(link: AgentLink, part: Queues, deadline: float) -> wire.CommitOffsetsResponse:
                request = wire.CommitOffsetsRequest(
                    group=self._group, offsets=_to_messages((queue, offsets[queue]) for queue in part), reset=reset
                )
                return await link.call(link.offsets.CommitOffsets, request, deadline=deadline)

            answers = await ask_agents(self._brokers, self._links, missing, question, timeout_seconds=EXCHANGE_SECONDS)
            for addr, part, answer in answers.given:
                kept, now = _by_queue(answer.kept), self._clock.monotonic()
                for queue in part:
                    stored = kept.get((queue.topic, queue.queue_id), offsets[queue])
                    self._confirmed[queue] = _Confirmed(addr, stored, now)
            self._take_failures(answers.failed)
            return answers.failed

    def distrust(self, agent_addr: str) -> None:
        """Take it that an agent may have lost what it confirmed: its connection broke."""
        self._confirmed = {queue: each for queue, each in self._confirmed.items() if each.addr != agent_addr}

    def _has(self, queue: MessageQueue, offset: int) -> bool:
        confirmed = self._confirmed.get(queue)
        return confirmed is not None and confirmed.addr == self._agent_of(queue) and confirmed.offset >= offset

    def _forget_the_old(self) -> None:
        since = self._clock.monotonic() - TRUSTED_SECONDS
        self._confirmed = {queue: each for queue, each in self._confirmed.items() if each.at > since}

    def _take_failures(self, failed: Mapping[MessageQueue, PointsmanError]) -> None:
        away = set()
        for queue, error in failed.items():
            self._confirmed.pop(queue, None)
            if not isinstance(error, RequestRejectedError):
                away.add(self._agent_of(queue))
        for addr in away:
            self.distrust(addr)

    def _agent_of(self, queue: MessageQueue) -> str:
        return agent_of_queues(self._brokers.broker(queue.cluster, queue.broker_name))


def _to_messages(offsets: Iterable[tuple[MessageQueue, int]]) -> list[wire.QueueOffset]:
    return [wire.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, offset=n) for queue, n in offsets]


def _of_queues(queues: Queues, offsets: Iterable[wire.QueueOffset]) -> Iterator[tuple[MessageQueue, int]]:
    stored = _by_queue(offsets)
    for queue in queues:
        if (queue.topic, queue.queue_id) in stored:
            yield queue, stored[queue.topic, queue.queue_id]


def _by_queue(offsets: Iterable[wire.QueueOffset]) -> Mapping[tuple[str, int], int]:
    return {(each.topic, each.queue_id): each.offset for each in offsets}


class OwedOffsets:
    """An :class:`OffsetStore` before another one: offsets that could not be committed are not lost with their queue.

    A broker that dies takes its queues out of the routes, so they are released while no agent takes their offsets.
    Those are committed with the next commit that passes here, and in any case before the queue's offset is asked for:
    the store never goes backwards by it.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._owed: dict[MessageQueue, int] = {}

    @property
    def owed(self) -> Mapping[MessageQueue, int]:
        """Queues with the offset that the store does not have yet; at most those that were held here."""
        return self._owed

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`."""
        if not self._owed.keys().isdisjoint(queues):
            await self.commit({queue: self._owed[queue] for queue in queues if queue in self._owed})
        return await self._store.load(queues)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`."""
        return await self._store.begin(moments)

    async def commit(
        self, offsets: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`."""
        if reset:
            for queue in offsets:
                self._owed.pop(queue, None)
            return await self._store.commit(offsets, reset=True)
        wanted = {**self._owed, **offsets}
        failures = await self._store.commit(wanted)
        for queue, offset in wanted.items():
            error = failures.get(queue)
            if error is None:
                self._owed.pop(queue, None)
            elif isinstance(error, RequestRejectedError):
                # The broker came back with less, or without the queue: this offset has no owner.
                if self._owed.pop(queue, None) is not None:
                    logger.warning("offset %d of %s is given up: %s", offset, queue, error)
            else:
                self._owed[queue] = offset
        return {queue: error for queue, error in failures.items() if queue in offsets}
