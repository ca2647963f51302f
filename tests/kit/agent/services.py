"""The services of an agent that consumers use, on its own server and a free port; a test sets clock, store and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

import grpc
from prometheus_client import CollectorRegistry

from pointsman.clock import Clock, SystemClock
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.group_rules import GroupRules
from pointsman_agent.core.measured_queue_stats import QueueEnd, QueueMeter
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.queue_locks import QueueLocks
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.groups.group_queues import GroupQueues
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.groups.queue_pin_keeper import QueuePinStore
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from pointsman_agent.offsets.servicer import OffsetServicer
from pointsman_agent.queue_locks.queue_lock_servicer import QueueLockServicer
from pointsman_agent.queue_stats.ends import QueueEndsError
from pointsman_agent.rpc.agent_server import AgentServer
from tests.kit.agent.memory_store import MemoryStore
from tests.kit.chosen_listener import chosen_listener

BOOT = 0xFEED
LONGEST_SILENCE = 120.0


def topic_set(**queues: int) -> TopicSet:
    """Topics with the given number of queues each."""
    return TopicSet.from_content([TopicConfig(name, n, n, 6) for name, n in queues.items()], state_version=0)


TOPICS = topic_set(orders=2_000)


class TableOfEnds:
    """Implements ``pointsman_agent.queue_stats.ends.QueueEnds``: ends of queues as a test sets them."""

    def __init__(self) -> None:
        self.table: dict[QueueKey, int] = {}
        self.first: dict[QueueKey, int] = {}
        self.problem = ""

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        if self.problem:
            raise QueueEndsError(self.problem)
        known = [queue for queue in queues if queue in self.first]
        return {queue: QueueEnd(self.first[queue], self.table.get(queue, self.first[queue]), 0) for queue in known}

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        if self.problem:
            raise QueueEndsError(self.problem)
        return {queue: self.table[queue] for queue in queues if queue in self.table}


class AgentServices:
    """Groups, queue locks and offsets of one broker and the server of them, from one start to one stop."""

    def __init__(
        self,
        *,
        clock: Clock,
        rules: GroupRules | None = None,
        topics: Callable[[], TopicSet] = lambda: TOPICS,
        store: MemoryStore | None = None,
        ends: TableOfEnds | None = None,
        is_master: Callable[[], bool] = lambda: True,
        boot: int = BOOT,
        max_watchers: int = 1_000,
        addr: str = "127.0.0.1:0",
        pin_store: QueuePinStore | None = None,
    ) -> None:
        self.clock = clock
        self.registry = CollectorRegistry()
        self.locks, self.offsets, self.ends = QueueLocks(), Offsets(), ends or TableOfEnds()
        self.meter, self.progress = QueueMeter(), ProgressMeter()
        self.groups = ConsumerGroups(
            rules or GroupRules(warm_up=0.0),
            clock=clock,
            boot=boot,
            max_watchers=max_watchers,
            queues=GroupQueues(
                self.offsets.of_group,
                commit_times=self.offsets.commit_times,
                ends=self.ends,
                meter=self.meter,
                progress=self.progress,
                clock=clock,
            ),
            pin_store=pin_store,
        )
        self.replica_offsets = ReplicaOffsets(self.offsets, is_master=is_master)
        metrics = OffsetMetrics(CollectorRegistry())
        self.flusher = Flusher(self.offsets, store or MemoryStore(), interval=1.0, clock=clock, metrics=metrics)
        self.server = AgentServer(
            longest_silence=LONGEST_SILENCE, clock=clock, registry=self.registry, listener=chosen_listener()
        )
        self.addr = f"127.0.0.1:{self.server.bind(addr)}"
        locks = QueueLockServicer(self.locks, topics=topics, owners=self.groups.owners, clock=clock)
        offsets = OffsetServicer(
            self.replica_offsets,
            flushers=[self.flusher],
            topics=topics,
            ends=self.ends,
            clock=clock,
            is_broadcasting=self.groups.is_broadcasting,
            on_reset=self.groups.notify_reset,
            member_count=self.groups.known_member_count,
        )
        self._services = (self.groups.service(), locks.service(), offsets.service())
        self._watching: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def start(self, *more: Service, is_loaded: bool = True) -> None:
        """Serve; ``is_loaded``: after the store was read."""
        if is_loaded:
            await self.flusher.refresh()
        await self.groups.restore_queue_pins()
        await self.server.start((*self._services, *more))
        self._watching = asyncio.create_task(self.server.watch_over())

    async def stop(self) -> None:
        """As the agent stops its server, without writing to the store. A second call does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await self.server.stop(1.0)
        if self._watching is not None:
            await self._watching
        self.groups.core.check_invariants()
        self.locks.check_invariants()
        self.offsets.check_invariants()


@asynccontextmanager
async def agent_services(
    *, clock: Clock, rules: GroupRules | None = None, max_watchers: int = 1_000
) -> AsyncIterator[AgentServices]:
    """Serve for the length of the block. Invariants are checked at the end."""
    agent = AgentServices(clock=clock, rules=rules, max_watchers=max_watchers)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.stop()


@asynccontextmanager
async def served(*services: Service) -> AsyncIterator[grpc.aio.Channel]:
    """Serve these alone for the length of the block, and give a channel to the server."""
    server = AgentServer(
        longest_silence=LONGEST_SILENCE, clock=SystemClock(), registry=CollectorRegistry(), listener=chosen_listener()
    )
    port = server.bind("127.0.0.1:0")
    await server.start(services)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
            yield channel
    finally:
        await server.stop(0.0)
