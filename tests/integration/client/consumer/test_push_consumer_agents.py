"""Consumers that coordinate by real agents over real gRPC; messages in memory, and a clock that moves by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc.aio
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceStub
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.core.queue import QueueKey
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.allocation import Averagely, AveragelyByCircle
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.route import TopicRoute
from tests.kit.agent.consumer_agents import ConsumerAgent, consumer_agents, flow
from tests.kit.client.consumer_setup import consumer_setup, numbers
from tests.kit.client.memory_group import queue_of, route_of
from tests.kit.client.seen import Seen
from tests.kit.waiting import eventually

Q0, Q1 = queue_of(0), queue_of(1)


def route_with(agent: ConsumerAgent, *, queues: int = 2) -> TopicRoute:
    """``orders`` on broker a, with the agent's address."""
    route = route_of("orders", {"a": queues})
    data = route.broker_datas[0]
    replicas = tuple(replace(replica, agent_addr=agent.addr) for replica in data.replicas)
    return replace(route, broker_datas=(replace(data, replicas=replicas),))


def held(*consumers: PushConsumer) -> list[list[int]]:
    """Queues of orders that each consumer owns and reads."""
    return [
        [each["queueId"] for each in consumer.describe()["queues"] if each["topic"] == "orders" and "position" in each]
        for consumer in consumers
    ]


async def test_members_share_the_queues_according_to_the_agent_and_a_leave_is_seen_immediately(
    clock: ManualClock,
) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        await setup.brokers.put(Q0, numbers(20))
        seen_x, seen_y = Seen(), Seen()
        x = await setup.join("x", seen_x, make_coordination=None)
        await eventually(lambda: held(x) == [[0, 1]] and len(seen_x.bodies) == 20, clock=clock)
        y = await setup.join("y", seen_y, make_coordination=None)
        await eventually(lambda: held(x, y) == [[0], [1]], clock=clock)
        await setup.brokers.put(Q1, numbers(20))
        await eventually(lambda: len(seen_y.bodies) == 20, clock=clock)
        began = clock.monotonic()
        await y.close()
        await eventually(lambda: held(x) == [[0, 1]], clock=clock)
        assert clock.monotonic() - began < 5
        # Nothing was consumed twice: the new owner continued where the old one had committed.
        await flow(clock, 3)
        assert len(seen_x.bodies) == 20


async def test_an_ordered_consumer_holds_the_locks_at_the_agent(clock: ManualClock) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        await setup.brokers.put(Q0, numbers(5))
        seen = Seen()
        x = await setup.join("x", seen, ordered=True, make_coordination=None)
        await eventually(lambda: seen.bodies == numbers(5), clock=clock)
        await flow(clock, 90)
        await setup.brokers.put(Q0, ["last"])
        await eventually(lambda: seen.bodies == [*numbers(5), "last"], clock=clock)
        assert [each["locked"] for each in x.describe()["queues"]] == [True, True]


async def test_the_locks_are_reacquired_as_soon_as_an_agent_that_lost_its_memory_is_back(clock: ManualClock) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        x = await setup.join("x", Seen(), ordered=True, make_coordination=None)
        await eventually(lambda: held(x) == [[0, 1]], clock=clock)
        await agent.restart()
        await eventually(lambda: agent.members("billing") == ["x@1"], clock=clock)
        began = clock.monotonic()
        await eventually(lambda: len(agent.locks.page(now=clock.monotonic(), limit=10)) == 2, clock=clock)
        assert clock.monotonic() - began < 1


async def shared_within(clock: ManualClock, seconds: float, counts: list[int], *consumers: PushConsumer) -> None:
    """Wait until each consumer owns its number of queues; fail when that exceeds the time on the clock."""
    began = clock.monotonic()
    await eventually(lambda: [len(each) for each in held(*consumers)] == counts, clock=clock)
    assert clock.monotonic() - began < seconds


async def test_a_group_without_notices_is_shared_out_by_the_rebalance_each_20_s(clock: ManualClock) -> None:
    rules = GroupRules(warm_up=0.0, notices=NoticeRules(notify=False))
    async with consumer_agents("a", clock=clock, rules=rules) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent, queues=4))
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(4)}
        x = await setup.join("x", Seen(), make_coordination=None)
        await shared_within(clock, 5.0, [4], x)
        y = await setup.join("y", Seen(), make_coordination=None)
        await shared_within(clock, 45.0, [2, 2], x, y)
        await x.close()
        await shared_within(clock, 45.0, [4], y)


async def test_a_group_whose_notice_was_lost_is_right_again_after_the_next_rebalance(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent, queues=4))
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(4)}
        x = await setup.join("x", Seen(), make_coordination=None)
        y = await setup.join("y", Seen(), make_coordination=None)
        await shared_within(clock, 30.0, [2, 2], x, y)
        with monkeypatch.context() as lossy:
            lossy.setattr(agent.groups.watches, "notify", lambda _changes: None)
            await y.close()
        assert [len(each) for each in held(x)] == [2]
        await shared_within(clock, 22.0, [4], x)


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_one_client_id_in_two_groups_consumes_everything_in_each(clock: ManualClock, is_ordered: bool) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        seen = {group: Seen() for group in ("ga", "gb")}
        consumers = [
            await setup.join("x", seen[group], group=group, ordered=is_ordered, make_coordination=None)
            for group in seen
        ]
        await eventually(lambda: held(*consumers) == [[0, 1], [0, 1]], clock=clock)
        await setup.brokers.put(Q0, numbers(20))
        await setup.brokers.put(Q1, numbers(20, "b"))
        await eventually(lambda: all(len(each.bodies) == 40 for each in seen.values()), clock=clock)
        assert (agent.members("ga"), agent.members("gb")) == (["x@1"], ["x@1"])
        # Closing one leaves the other its members, locks and offsets.
        await consumers[1].close()
        await flow(clock, 60.0)
        assert held(consumers[0]) == [[0, 1]]
        locks = agent.locks.page(now=clock.monotonic(), limit=10)
        assert [(each.group, each.client_id) for each in locks] == [("ga", "x@1")] * len(locks)
        assert agent.offsets.get("ga", [QueueKey("orders", 0)]) == {QueueKey("orders", 0): 20}
        assert agent.offsets.get("gb", [QueueKey("orders", 0)]) == {QueueKey("orders", 0): 20}


