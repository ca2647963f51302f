"""Agents of brokers with the services that consumers use, on their own servers; and routes that name them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.group_rules import GroupRules
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.groups.member_lists import MemberListKeeper, MemberLists, MemberListsFailed
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState
from tests.kit.agent.memory_store import MemoryStore
from tests.kit.agent.services import AgentServices, TableOfEnds, topic_set

CLUSTER = "c1"
PATIENCE_SECONDS = 60.0
STEP_SECONDS = 0.05
CALLS_PER_SECOND = 4
"""Longer than any exchange between a consumer and an agent."""


class MemoryMemberLists:
    """Implements ``pointsman_agent.groups.member_lists.MemberListStore``; outlives its agent."""

    def __init__(self) -> None:
        self.lists: MemberLists | None = None
        self.problem = ""
        """While it is set, each call fails with it."""

    async def load(self) -> MemberLists | None:
        self._fail()
        return self.lists

    async def write(self, lists: MemberLists) -> None:
        self._fail()
        self.lists = lists

    def is_ours(self) -> bool:
        return True

    async def close(self) -> None:
        pass

    def _fail(self) -> None:
        if self.problem:
            raise MemberListsFailed(self.problem)


class ConsumerAgent:
    """The agent of one broker; its locks, offsets and members are new with each start, its stores and address stay."""

    def __init__(
        self, broker_name: str, *, clock: ManualClock, rules: GroupRules | None = None, keeps_lists: bool = False
    ) -> None:
        self.broker_name = broker_name
        self.topics: TopicSet = topic_set(orders=2_000)
        self.store = MemoryStore()
        self.lists = MemoryMemberLists() if keeps_lists else None
        self._keeper: MemberListKeeper | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.ends = TableOfEnds()
        self.addr = ""
        self.is_master = True
        self._clock = clock
        self._rules = rules
        self._boots = 0
        self._services: AgentServices | None = None

    async def start(self, *, is_loaded: bool = True) -> None:
        """Serve, the first time on a free port, then on the same."""
        self._boots += 1
        self._services = running = AgentServices(
            clock=self._clock,
            rules=self._rules,
            topics=lambda: self.topics,
            store=self.store,
            ends=self.ends,
            is_master=lambda: self.is_master,
            boot=self._boots,
            addr=self.addr or "127.0.0.1:0",
        )
        self.addr, self.server, self.flusher = running.addr, running.server, running.flusher
        self.groups, self.locks, self.offsets = running.groups, running.locks, running.offsets
        self.replica_offsets = running.replica_offsets
        await running.start(is_loaded=is_loaded)
        if self.lists is not None:
            self._keeper = MemberListKeeper(
                self.groups,
                self.lists,
                groups_with_offsets=lambda: {group for group, *_ in self.offsets.commits()},
                clock=self._clock,
            )
            self._keeping = asyncio.create_task(self._keeper.run())

    async def stop(self) -> None:
        """Crash: what is not in the store is lost; a second call does nothing."""
        running, self._services = self._services, None
        if running is not None:
            await running.stop()
            if self._keeper is not None and self._keeping is not None:
                self._keeping.cancel()
                await asyncio.gather(self._keeping, return_exceptions=True)
                await self._keeper.finish()

    async def restart(self) -> None:
        """Stop, and start with what the store has."""
        await self.stop()
        await self.flusher.flush()
        await self.start()

    def members(self, group: str = "g") -> list[str]:
        """Client ids of a group's members here."""
        return [each.client_id for each in self.groups.core.members(group)]

    def replica(self, broker_id: int = 0) -> BrokerReplica:
        """The broker as a route names it."""
        return BrokerReplica(broker_id, f"10.0.0.1:{10_000 + broker_id}", "", self.addr, BrokerState.UP)

    def data(self) -> BrokerData:
        """The broker alone as a replica group."""
        return broker_data(self.broker_name, self.replica())


def broker_data(broker_name: str, *replicas: BrokerReplica) -> BrokerData:
    """A replica group of the cluster."""
    return BrokerData(CLUSTER, broker_name, replicas, "", acting_master=False)


class Routes:
    """Implements ``RoutedBrokers`` of ``broker_agents.py``: every topic is on all of ``brokers``."""

    def __init__(self, *brokers: BrokerData) -> None:
        self.brokers = brokers

    def broker(self, cluster: str, broker_name: str, /) -> BrokerData | None:
        return next((b for b in self.brokers if (b.cluster, b.broker_name) == (cluster, broker_name)), None)

    def brokers_of(self, topics: Iterable[str], /) -> tuple[BrokerData, ...]:
        return self.brokers if topics else ()


def queues_of(broker_name: str, *ids: int, topic: str = "orders") -> list[MessageQueue]:
    """Queues of one broker."""
    return [MessageQueue(topic, CLUSTER, broker_name, queue_id) for queue_id in ids]


@asynccontextmanager
async def consumer_agents(
    *broker_names: str, clock: ManualClock, rules: GroupRules | None = None, keeps_lists: bool = False
) -> AsyncIterator[list[ConsumerAgent]]:
    """Serve an agent for each broker for the length of the block."""
    agents = [ConsumerAgent(name, clock=clock, rules=rules, keeps_lists=keeps_lists) for name in broker_names]
    try:
        for agent in agents:
            await agent.start()
        yield agents
    finally:
        for agent in agents:
            await agent.stop()


async def flow(clock: ManualClock, seconds: float) -> None:
    """Advance the clock; each second lasts as long as a few calls over the loopback, so what is sent in it arrives."""
    ends_at = clock.monotonic() + seconds
    async with _loopback() as call:
        while clock.monotonic() < ends_at:
            await clock.advance(min(1.0, ends_at - clock.monotonic()))
            for _ in range(CALLS_PER_SECOND):
                await call(b"")


@asynccontextmanager
async def _loopback() -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    """A call that returns when a server has answered it: as slow as all calls on a busy machine."""

    async def answer(request: bytes, _context: object) -> bytes:
        return request

    server = grpc.aio.server()
    method: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pace", {"Call": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/pace/Call")
            yield call
    finally:
        await server.stop(None)
