"""Consumers whose agents were just started: when they get queues, and that no queue is read by two of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.group_rules import GroupRules
from pointsman_agent.core.queue import QueueKey
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.route import TopicRoute
from tests.kit.agent.consumer_agents import ConsumerAgent, consumer_agents, flow
from tests.kit.client.consumer_setup import Setup, consumer_setup
from tests.kit.client.memory_group import route_of
from tests.kit.client.seen import Seen
from tests.kit.waiting import eventually

PROMISED_SECONDS = 5.0
WARM_UP = GroupRules()


def route(*agent_addrs: str, queues: int = 4) -> TopicRoute:
    """``orders`` on brokers a, b ... with these agents."""
    bare = route_of("orders", dict.fromkeys("abcdef"[: len(agent_addrs)], queues))
    datas = tuple(
        replace(data, replicas=tuple(replace(each, agent_addr=addr) for each in data.replicas))
        for data, addr in zip(bare.broker_datas, agent_addrs, strict=True)
    )
    return replace(bare, broker_datas=datas)


def held(consumer: PushConsumer) -> set[tuple[str, int]]:
    return {
        (each["brokerName"], each["queueId"])
        for each in consumer.describe()["queues"]
        if each["topic"] == "orders" and "position" in each
    }


async def seconds_until(clock: ManualClock, counts: list[int], *consumers: PushConsumer) -> float:
    """Seconds on the clock until each consumer owns its number of queues."""
    began = clock.monotonic()
    await eventually(lambda: [len(held(each)) for each in consumers] == counts, clock=clock)
    return clock.monotonic() - began


async def join(setup: Setup, name: str) -> PushConsumer:
    return await setup.join(name, Seen(), make_coordination=None)


@asynccontextmanager
async def one_broker(clock: ManualClock) -> AsyncIterator[tuple[ConsumerAgent, Setup]]:
    async with consumer_agents("a", clock=clock, rules=WARM_UP, keeps_lists=True) as (agent,):
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(4)}
        async with consumer_setup(clock) as setup:
            setup.routes.set(route(agent.addr))
            yield agent, setup


async def test_on_a_fresh_installation_a_member_has_its_queues_within_five_seconds(clock: ManualClock) -> None:
    async with one_broker(clock) as (_, setup):
        x = await join(setup, "x")
        assert await seconds_until(clock, [4], x) <= PROMISED_SECONDS
        y = await join(setup, "y")
        assert await seconds_until(clock, [2, 2], x, y) <= PROMISED_SECONDS


async def test_after_a_crash_of_the_only_agent_a_second_member_has_queues_within_five_seconds(
    clock: ManualClock,
) -> None:
    async with one_broker(clock) as (agent, setup):
        x = await join(setup, "x")
        await seconds_until(clock, [4], x)
        await flow(clock, 8.0)
        await agent.stop()
        setup.routes.set(replace(route(agent.addr), queue_datas=(), broker_datas=()))
        await flow(clock, 17.0)
        await agent.start()
        setup.routes.set(route(agent.addr))
        await eventually(lambda: agent.members("billing") == ["x@1"], clock=clock)
        await seconds_until(clock, [4], x)
        y = await join(setup, "y")
        assert await seconds_until(clock, [2, 2], x, y) <= PROMISED_SECONDS


async def test_after_an_upgrade_of_the_only_agent_a_leave_is_noticed_within_five_seconds(clock: ManualClock) -> None:
    async with one_broker(clock) as (agent, setup):
        x, y = await join(setup, "x"), await join(setup, "y")
        await seconds_until(clock, [2, 2], x, y)
        await flow(clock, 8.0)
        await agent.restart()
        # Connections take real time, independent of the manual clock.
        await eventually(lambda: len(agent.members("billing")) == 2, clock=clock)
        await flow(clock, 4.0)
        await y.close()
        assert await seconds_until(clock, [4], x) <= PROMISED_SECONDS


async def test_while_a_member_is_missing_no_queue_is_read_by_two_members(clock: ManualClock) -> None:
    async with one_broker(clock) as (agent, setup), consumer_setup(clock) as elsewhere:
        elsewhere.routes.set(route(agent.addr))
        x, y = await join(setup, "x"), await join(elsewhere, "y")
        await seconds_until(clock, [2, 2], x, y)
        await flow(clock, 8.0)
        await agent.stop()
        elsewhere.routes.set(route(""))  # cut off from the agent, not from the broker
        await flow(clock, 2.0)
        await agent.start()
        await eventually(lambda: agent.members("billing") == ["x@1"], clock=clock)
        for second in range(25):
            if second == 15:
                elsewhere.routes.set(route(agent.addr))
            await flow(clock, 1.0)
            assert not held(x) & held(y)
        assert agent.members("billing") == ["x@1", "y@1"]
        assert (len(held(x)), len(held(y))) == (2, 2)


async def test_with_unreadable_lists_the_group_warms_up_for_the_full_time(clock: ManualClock) -> None:
    async with one_broker(clock) as (agent, setup):
        x = await join(setup, "x")
        await seconds_until(clock, [4], x)
        await flow(clock, 8.0)
        assert agent.lists is not None
        await agent.stop()
        agent.lists.problem = "the disk is broken"
        await agent.start()
        y = await join(setup, "y")
        await flow(clock, 20.0)
        assert (len(held(x)), len(held(y))) == (4, 0)
        await seconds_until(clock, [2, 2], x, y)


async def test_an_agent_that_was_running_is_relied_on_before_one_that_was_started(clock: ManualClock) -> None:
    async with (
        consumer_agents("a", clock=clock, rules=WARM_UP, keeps_lists=True) as (fresh,),
        consumer_agents("b", clock=clock) as (running,),
        consumer_setup(clock) as setup,
    ):
        for agent in (fresh, running):
            agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(4)}
        setup.routes.set(route(fresh.addr, running.addr))
        await eventually(lambda: fresh.groups.core.state_of("billing").value == "recovered", clock=clock)
        x = await join(setup, "x")
        await seconds_until(clock, [8], x)
        assert fresh.groups.core.state_of("billing").value == "recovered"
        assert x.describe()["watchedAgent"] == running.addr
