"""Agents with all their services, each on a free port, and a name server with their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import grpc.aio
from prometheus_client import CollectorRegistry

from pointsman.clock import Clock
from pointsman.v1.broker_pb2 import BrokerHealth
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.core.drain import Answer
from pointsman_agent.core.drain_lag import LagReport
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.queue_locks import QueueLocks
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.drain.agent_servicer import AgentFacts, AgentService
from pointsman_agent.drain.drainer import DrainedAgent, Drainer
from pointsman_agent.drain.write_perm import WritePermissions
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from pointsman_agent.offsets.servicer import OffsetServicer
from pointsman_agent.queue_locks.queue_lock_servicer import QueueLockServicer
from pointsman_agent.rpc.agent_server import AgentServer
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.memory_store import MemoryStore
from tests.kit.agent.server import topic_set
from tests.kit.name_server import wire

BOOT = 0xFEED
OWN = OwnState(
    0, TopicSet.from_content([], state_version=3), Verdict(ProbeStatus.PASSING, "answers", "run-1", Role.MASTER)
)


class TableOfEnds:
    """Implements ``pointsman_agent.queue_stats.ends.QueueEnds``."""

    def __init__(self) -> None:
        self.table: dict[QueueKey, int] = {}

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        raise NotImplementedError

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        return {queue: self.table[queue] for queue in queues if queue in self.table}


class WholeAgent:
    """The agent of one broker; its services are real, the test sets their data."""

    def __init__(self, name: str, *, broker_id: int, clock: Clock, name_servers: list[str], warm_up: float) -> None:
        self.clock = clock
        rules = GroupRules(warm_up=warm_up, notices_of={"held": NoticeRules(hold_down=10.0)})
        self.groups = ConsumerGroups(rules, clock=clock, boot=BOOT, max_watchers=10)
        self.locks = QueueLocks()
        self.offsets = Offsets(max_offsets=5_000)
        self.flusher = Flusher(
            self.offsets, MemoryStore(), interval=5.0, clock=clock, metrics=OffsetMetrics(CollectorRegistry())
        )
        self.ends = TableOfEnds()
        self.server = AgentServer(longest_silence=rules.expiry, clock=clock, registry=CollectorRegistry())
        self.addr = f"127.0.0.1:{self.server.bind('127.0.0.1:0')}"
        self.broker = f"c1/{name}/{broker_id}"
        self.identity = wire.identity(name, broker_id, addr=f"10.0.0.{broker_id + 1}:10911")
        self.stopped_groups = 0
        self.unread = LagReport()
        self.served_groups_again = asyncio.Event()
        self.groups_may_stop = asyncio.Event()
        self.groups_may_stop.set()
        self.drainer = Drainer(
            DrainedAgent(
                is_master=lambda: broker_id == 0,
                name_servers=lambda: name_servers,
                put_rate=None,
                group_lags=self._group_lags,
                stop_groups=self._stop_groups,
                serve_groups=self._serve_groups,
                unregister=self._unregister,
            ),
            WritePermissions(cluster="c1", broker_name=name, agent_addr=self.addr, timeout=1.0, opener=ChannelOpener()),
            clock=clock,
        )
        self._facts = AgentFacts(
            version="1.0",
            cluster="c1",
            broker_name=name,
            addr=self.identity.addr,
            own=replace(OWN, configured_id=broker_id),
        )

    async def start(self) -> None:
        """Serve."""
        await self.flusher.refresh()
        topics = topic_set(orders=5_000, bills=2)
        await self.server.start(
            [
                self.groups.service(),
                QueueLockServicer(
                    self.locks, topics=lambda: topics, owners=self.groups.owners, clock=self.clock
                ).service(),
                OffsetServicer(
                    ReplicaOffsets(self.offsets),
                    flushers=[self.flusher],
                    topics=lambda: topics,
                    ends=self.ends,
                    clock=self.clock,
                ).service(),
                AgentService(self.drainer, facts=lambda: self._facts, clock=self.clock).service(),
            ]
        )

    async def register(
        self, name_server: NameServerApp, *, agent_addr: str | None = None, health: BrokerHealth | None = None
    ) -> None:
        """Register the broker with the address of its agent, unless another one is given."""
        async with grpc.aio.insecure_channel(name_server.addr) as channel:
            addr = self.addr if agent_addr is None else agent_addr
            request = wire.registration(
                wire.topic("orders"), who=self.identity, agent_addr=addr, agent_version="0.1.0", health=health
            )
            await RegistrationServiceStub(channel).RegisterBroker(request)

    async def stop(self) -> None:
        """Close the port."""
        await self.drainer.close(seconds=5.0)
        await self.server.stop(0.0)

    async def _group_lags(self) -> LagReport:
        return self.unread

    async def _stop_groups(self) -> None:
        self.stopped_groups += 1
        await self.groups_may_stop.wait()

    async def _serve_groups(self) -> None:
        self.served_groups_again.set()

    async def _unregister(self) -> Mapping[str, Answer]:
        return {"ns1:9876": Answer(True, "unregistered"), "ns2:9876": Answer(False, "no answer in time")}


@asynccontextmanager
async def whole_agents(
    *brokers: tuple[str, int], clock: Clock, name_servers: list[NameServerApp], warm_up: float = 0.0
) -> AsyncIterator[list[WholeAgent]]:
    """Serve the agents of these brokers (name and id) for the length of the block, registered everywhere."""
    addrs = [app.addr for app in name_servers]
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        agents = []
        for name, broker_id in brokers:
            agent = WholeAgent(name, broker_id=broker_id, clock=clock, name_servers=addrs, warm_up=warm_up)
            await agent.start()
            watch = tasks.create_task(agent.server.watch_over())
            stack.push_async_callback(agent.stop)
            stack.callback(watch.cancel)
            for name_server in name_servers:
                await agent.register(name_server)
            agents.append(agent)
        try:
            yield agents
        finally:
            await stack.aclose()
    for agent in agents:
        agent.groups.core.check_invariants()
        agent.locks.check_invariants()
        agent.offsets.check_invariants()
