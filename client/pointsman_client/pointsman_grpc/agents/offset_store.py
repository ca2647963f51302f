"""Committed offsets at the agents of the queues' brokers: RocketMQ's RemoteBrokerOffsetStore.

Each commit contains the offsets of all held queues; those that the agent has confirmed are not sent again. All of them
are sent to the new agent after a failover, to an agent that failed or that :meth:`AgentOffsetStore.distrust` names, and
to every agent once per minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from pointsman.clock import Clock
from pointsman.v1 import offset_service_pb2 as wire
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OffsetResetError, PointsmanError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.broker_agents import agent_of_queues
from pointsman_client.pointsman_grpc.agents.queue_batch import Queues, query_agents, query_other_agents
from pointsman_client.pointsman_grpc.agents.topic_begins import TopicBegins
from pointsman_client.pointsman_grpc.links import AgentLink, AgentLinks
from pointsman_client.ports.coordination import BegunTopics, LoadedOffsets, OffsetStore, RoutedBrokers

logger = logging.getLogger(__name__)

CONFIRMED_TTL_SECONDS = 60.0
"""How long a confirmed offset is not sent again. The agent may have lost its state without a broken connection."""
EXCHANGE_SECONDS = 3.0
"""Timeout of a load or commit, in calls of at most 1 s each."""


class _Confirmed(NamedTuple):
    addr: str
    offset: int
    epoch: int
    at: float


class AgentOffsetStore:
    """See :class:`~pointsman_client.ports.coordination.OffsetStore`. Caches one offset per queue."""

    def __init__(self, client: RoutedBrokers, links: AgentLinks, *, group: str, clock: Clock) -> None:
        self._brokers = client
        self._links = links
        self._group = group
        self._begins = TopicBegins(client, links, group=group)
        self._clock = clock
        self._confirmed: dict[MessageQueue, _Confirmed] = {}
        # A commit that was sent before a reset must not arrive after it.
        self._turn = asyncio.Lock()

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`. An agent that has not loaded its offsets yet leaves its queues unknown.

        A slave's agent may have offsets that were committed while there was no master, and that the master's agent does
        not have yet. The highest offset of the latest epoch wins. A slave's agent that does not respond in time is
        ignored.
        """

        async def query(link: AgentLink, part: Queues, deadline: float) -> wire.GetOffsetsResponse:
            request = wire.GetOffsetsRequest(group=self._group, queues=_to_messages(part))
            return await link.call(link.offsets.GetOffsets, request, deadline=deadline)

        async def query_pending(link: AgentLink, part: Queues, deadline: float) -> wire.GetOffsetsResponse:
            request = wire.GetOffsetsRequest(group=self._group, queues=_to_messages(part), pending_only=True)
            return await link.call(link.offsets.GetOffsets, request, deadline=deadline)

        responses, pending = await asyncio.gather(
            query_agents(self._brokers, self._links, queues, query, timeout_seconds=EXCHANGE_SECONDS),
            query_other_agents(self._brokers, self._links, queues, query_pending),
        )
        found: dict[MessageQueue, wire.QueueOffset] = {}
        epochs: dict[MessageQueue, int] = {}
        for _, part, response in responses.given:
            found.update(_of_queues(part, response.offsets))
            epochs.update((queue, each.epoch) for queue, each in _of_queues(part, response.uncommitted))
        lower: dict[MessageQueue, int] = {}
        for _, part, response in pending.given:
            for queue, stored in _of_queues(part, response.offsets):
                held = found.get(queue)
                if held is None or (held.epoch, held.offset) < (stored.epoch, stored.offset):
                    found[queue] = stored
                    if held is not None:
                        lower.setdefault(queue, held.offset)
        offsets = {queue: stored.offset for queue, stored in found.items()}
        epochs |= {queue: stored.epoch for queue, stored in found.items() if stored.epoch}
        return LoadedOffsets(offsets, responses.failed, lower, epochs)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`."""
        return await self._begins.begin(moments)

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`; pass every held queue. A higher stored offset stays."""
        epoch_of = dict.fromkeys(offsets, 0) | dict(epochs or {})
        async with self._turn:
            self._drop_expired()
            missing = [
                queue for queue, offset in offsets.items() if reset or not self._has(queue, offset, epoch_of[queue])
            ]

            async def query(link: AgentLink, part: Queues, deadline: float) -> wire.CommitOffsetsResponse:
                named = _to_messages(part, offsets, epoch_of)
                request = wire.CommitOffsetsRequest(group=self._group, offsets=named, reset=reset)
                return await link.call(link.offsets.CommitOffsets, request, deadline=deadline)

            responses = await query_agents(self._brokers, self._links, missing, query, timeout_seconds=EXCHANGE_SECONDS)
            failed = responses.failed
            for addr, part, response in responses.given:
                kept, now = dict(_of_queues(part, response.kept)), self._clock.monotonic()
                for queue in part:
                    stored = kept.get(queue)
                    if stored is not None and stored.epoch > epoch_of[queue]:
                        failed[queue] = OffsetResetError(str(queue), offset=stored.offset, epoch=stored.epoch)
                        continue
                    offset = offsets[queue] if stored is None else stored.offset
                    self._confirmed[queue] = _Confirmed(addr, offset, epoch_of[queue], now)
            self._record_failures(failed)
            return failed

    def distrust(self, agent_addr: str) -> None:
        """Drop the confirmations of an agent whose connection broke, since it may have lost its state."""
        self._confirmed = {queue: each for queue, each in self._confirmed.items() if each.addr != agent_addr}

    def _has(self, queue: MessageQueue, offset: int, epoch: int) -> bool:
        confirmed = self._confirmed.get(queue)
        if confirmed is None or confirmed.addr != self._agent_of(queue):
            return False
        return confirmed.epoch == epoch and confirmed.offset >= offset

    def _drop_expired(self) -> None:
        since = self._clock.monotonic() - CONFIRMED_TTL_SECONDS
        self._confirmed = {queue: each for queue, each in self._confirmed.items() if each.at > since}

    def _record_failures(self, failed: Mapping[MessageQueue, PointsmanError]) -> None:
        failed_agents = set()
        for queue, error in failed.items():
            self._confirmed.pop(queue, None)
            if not isinstance(error, RequestRejectedError | OffsetResetError):
                failed_agents.add(self._agent_of(queue))
        for addr in failed_agents:
            self.distrust(addr)

    def _agent_of(self, queue: MessageQueue) -> str:
        return agent_of_queues(self._brokers.broker(queue.cluster, queue.broker_name))


def _to_messages(
    queues: Iterable[MessageQueue],
    offsets: Mapping[MessageQueue, int] | None = None,
    epochs: Mapping[MessageQueue, int] | None = None,
) -> list[wire.QueueOffset]:
    return [
        wire.QueueOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=0 if offsets is None else offsets[queue],
            epoch=None if epochs is None else epochs[queue],
        )
        for queue in queues
    ]


def _of_queues(queues: Queues, offsets: Iterable[wire.QueueOffset]) -> Iterator[tuple[MessageQueue, wire.QueueOffset]]:
    stored = {(each.topic, each.queue_id): each for each in offsets}
    for queue in queues:
        if (queue.topic, queue.queue_id) in stored:
            yield queue, stored[queue.topic, queue.queue_id]


class PendingOffsets:
    """An :class:`OffsetStore` in front of another one, which retries failed commits of released queues.

    When a broker crashes, its queues leave the routes and are released while no agent accepts their offsets. Those
    offsets are committed with the next commit, at the latest before the queue's offset is loaded. The stored offset
    never goes backwards by this.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._pending: dict[MessageQueue, int] = {}
        self._epochs: dict[MessageQueue, int] = {}
        """Those of the pending offsets."""

    @property
    def pending(self) -> Mapping[MessageQueue, int]:
        """Offsets that the store does not have yet, by queue; at most one per queue ever held here."""
        return self._pending

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`."""
        if not self._pending.keys().isdisjoint(queues):
            pending = {queue: self._pending[queue] for queue in queues if queue in self._pending}
            await self.commit(pending, epochs={queue: self._epochs[queue] for queue in pending})
        return await self._store.load(queues)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`."""
        return await self._store.begin(moments)

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`."""
        if reset:
            for queue in offsets:
                self._drop(queue)
            return await self._store.commit(offsets, reset=True, epochs=epochs)
        wanted = {**self._pending, **offsets}
        epoch_of = {**self._epochs, **dict.fromkeys(offsets, 0), **(epochs or {})}
        failures = await self._store.commit(wanted, epochs={queue: epoch_of[queue] for queue in wanted})
        for queue, offset in wanted.items():
            error = failures.get(queue)
            if error is None:
                self._drop(queue)
            elif isinstance(error, RequestRejectedError | OffsetResetError):
                # The broker returned with fewer messages or without the queue, or an operator has reset the offset.
                if self._drop(queue):
                    logger.warning("dropped the uncommitted offset %d of %s: %s", offset, queue, error)
            else:
                self._pending[queue], self._epochs[queue] = offset, epoch_of[queue]
        return {queue: error for queue, error in failures.items() if queue in offsets}

    def _drop(self, queue: MessageQueue) -> bool:
        self._epochs.pop(queue, None)
        return self._pending.pop(queue, None) is not None
