"""A name server and agents that `pointsmanctl` queries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.group_clients import Consumer
from tests.kit.agent.in_route import WholeAgent, whole_agents
from tests.kit.ctl.command import Ended, ctl
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually


@dataclass
class Fleet:
    """Two masters and a replica of the first, and a name server that knows them."""

    name_server: NameServerApp
    one: WholeAgent
    two: WholeAgent
    replica: WholeAgent
    consumers: list[Consumer]

    async def join(self, agent: WholeAgent, client_id: str, *groups: wire.GroupSubscription) -> Consumer:
        """Send one heartbeat, over a stream that stays open."""
        consumer = Consumer(agent.addr, client_id)
        self.consumers.append(consumer)
        await consumer.beat(*groups)
        return consumer

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", self.name_server.addr, *arguments)

    async def json(self, *arguments: str) -> Ended:
        return await self.ctl("-o", "json", *arguments)


@asynccontextmanager
async def a_fleet(clock: ManualClock | SystemClock, *, history: Path | None = None) -> AsyncIterator[Fleet]:
    """Serve it for the length of the block. ``history``: None, it is off."""
    async with running_name_server(history=history) as app:
        brokers = (("a", 0), ("b", 0), ("a", 1))
        async with whole_agents(*brokers, clock=clock, name_servers=[app]) as (one, two, replica):
            fleet = Fleet(app, one, two, replica, [])
            if isinstance(clock, ManualClock):
                await clock.advance(0.1)
            await eventually(lambda: all(agent.groups.core.state.value == "ready" for agent in (one, two, replica)))
            yield fleet
            for consumer in fleet.consumers:
                await consumer.crash()
