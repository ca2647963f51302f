"""Memberships of consumers at real agents, without the consumers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.core.rebalance import Members
from pointsman_client.pointsman_grpc.agents.membership import AgentMembership
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import GroupMembership
from tests.kit.agent.consumer_agents import ConsumerAgent, Routes


@dataclass
class Member:
    """A consumer's membership, and what it reported to its consumer."""

    client_id: str
    membership: AgentMembership
    links: AgentLinks
    routes: Routes
    subscriptions: dict[str, str]
    changes: list[Members | None] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def sees(self, *client_ids: str) -> bool:
        members = self.membership.members
        return members is not None and members.client_ids == client_ids

    def stands(self, agent: ConsumerAgent) -> str:
        agents = self.membership.describe()["agents"]
        assert isinstance(agents, dict)
        return str(agents[agent.addr]["state"])

    @property
    def watches(self) -> object:
        return self.membership.describe()["watchedAgent"]


Join = Callable[..., Awaitable[Member]]


@asynccontextmanager
async def joined_members(clock: ManualClock) -> AsyncIterator[Join]:
    """Makes members; all have left at the end."""
    made: list[Member] = []

    async def one(
        client_id: str,
        routes: Routes,
        *,
        group: str = "g",
        topics: Mapping[str, str] | None = None,
        model: wire.MessageModel.ValueType = wire.MESSAGE_MODEL_CLUSTERING,
        settings: wire.MemberSettings | None = None,
    ) -> Member:
        links, subscriptions = AgentLinks(), dict(topics or {"orders": "*"})
        changes: list[Members | None] = []
        broken: list[str] = []
        membership = AgentMembership(
            routes,
            links,
            group=group,
            client_id=client_id,
            consume_type=wire.CONSUME_TYPE_PUSH,
            message_model=model,
            settings=settings,
            subscriptions=lambda: subscriptions,
            on_change=lambda: changes.append(membership.members),
            clock=clock,
            rng=random.Random(7),
            on_agent_broken=broken.append,
        )
        as_agreed: GroupMembership = membership
        await as_agreed.start()
        made.append(Member(client_id, membership, links, routes, subscriptions, changes, broken))
        return made[-1]

    yield one
    for member in made:
        await member.membership.leave()
        await member.links.close(timeout_seconds=1.0)
