"""An operator resets offsets while consumers run: they follow promptly and in order, and no late commit undoes it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import pairwise

import grpc.aio
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.groups.membership_stream import MemberStream as AgentsStream
from pointsman_client.consumer.group_consumer import GroupConsumer
from pointsman_client.consumer.offset_committer import OffsetCommitter
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.route import TopicRoute
from pointsman_client.errors import OffsetResetError
from tests.kit.agent.consumer_agents import ConsumerAgent, consumer_agents, flow
from tests.kit.client.consumer_setup import Setup, consumer_setup, numbers
from tests.kit.client.memory_group import queue_of, route_of
from tests.kit.client.seen import Seen
from tests.kit.waiting import eventually

Q0, Q1 = queue_of(0), queue_of(1)
FOLLOW_SECONDS = 1.0


class Gated:
    """A listener whose call of one body waits for the test."""

    def __init__(self, body: str) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.go_on = asyncio.Event()
        self._body = body

    async def __call__(self, message: ReceivedMessage) -> None:
        text = message.body.decode()
        self.begun.append(text)
        if text == self._body:
            await self.go_on.wait()
        self.ended.append(text)


async def test_a_running_consumer_follows_a_reset_back_and_forth_without_waiting(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: setup.group.offsets.get(Q0) == 10)
    setup.group.reset(Q0, 7)
    await setup.clock.advance(0)
    await setup.until(lambda: len(seen.bodies) == 13, seconds=FOLLOW_SECONDS)
    assert seen.bodies == [*numbers(10), "7", "8", "9"]
    await setup.until(lambda: setup.group.offsets[Q0] == 10)
    await setup.brokers.put(Q0, numbers(5, "late"))
    await setup.until(lambda: setup.group.offsets[Q0] == 15)
    setup.group.reset(Q0, 14)
    await setup.until(lambda: seen.bodies[-1:] == ["late4"] and len(seen.bodies) == 19, seconds=FOLLOW_SECONDS)


async def test_what_was_in_a_listener_is_not_acknowledged_and_is_handed_out_again_if_the_reset_is_before_it(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, numbers(6))
    listener = Gated("3")
    await setup.join("x", listener, ordered=True)
    await setup.until(lambda: listener.begun == numbers(4))
    setup.group.reset(Q0, 1)
    await setup.clock.advance(2)
    assert listener.begun == numbers(4), "in order the next message waits for the one in the listener"
    assert setup.group.offsets[Q0] == 1
    listener.go_on.set()
    await setup.until(lambda: listener.ended[-1:] == ["5"])
    assert listener.ended == [*numbers(4), "1", "2", "3", "4", "5"]
    await setup.until(lambda: setup.group.offsets[Q0] == 6)


async def test_a_reset_past_a_message_in_a_listener_does_not_hand_it_out_again(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(6))
    listener = Gated("2")
    await setup.join("x", listener)
    await setup.until(lambda: "2" in listener.begun and len(listener.begun) == 6)
    setup.group.reset(Q0, 4)
    await setup.until(lambda: len(listener.ended) == 7)
    listener.go_on.set()
    await setup.until(lambda: setup.group.offsets[Q0] == 6)
    assert sorted(listener.ended) == ["0", "1", "2", "3", "4", "4", "5", "5"]


async def test_a_consumer_that_missed_the_notice_follows_when_its_commit_is_refused(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: setup.group.offsets.get(Q0) == 10)
    setup.group.reset(Q0, 8, notifies=False)
    await setup.brokers.put(Q0, ["new"])
    await setup.until(lambda: len(seen.bodies) == 14, seconds=7)
    assert seen.bodies == [*numbers(10), "new", "8", "9", "new"]
    await setup.until(lambda: setup.group.offsets[Q0] == 11)


async def test_a_late_commit_on_its_way_does_not_undo_a_reset(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: len(seen.bodies) == 10)
    setup.group.commits_pass.clear()
    await setup.clock.advance(6)
    setup.group.reset(Q0, 2, notifies=False)
    setup.group.commits_pass.set()
    await setup.until(lambda: len(seen.bodies) == 18, seconds=2)
    assert seen.bodies[10:] == numbers(10)[2:]


async def test_a_reset_while_the_offset_is_loaded_is_not_lost(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    setup.group.offsets[Q0] = 9
    loaded_before = setup.group.loads_pass
    loaded_before.clear()
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(1)
    setup.group.loads_pass = asyncio.Event()
    setup.group.loads_pass.set()
    setup.group.reset(Q0, 5)
    await setup.clock.advance(1)
    loaded_before.set()
    await setup.until(lambda: len(seen.bodies) == 5, seconds=10)
    assert seen.bodies == numbers(10)[5:]


async def test_the_last_commit_of_a_released_queue_stays_refused(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    seen = Seen()
    consumer = await setup.join("x", seen)
    await setup.until(lambda: len(seen.bodies) == 10)
    core = consumer._core
    assert isinstance(core, GroupConsumer)
    held = core.table.find(Q0)
    assert held is not None
    held.is_released = True
    setup.group.reset(Q0, 2, notifies=False)
    for _ in range(2):  # the second one must not be of the reset's epoch
        with pytest.raises(OffsetResetError):
            await core.commit()
    assert setup.group.offsets[Q0] == 2


async def test_a_pull_consumer_polls_from_the_reset_offset_and_its_late_commit_says_why_it_is_refused(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, numbers(10))
    consumer = await setup.join_pulling("x", auto_commit=False)
    polled: list[str] = []

    async def poll() -> None:
        polling = asyncio.ensure_future(consumer.poll(timeout_seconds=1.0))
        await setup.until(polling.done)
        polled.extend(message.body.decode() for message in await polling)

    while len(polled) < 10:
        await poll()
    setup.group.reset(Q0, 6, notifies=False)
    with pytest.raises(OffsetResetError, match=r"an operator has reset the offset of .*: it is 6 now"):
        await consumer.commit()
    while len(polled) < 14:
        await poll()
    assert polled == [*numbers(10), "6", "7", "8", "9"]
    await consumer.commit()
    assert setup.group.offsets[Q0] == 10


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_comes_in_between_an_ordered_consumer_reads_on_from_each_reset_in_order(
    setup: Setup, seed: int
) -> None:
    rng, seen, end, resets = random.Random(seed), Seen(), 0, set[int]()
    await setup.join("x", seen, ordered=True)
    for _ in range(25):
        count = rng.randrange(4)
        await setup.brokers.put(Q0, [str(end + number) for number in range(count)])
        end += count
        if rng.random() < 0.4:
            last = rng.randint(0, end)
            resets.add(last)
            setup.group.reset(Q0, last, notifies=rng.random() < 0.7)
        await setup.clock.advance(rng.choice((0, 0, 0.1, 2, 6)))
    await setup.brokers.put(Q0, [str(end)])
    end += 1
    await setup.until(lambda: setup.group.offsets.get(Q0) == end)
    offsets = [int(body) for body in seen.bodies]
    assert all(after == before + 1 or after in resets for before, after in pairwise(offsets))
    assert offsets[last - end :] == list(range(last, end))


# --- by real agents -------------------------------------------------------------------------------------------


def route_with(*agents: ConsumerAgent) -> TopicRoute:
    """``orders`` on broker a: the first agent is that of the master, the others of slaves."""
    route = route_of("orders", {"a": 2}, ids=range(len(agents)))
    data = route.broker_datas[0]
    replicas = tuple(
        replace(replica, agent_addr=agent.addr) for replica, agent in zip(data.replicas, agents, strict=True)
    )
    return replace(route, broker_datas=(replace(data, replicas=replicas),))


async def reset(agent: ConsumerAgent, offset: int, *, group: str = "billing") -> int:
    """Reset queue 0 at an agent; return the epoch."""
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        request = wire.ResetOffsetsRequest(
            group=group, topic="orders", queues=[wire.QueueReset(queue_id=0, offset=offset)]
        )
        return (await OffsetServiceStub(channel).ResetOffsets(request)).offsets[0].epoch


async def nothing_to_commit(*_: object) -> dict[object, object]:
    return {}


def committed(agent: ConsumerAgent) -> int | None:
    return agent.offsets.get("billing", [QueueKey("orders", 0)]).get(QueueKey("orders", 0))


async def test_the_owner_of_a_queue_follows_within_a_second_of_the_agents_notice(clock: ManualClock) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        await setup.brokers.put(Q0, numbers(20))
        seen = Seen()
        await setup.join("x", seen, make_coordination=None)
        await eventually(lambda: committed(agent) == 20, clock=clock)
        began = clock.monotonic()
        await reset(agent, 15)
        await eventually(lambda: len(seen.bodies) == 25, clock=clock)
        assert clock.monotonic() - began < FOLLOW_SECONDS
        assert seen.bodies[20:] == numbers(20)[15:]
        await eventually(lambda: committed(agent) == 20, clock=clock)


async def test_an_agent_that_crashes_after_a_reset_finds_it_stored_and_the_consumer_follows_when_it_is_back(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with consumer_agents("a", clock=clock) as (agent,), consumer_setup(clock) as setup:
        setup.routes.set(route_with(agent))
        agent.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        await setup.brokers.put(Q0, numbers(20))
        seen = Seen()
        await setup.join("x", seen, make_coordination=None)
        await eventually(lambda: committed(agent) == 20, clock=clock)
        with monkeypatch.context() as silent:
            silent.setattr(AgentsStream, "notify_reset", lambda *_: None)
            await reset(agent, 15)
        # Its commits would show the reset, too.
        monkeypatch.setattr(OffsetCommitter, "commit", nothing_to_commit)
        await agent.stop()
        await flow(clock, 2)
        await agent.start()
        assert committed(agent) == 15
        began = clock.monotonic()
        await eventually(lambda: len(seen.bodies) == 25, clock=clock)
        assert clock.monotonic() - began < 15
        assert seen.bodies[20:] == numbers(20)[15:]


async def test_a_reset_at_a_slaves_agent_while_the_master_is_down_reaches_the_consumer_and_stays(
    clock: ManualClock,
) -> None:
    async with consumer_agents("a", "s", clock=clock) as (master, slave), consumer_setup(clock) as setup:
        setup.routes.set(route_with(master, slave))
        for each in (master, slave):
            each.ends.table |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 100}
        slave.is_master = False
        await setup.brokers.put(Q0, numbers(20))
        await setup.brokers.put(Q0, numbers(20), broker_id=1)
        seen = Seen()
        await setup.join("x", seen, make_coordination=None)
        await eventually(lambda: committed(master) == 20, clock=clock)
        await master.stop()
        await flow(clock, 1)
        epoch = await reset(slave, 15)
        await eventually(lambda: len(seen.bodies) >= 25, clock=clock)
        assert seen.bodies[20:25] == numbers(20)[15:]
        await master.start()
        # What the slave's agent hands over, and the consumer's own commits, are of the reset's epoch.
        await eventually(lambda: master.offsets.epoch("billing", QueueKey("orders", 0)) == epoch, clock=clock)
        assert master.offsets.commit("billing", {QueueKey("orders", 0): 99}, epochs={QueueKey("orders", 0): 0}) != {}
