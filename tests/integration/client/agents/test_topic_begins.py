"""When a group first consumed a topic: a copy at every broker's agent, the earliest wins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.offsets import BEGIN_ID, OffsetKey
from pointsman_client.errors import AgentFailedError
from pointsman_client.pointsman_grpc.agents.offset_store import AgentOffsetStore
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import BegunTopics
from tests.kit.agent.consumer_agents import ConsumerAgent, Routes, broker_data, consumer_agents
from tests.kit.agent.services import topic_set
from tests.kit.waiting import read_until

T0 = datetime(2025, 11, 1, tzinfo=UTC)
LATER = T0 + timedelta(days=1)

StoreOf = Callable[[Routes], AgentOffsetStore]


@pytest.fixture
async def store_of(clock: ManualClock) -> AsyncIterator[StoreOf]:
    links = AgentLinks()
    yield lambda routes: AgentOffsetStore(routes, links, group="g", clock=clock)
    await links.close(timeout_seconds=1.0)


def kept(agent: ConsumerAgent) -> datetime | None:
    """The begin that an agent has recorded for the topic orders."""
    millis = agent.offsets.begins("g", ["orders"]).get("orders")
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)


async def test_the_first_moment_is_recorded_at_every_broker_and_stays(clock: ManualClock, store_of: StoreOf) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        store = store_of(Routes(a.data(), b.data()))
        assert await store.begin({"orders": T0}) == BegunTopics({"orders": T0}, {})
        assert await store.begin({"orders": LATER}) == BegunTopics({"orders": T0}, {})
        assert (kept(a), kept(b)) == (T0, T0)


async def test_a_broker_that_joins_gets_a_copy_which_outlives_the_others(clock: ManualClock, store_of: StoreOf) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        await store_of(Routes(a.data())).begin({"orders": T0})
        assert kept(b) is None
        await store_of(Routes(a.data(), b.data())).begin({"orders": LATER})
        assert (await store_of(Routes(b.data())).begin({"orders": LATER})).moments == {"orders": T0}


async def test_a_moment_that_this_member_knows_is_recorded_where_no_agent_knows_one(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        await store_of(Routes(a.data())).begin({"orders": LATER})
        assert (await store_of(Routes(a.data())).begin({"orders": T0})).moments == {"orders": T0}
        assert kept(a) == T0


async def test_a_group_that_no_agent_knows_waits_for_all_and_records_nothing_before(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        store = store_of(Routes(a.data(), b.data()))
        await b.stop()
        begun = await store.begin({"orders": T0})
        assert begun.moments == {}
        assert isinstance(begun.unknown["orders"], AgentFailedError)
        assert kept(a) is None
        await b.start()
        b.offsets.begin("g", {"orders": round(T0.timestamp() * 1000)})
        await read_until(lambda: _begins(store, T0))
        assert kept(a) == T0


async def _begins(store: AgentOffsetStore, at: datetime) -> bool:
    return (await store.begin({"orders": LATER})).moments == {"orders": at}


async def test_a_group_that_one_agent_knows_waits_for_no_other_agent(clock: ManualClock, store_of: StoreOf) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        store = store_of(Routes(a.data(), b.data()))
        await store.begin({"orders": T0})
        await b.stop()
        assert await store.begin({"orders": LATER}) == BegunTopics({"orders": T0}, {})


async def test_what_only_a_slaves_agent_knows_counts_and_a_slave_that_is_down_is_not_waited_for(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "a", clock=clock) as (master, slave):
        slave.is_master = False
        store = store_of(Routes(broker_data("a", master.replica(), slave.replica(1))))
        slave.replica_offsets.begin("g", {"orders": round(T0.timestamp() * 1000)}, [], now=0)
        assert (await store.begin({"orders": LATER})).moments == {"orders": T0}
        assert kept(master) == T0
        await slave.stop()
        master.topics = topic_set(orders=1, refunds=1)
        assert (await store.begin({"refunds": LATER})).moments == {"refunds": LATER}


async def test_an_agent_that_does_not_know_the_call_or_the_topic_is_not_waited_for(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        b.topics = topic_set(other=1)
        assert (await store_of(Routes(a.data(), b.data())).begin({"orders": T0})).moments == {"orders": T0}
        assert (kept(a), kept(b)) == (T0, None)
        assert b.server.metrics.rpcs.labels("BeginTopics", "INVALID_ARGUMENT").count == 1


async def test_more_topics_than_one_call_accepts_are_begun(clock: ManualClock, store_of: StoreOf) -> None:
    topics = {f"t{number}": T0 for number in range(1_001)}
    async with consumer_agents("a", clock=clock) as (a,):
        a.topics = topic_set(**dict.fromkeys(topics, 1))
        assert (await store_of(Routes(a.data())).begin(topics)).moments == topics
        a.offsets.check_invariants()
        assert OffsetKey("g", "t1000", BEGIN_ID) in {change.key for change in a.offsets.take()}
