"""Hand over offsets that a slave's agent accepted without a master: to the master's agent, or to its own store.

Nothing is dropped before the other side has acknowledged it. The hand-over never moves offsets at the master backwards,
unless the application sought backwards or an operator reset them while there was no master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman.clock import Clock
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.agent_service_pb2 import GetAgentInfoRequest
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman.wire.channel_opener import ChannelOpener, explain_connection_failure
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from pointsman_agent.core.offsets import BEGIN_ID, OffsetKey, TooManyOffsets
from pointsman_agent.core.own_state import MASTER_ID
from pointsman_agent.core.replica_offsets import PendingPart, ReplicaOffsets

POLL_INTERVAL_SECONDS = 1.0
CALL_SECONDS = 2.0
REFUSED = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE})
"""A retry cannot succeed: the master has no such queue, or a lower end."""

log = logging.getLogger(__name__)


class HandOverMetrics:
    """Metrics of pending offsets, registered in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pending = Gauge(
            "pointsman_agent_offsets_pending",
            "Offsets committed at a slave that the agent of the master has not acknowledged.",
            registry=registry,
        )
        self.handed_over = Counter(
            "pointsman_agent_offsets_handed_over_total",
            "Pending offsets handed over, by result: acknowledged, adopted (the slave was promoted), refused.",
            ["result"],
            registry=registry,
        )


class _AnotherAgent(Exception):
    """The address is not the agent of this broker's master; the text names the broker."""


class HandOver:
    """For an agent whose broker may be a slave; call :meth:`run` while it serves.

    ``master_agent`` returns the address of the master's agent, empty if there is no master; ``broker`` is cluster and
    broker name.
    """

    def __init__(
        self,
        offsets: ReplicaOffsets,
        *,
        is_loaded: Callable[[], bool],
        is_master: Callable[[], bool],
        master_agent: Callable[[], str],
        broker: tuple[str, str],
        opener: ChannelOpener,
        clock: Clock,
        metrics: HandOverMetrics,
    ) -> None:
        self._offsets = offsets
        self._is_loaded = is_loaded
        self._is_master = is_master
        self._master_agent = master_agent
        self._broker = broker
        self._opener = opener
        self._clock = clock
        self._metrics = metrics
        self._problem = ""
        metrics.pending.set_function(lambda: len(offsets.pending))

    async def run(self) -> None:
        """Hand over pending offsets every second, until cancelled."""
        while True:
            await self._clock.sleep(POLL_INTERVAL_SECONDS)
            if self._is_loaded() and not self._offsets.pending.is_empty:
                await self.hand_over()

    async def hand_over(self) -> None:
        """Hand over what is possible now."""
        try:
            if self._is_master():
                self._metrics.handed_over.labels("adopted").inc(self._offsets.adopt())
            elif addr := self._master_agent():
                async with self._opener.open(addr, CHANNEL_OPTIONS) as channel:
                    await self._hand_over_to(channel)
            else:
                return
        except grpc.aio.AioRpcError as error:
            self._note(f"{error.code().name}: {explain_connection_failure(error.details() or '')}")
        except (_AnotherAgent, TooManyOffsets) as error:
            self._note(str(error))
        else:
            self._note("")

    async def _hand_over_to(self, channel: grpc.aio.Channel) -> None:
        # The address may belong to another broker by now, whose offsets refer to other messages.
        info = await AgentServiceStub(channel).GetAgentInfo(GetAgentInfoRequest(), timeout=CALL_SECONDS)
        who = info.identity
        if (
            (who.cluster, who.broker_name) != self._broker
            or who.broker_id != MASTER_ID
            or not info.HasField("identity")
        ):
            raise _AnotherAgent(f"the address belongs to the agent of {who.cluster}/{who.broker_name}/{who.broker_id}")
        stub, count = OffsetServiceStub(channel), 0
        parts = self._offsets.parts()[::-1]
        while parts:
            part = parts.pop()
            try:
                if part.begins:
                    await stub.BeginTopics(_begin_request(part), timeout=CALL_SECONDS)
                else:
                    await stub.CommitOffsets(_commit_request(part), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() not in REFUSED:
                    raise
                if halves := part.halves():
                    parts += halves
                else:
                    self._give_up(part, error)
            else:
                self._offsets.acknowledged(part)
                self._metrics.handed_over.labels("acknowledged").inc(len(part.offsets))
                count += len(part.offsets)
        log.info("pending offsets were acknowledged by the master's agent", extra={"facts": {"offsets": count}})

    def _give_up(self, part: PendingPart, error: grpc.aio.AioRpcError) -> None:
        self._offsets.give_up(part)
        self._metrics.handed_over.labels("refused").inc(len(part.offsets))
        facts = {"group": part.group, "offsets": _named(part), "error": error.details()}
        log.warning("the master's agent refused a pending offset; it was dropped", extra={"facts": facts})

    def _note(self, problem: str) -> None:
        """Log the first failure of a hand-over, and the recovery."""
        if problem and not self._problem:
            facts = {"offsets": len(self._offsets.pending), "error": problem, "agent": self._master_agent()}
            log.warning(
                "pending offsets cannot be sent to the master's agent; they stay on this disk", extra={"facts": facts}
            )
        elif not problem and self._problem:
            log.info("pending offsets were sent to the master's agent")
        self._problem = problem


def _commit_request(part: PendingPart) -> wire.CommitOffsetsRequest:
    offsets = [
        wire.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, offset=offset, epoch=part.epochs.get(queue, 0))
        for queue, offset in part.offsets.items()
    ]
    return wire.CommitOffsetsRequest(group=part.group, offsets=offsets, reset=part.is_reset)


def _begin_request(part: PendingPart) -> wire.BeginTopicsRequest:
    request = wire.BeginTopicsRequest(group=part.group)
    for topic, moment in part.begins.items():
        request.topics.add(topic=topic).first_consumed_at.FromMilliseconds(moment)
    return request


def _named(part: PendingPart) -> list[str]:
    keys = [OffsetKey(part.group, *queue) for queue in part.offsets]
    keys += [OffsetKey(part.group, topic, BEGIN_ID) for topic in part.begins]
    return [f"{key.topic}:{key.queue_id}" if key.queue_id >= 0 else key.topic for key in keys]