def held_queues(*consumers: PushConsumer | PullConsumer) -> list[list[int]]:
    return [
        sorted(each["queueId"] for each in consumer.describe()["queues"] if each["topic"] == "orders")
        for consumer in consumers
    ]


async def test_members_with_another_strategy_follow_the_oldest_one_and_use_their_own_when_it_has_left(
    clock: ManualClock,
) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent, queues=4))
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(4)}
        join = partial(setup.join, make_coordination=None)
        x = await join("x", Seen(), strategy=Averagely())
        await eventually(lambda: held_queues(x) == [[0, 1, 2, 3]], clock=clock)
        y = await join("y", Seen(), strategy=AveragelyByCircle())
        await eventually(lambda: held_queues(x, y) == [[0, 1], [2, 3]], clock=clock)
        z = await join("z", Seen(), strategy=AveragelyByCircle())
        await x.close()
        await eventually(lambda: held_queues(y, z) == [[0, 2], [1, 3]], clock=clock)
        assert setup.hook.aside == []


async def test_an_ordered_member_beside_an_older_concurrent_one_holds_no_queue_and_reports_it(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(2)}
        join = partial(setup.join, make_coordination=None)
        x = await join("x", Seen())
        await eventually(lambda: held_queues(x) == [[0, 1]], clock=clock)
        y = await join("y", Seen(), ordered=True)
        await eventually(lambda: setup.hook.aside == [True], clock=clock)
        await flow(clock, 45.0)
        assert held_queues(x, y) == [[0, 1], []]
        assert y.describe()["standsAside"] is True
        text = "y@1 of group billing has no queue of topic orders: its settings differ from those of the group's oldest"
        assert text in caplog.text
        await x.close()
        await eventually(lambda: held_queues(y) == [[0, 1]], clock=clock)
        assert setup.hook.aside == [True, False]


async def test_a_polling_member_beside_an_older_listener_leaves_the_queues_and_retries_to_it(
    clock: ManualClock,
) -> None:
    """It would not read its queues of the retry topic."""
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(2)}
        x = await setup.join("x", Seen(), make_coordination=None)
        await eventually(lambda: held_queues(x) == [[0, 1]], clock=clock)
        y = await setup.join_pulling("a", make_coordination=None)
        await eventually(lambda: setup.hook.aside == [True], clock=clock)
        await flow(clock, 45.0)
        assert held_queues(x, y) == [[0, 1], []]
        assert "%RETRY%billing" in {each["topic"] for each in x.describe()["queues"]}


async def test_a_broadcasting_member_beside_an_older_clustering_one_reads_nothing_until_that_has_left(
    clock: ManualClock, tmp_path: Path
) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", queue_id): 100 for queue_id in range(2)}
        join = partial(setup.join, make_coordination=None)
        x = await join("x", Seen())
        await eventually(lambda: held_queues(x) == [[0, 1]], clock=clock)
        y = await join("y", Seen(), message_model=MessageModel.BROADCASTING, offset_file=tmp_path / "offsets")
        await eventually(lambda: setup.hook.aside == [True] and held_queues(y) == [[]], clock=clock)
        await flow(clock, 45.0)
        assert held_queues(x, y) == [[0, 1], []]
        await x.close()
        await eventually(lambda: held_queues(y) == [[0, 1]], clock=clock)


async def test_the_agent_knows_within_a_heartbeat_what_each_member_reads_and_which_listener_hangs(
    clock: ManualClock,
) -> None:
    end = asyncio.Event()

    async def hangs(_: ReceivedMessage) -> None:
        await end.wait()

    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        await setup.brokers.put(Q0, numbers(3))
        x = await setup.join("x", hangs, make_coordination=None)
        y = await setup.join("y", Seen(), make_coordination=None)
        await eventually(lambda: held(x, y) == [[0], [1]], clock=clock)
        await flow(clock, 95.0)
        end.set()

        async with grpc.aio.insecure_channel(agent.addr) as channel:
            request = wire.ListGroupQueuesRequest(group="billing")
            response = await ConsumerGroupServiceStub(channel).ListGroupQueues(request)
        first, second = (each for each in response.queues if each.topic == "orders")
        assert (first.client_id, first.standing) == (x.client_id, wire.QUEUE_STANDING_STUCK_CALL)
        assert (first.reading.in_flight, first.reading.position, first.committed) == (3, 3, 0)
        assert first.reading.oldest_call.ToTimedelta().total_seconds() == pytest.approx(95, abs=3)
        assert (second.client_id, second.standing) == (y.client_id, wire.QUEUE_STANDING_UNSPECIFIED)
        assert [each.client_id for each in response.members] == [x.client_id, y.client_id]
        assert "members" in {each.trigger for each in response.members[0].rebalances}
