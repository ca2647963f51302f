"""Offsets of groups without a client for 30 days."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from pointsman.clock import utc_millis
from pointsman.manual_clock import ManualClock
from pointsman_agent.core.offsets import BEGIN_ID, OffsetKey, Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.offsets.expiry import CHECK_INTERVAL_SECONDS, OffsetExpiry
from tests.kit.agent.services import TableOfEnds
from tests.kit.waiting import running

DAY = timedelta(days=1).total_seconds()
Q0 = QueueKey("orders", 0)


class Agent:
    """What expiry sees of one."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.offsets, self.ends, self.registry = Offsets(), TableOfEnds(), CollectorRegistry()
        self.is_loaded = self.is_master = True
        self.members = ["member"]
        self.expiry = OffsetExpiry(
            self.offsets,
            is_loaded=lambda: self.is_loaded,
            is_master=lambda: self.is_master,
            members=lambda: self.members,
            ends=self.ends,
            clock=clock,
            registry=self.registry,
        )

    def commit(self, *groups: str) -> None:
        for group in groups:
            self.offsets.commit(group, {Q0: 5})

    async def days(self, count: int) -> None:
        for _ in range(count):
            await self.clock.advance(DAY)
            await self.expiry.check()

    @property
    def groups(self) -> list[str]:
        return self.offsets.groups()

    @property
    def expired(self) -> float | None:
        return self.registry.get_sample_value("pointsman_agent_offsets_expired_total")


@pytest.fixture
def agent(clock: ManualClock) -> Agent:
    return Agent(clock)


async def test_a_group_without_a_member_expires_after_30_days_and_one_with_a_member_never(agent: Agent) -> None:
    agent.commit("member", "gone")
    agent.ends.first[Q0] = 6
    await agent.expiry.check()
    await agent.days(30)
    assert agent.groups == ["gone", "member"]
    await agent.days(2)
    assert (agent.groups, agent.expired) == (["member"], 1)
    await agent.days(60)
    assert agent.groups == ["member"]


@pytest.mark.parametrize("first", [5, 0, None], ids=["at-the-first", "ahead-of-the-first", "ends-unknown"])
async def test_an_offset_that_is_not_behind_its_queue_never_expires(agent: Agent, first: int | None) -> None:
    agent.commit("gone")
    if first is not None:
        agent.ends.first[Q0] = first
    await agent.days(100)
    assert agent.groups == ["gone"]


async def test_nothing_expires_while_the_broker_is_down_or_is_a_slave(agent: Agent) -> None:
    agent.commit("gone")
    agent.ends.first[Q0] = 6
    agent.ends.problem = "connection refused"
    await agent.days(40)
    agent.ends.problem, agent.is_master = "", False
    await agent.days(1)
    assert agent.groups == ["gone"]
    agent.is_master = True
    await agent.days(1)
    assert agent.groups == []


@pytest.fixture
async def checking(agent: Agent) -> AsyncIterator[Agent]:
    """It runs, and is not loaded yet."""
    agent.is_loaded = False
    async with running(agent.expiry.run()):
        yield agent


async def test_what_was_committed_before_there_were_begins_has_begun_when_it_is_loaded(checking: Agent) -> None:
    checking.commit("old")
    await checking.clock.advance(5)
    assert checking.offsets.begins("old", ["orders"]) == {}
    checking.is_loaded = True
    await checking.clock.advance(1)
    loaded_at = utc_millis(checking.clock)
    assert checking.offsets.begins("old", ["orders"]) == {"orders": loaded_at}
    assert OffsetKey("old", "orders", BEGIN_ID) in {change.key for change in checking.offsets.take()}


async def test_expiry_is_checked_every_hour(checking: Agent) -> None:
    checking.is_loaded = True
    checking.commit("gone")
    checking.ends.first[Q0] = 6
    await checking.clock.advance(1)
    await checking.clock.advance(CHECK_INTERVAL_SECONDS)
    await checking.clock.advance(31 * DAY)
    await checking.clock.advance(CHECK_INTERVAL_SECONDS)
    assert checking.groups == []
