"""Agents with all their services, each on a free port, and a name server with their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import grpc.aio

from pointsman.clock import Clock
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.v1.broker_pb2 import BrokerHealth
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.core.drain import Answer
from pointsman_agent.core.drain_lag import LagReport
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.drain.agent_servicer import AgentFacts, AgentService
from pointsman_agent.drain.drainer import DrainedAgent, Drainer
from pointsman_agent.drain.write_perm import WritePermissions
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.services import AgentServices, topic_set
from tests.kit.name_server import wire

OWN = OwnState(
    0, TopicSet.from_content([], state_version=3), Verdict(ProbeStatus.PASSING, "answers", "run-1", Role.MASTER)
)


class WholeAgent(AgentServices):
    """The agent of one broker; its services are real, the test sets their data."""

    def __init__(self, name: str, *, broker_id: int, clock: Clock, name_servers: list[str], warm_up: float) -> None:
        rules = GroupRules(warm_up=warm_up, notices_of={"held": NoticeRules(hold_down=10.0)})
        topics = topic_set(orders=5_000, bills=2)
        super().__init__(clock=clock, rules=rules, topics=lambda: topics)
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
        facts = AgentFacts(
            version="1.0",
            cluster="c1",
            broker_name=name,
            addr=self.identity.addr,
            own=replace(OWN, configured_id=broker_id),
        )
        self._agent_service = AgentService(self.drainer, facts=lambda: facts, clock=clock)

    async def start(self, *more: Service, is_loaded: bool = True) -> None:
        await super().start(self._agent_service.service(), *more, is_loaded=is_loaded)

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
        await self.drainer.close(seconds=5.0)
        await super().stop()

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
    async with AsyncExitStack() as stack:
        agents = []
        for name, broker_id in brokers:
            agent = WholeAgent(name, broker_id=broker_id, clock=clock, name_servers=addrs, warm_up=warm_up)
            await agent.start()
            stack.push_async_callback(agent.stop)
            for name_server in name_servers:
                await agent.register(name_server)
            agents.append(agent)
        yield agents
