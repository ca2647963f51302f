"""WatchGroup over real gRPC: what is sent to members, when, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from tests.kit.agent.group_clients import Consumer, GroupWatch, pin, reads
from tests.kit.agent.services import BOOT, AgentServices, agent_services
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

A, B, C = "10.0.0.1@a", "10.0.0.2@b", "10.0.0.3@c"
WARMING, READY, DRAINING = wire.GROUP_STATE_WARMING, wire.GROUP_STATE_READY, wire.GROUP_STATE_DRAINING
MOMENT = 0.05
"""Slightly more than the pause between two rounds of notices."""


@pytest.fixture
async def agent(clock: ManualClock) -> AsyncIterator[AgentServices]:
    async with agent_services(clock=clock) as agent:
        await clock.advance(MOMENT)
        yield agent


@pytest.fixture
async def channel(agent: AgentServices) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        yield channel


async def joined(agent: AgentServices, *client_ids: str, group: str = "g") -> list[Consumer]:
    consumers = [Consumer(agent.addr, client_id) for client_id in client_ids]
    for consumer in consumers:
        await consumer.beat(reads(group))
    return consumers


async def gone(*consumers: Consumer) -> None:
    await asyncio.gather(*(consumer.crash() for consumer in consumers))


async def test_a_watch_begins_with_the_full_membership_even_of_an_empty_group(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    watch = GroupWatch(channel, "g")
    first = await watch.news()
    assert (first.group, first.state, list(first.client_ids)) == ("g", READY, [])
    assert (first.revision.boot, first.message_model) == (BOOT, wire.MESSAGE_MODEL_UNSPECIFIED)
    consumers = await joined(agent, A)
    second = await watch.news()
    assert list(second.client_ids) == [A]
    assert second.message_model == wire.MESSAGE_MODEL_CLUSTERING
    assert second.revision.counter > first.revision.counter
    await clock.advance(MOMENT)
    consumers += await joined(agent, B)
    assert await watch.ids() == [A, B]
    assert await GroupWatch(channel, "g").ids() == [A, B]
    await gone(*consumers)


async def test_a_leave_reaches_the_last_member_within_a_second(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    consumers = await joined(agent, A, B, C)
    watches = [GroupWatch(channel, "g", each.client_id) for each in consumers]
    for watch in watches:
        assert await watch.ids() == [A, B, C]
    # Members wait for as long as the clock still has to advance.
    await consumers[1].leave()
    notices = asyncio.gather(*(watch.ids() for watch in watches))
    await clock.advance(0.9)
    assert await notices == [[A, C]] * 3
    await gone(*consumers)


async def test_a_crash_reaches_the_members_when_the_grace_is_over(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    consumers = await joined(agent, A, B)
    watch = GroupWatch(channel, "g")
    assert await watch.ids() == [A, B]
    await consumers[1].crash()
    await eventually(lambda: not agent.groups.core.members("g")[1].is_connected)
    await clock.advance(2.0)
    assert await watch.ids() == [A]
    await gone(consumers[0])


async def test_a_watching_member_is_not_notified_of_what_does_not_change_its_group(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    consumers = await joined(agent, A)
    watch = GroupWatch(channel, "g")
    await watch.news()
    sent = agent.groups.watches.sent
    await consumers[0].beat(reads("g", "orders", "refunds"))
    others = await joined(agent, B, group="h")
    await clock.advance(1.0)
    assert agent.groups.watches.sent == sent
    await gone(*consumers, *others)


def all_are_notified(agent: AgentServices) -> bool:
    revision = agent.groups.core.revision("g")
    return all(watcher.sent_counter == revision for watcher in agent.groups.watches._watched["g"].watchers)


async def rolled(agent: AgentServices, clock: ManualClock, count: int, *, renamed: bool) -> None:
    """Restart ``count`` consumers one by one, each down for 3 s, with 2 s in between; then let all settle."""
    consumers = await joined(agent, *(f"10.0.0.{i}@c" for i in range(count)))
    await clock.advance(30.0)
    await eventually(lambda: all_are_notified(agent))
    sent = agent.groups.watches.sent
    for i, consumer in enumerate(consumers):
        await consumer.leave()
        await consumer.crash()
        await clock.advance(3.0)
        consumers[i] = Consumer(agent.addr, f"10.0.0.{i}@{'d' if renamed else 'c'}")
        await consumers[i].beat(reads("g"))
        await clock.advance(2.0)
        if i % 10 == 9:
            await asyncio.gather(*(each.beat() for each in consumers))
    await clock.advance(10.0)
    await eventually(lambda: all_are_notified(agent))
    agent.groups.watches.sent -= sent
    await gone(*consumers)


@pytest.mark.parametrize(
    ("hold_down", "renamed", "most"),
    [
        pytest.param(0.0, True, 100, id="none: each leave and each join"),
        # 50 consumers take 250 s: a window of 10 s begins with the first change after the one before.
        pytest.param(10.0, True, 26, id="10 s, new client ids"),
        pytest.param(10.0, False, 0, id="10 s, the same ids: back before any notice"),
    ],
)
async def test_fifty_rolling_consumers_give_few_notices_with_a_hold_down(
    clock: ManualClock, hold_down: float, renamed: bool, most: int
) -> None:
    rules = GroupRules(warm_up=0.0, notices=NoticeRules(hold_down=hold_down))
    async with agent_services(clock=clock, rules=rules) as agent, grpc.aio.insecure_channel(agent.addr) as channel:
        await clock.advance(MOMENT)
        watch = GroupWatch(channel, "g")
        await watch.news()
        reading = asyncio.create_task(watch.call.read())
        await rolled(agent, clock, 50, renamed=renamed)
        reading.cancel()
        assert most * 0.8 <= agent.groups.watches.sent <= most


async def test_watchers_of_a_warming_agent_are_notified_when_it_is_ready(clock: ManualClock) -> None:
    rules = GroupRules(notices=NoticeRules(hold_down=300.0))
    async with agent_services(clock=clock, rules=rules) as agent, grpc.aio.insecure_channel(agent.addr) as channel:
        first = await GroupWatch(channel, "quiet").news()
        assert first.state == WARMING
        watch, quiet = GroupWatch(channel, "g"), GroupWatch(channel, "quiet")
        await watch.news()
        await quiet.news()
        consumers = await joined(agent, A, B)
        await clock.advance(29.0)
        state = agent.groups.core.state
        assert state.value == "warming"
        await clock.advance(2.0)
        while (update := await watch.news()).state == WARMING:
            pass
        # READY includes what a hold-down held back.
        assert (update.state, list(update.client_ids)) == (READY, [A, B])
        response = await quiet.news()
        assert (response.state, list(response.client_ids)) == (READY, [])
        assert response.revision.counter > first.revision.counter
        await gone(*consumers)


async def test_broadcasting_groups_and_groups_with_notify_off_get_no_notices(clock: ManualClock) -> None:
    rules = GroupRules(warm_up=0.0, notices_of={"mute": NoticeRules(notify=False)})
    async with agent_services(clock=clock, rules=rules) as agent, grpc.aio.insecure_channel(agent.addr) as channel:
        await clock.advance(MOMENT)
        broadcasting = wire.MESSAGE_MODEL_BROADCASTING
        first = Consumer(agent.addr, A)
        await first.beat(reads("all", model=broadcasting), reads("mute"))
        watches = [GroupWatch(channel, "all"), GroupWatch(channel, "mute")]
        for watch in watches:
            assert await watch.ids() == [A]
        sent = agent.groups.watches.sent
        second = Consumer(agent.addr, B)
        await second.beat(reads("all", model=broadcasting), reads("mute"))
        await clock.advance(5.0)
        assert agent.groups.watches.sent == sent
        # A new watch gets the current members.
        assert await GroupWatch(channel, "mute").ids() == [A, B]
        await gone(first, second)


async def test_a_watcher_that_does_not_read_gets_the_latest_and_delays_no_other(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    slow, quick = GroupWatch(channel, "g"), GroupWatch(channel, "g")
    await slow.news()
    await quick.news()
    # Long ids fill what gRPC and the sockets buffer for a stream that is not read.
    consumers = await joined(agent, *(f"10.0.{i}.1@{'x' * 230}" for i in range(60)))
    counter = 0
    for i in range(40):
        await clock.advance(MOMENT)
        await consumers[0].beat(reads("other"))
        await clock.advance(MOMENT)
        await consumers[0].beat(reads("g", f"t{i}"))
        await clock.advance(MOMENT)
    last = agent.groups.core.revision("g")
    received = 0
    while counter != last:
        counter, before = (await quick.news()).revision.counter, counter
        assert counter > before
        received += 1
    received_by_slow = [0]
    while received_by_slow[-1] != last:
        received_by_slow.append((await slow.news()).revision.counter)
    assert received_by_slow == sorted(set(received_by_slow))
    assert len(received_by_slow) - 1 <= received + 1
    await gone(*consumers)


async def test_nothing_is_lost_over_a_reconnect(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    consumers = await joined(agent, A, B)
    watch = GroupWatch(channel, "g")
    before = await watch.news()
    watch.call.cancel()
    await eventually(lambda: agent.groups.watches.count == 0)
    await consumers[1].leave()
    await clock.advance(MOMENT)
    again = await GroupWatch(channel, "g").news()
    assert list(again.client_ids) == [A]
    assert again.revision.boot == before.revision.boot
    assert again.revision.counter > before.revision.counter
    await gone(*consumers)


async def test_revisions_of_a_group_that_is_removed_and_comes_back_only_rise(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    counters = []
    for _ in range(3):
        (consumer,) = await joined(agent, A)
        counters.append((await GroupWatch(channel, "g").news()).revision.counter)
        await consumer.leave()
        await clock.advance(MOMENT)
        counters.append((await GroupWatch(channel, "g").news()).revision.counter)
        await consumer.crash()
    assert counters == sorted(set(counters))


async def test_a_pin_is_sent_with_the_membership_and_ends_by_itself(
    agent: AgentServices, channel: grpc.aio.Channel, clock: ManualClock
) -> None:
    consumers = await joined(agent, A, B)
    watch = GroupWatch(channel, "g")
    assert not (await watch.news()).HasField("pinned_until")
    await consumers[0].stub.PinGroup(pin("g", ["10.0.0.2"], seconds=60))
    update = await watch.news()
    assert list(update.pinned_client_ids) == [B]
    assert update.pinned_until.ToDatetime().timestamp() == pytest.approx(
        clock.utc_now().replace(tzinfo=None).timestamp() + 60, abs=1
    )
    await clock.advance(59.0)
    # Pinned members may leave; the pin applies when they come back.
    await consumers[1].leave()
    update = await watch.news()
    assert (list(update.client_ids), list(update.pinned_client_ids)) == ([A], [])
    assert update.HasField("pinned_until")
    await clock.advance(1.0)
    assert not (await watch.news()).HasField("pinned_until")
    await gone(*consumers)


async def test_a_stopping_agent_announces_it_and_ends_the_watches(clock: ManualClock) -> None:
    async with agent_services(clock=clock) as agent, grpc.aio.insecure_channel(agent.addr) as channel:
        await clock.advance(MOMENT)
        consumers = await joined(agent, A)
        watch = GroupWatch(channel, "g")
        await watch.news()
        # grpc.aio gives a message that came before the status only to a pending read.
        last, _ = await asyncio.gather(watch.news(), agent.stop())
        assert (last.state, list(last.client_ids)) == (DRAINING, [A])
        assert await watch.ending() == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
        await gone(*consumers)


async def test_a_stop_does_not_wait_for_a_watcher_that_does_not_read(clock: ManualClock) -> None:
    async with agent_services(clock=clock) as agent, grpc.aio.insecure_channel(agent.addr) as channel:
        consumers = await joined(agent, *(f"10.0.{i}.1@{'x' * 230}" for i in range(60)))
        await clock.advance(MOMENT)
        watch = GroupWatch(channel, "g")
        await watch.news()
        for i in range(40):
            await consumers[0].beat(reads("g" if i % 2 else "other"))
            await clock.advance(MOMENT)
        async with asyncio.timeout(20):
            await agent.stop()
        assert agent.groups.watches.count == 0
        await gone(*consumers)


async def test_more_watches_than_the_bound_are_refused(clock: ManualClock) -> None:
    async with (
        agent_services(clock=clock, max_watchers=1) as agent,
        grpc.aio.insecure_channel(agent.addr) as channel,
    ):
        watch = GroupWatch(channel, "g")
        await watch.news()
        refusal = await refusal_of(GroupWatch(channel, "g").call.read())
        assert (refusal.status, dict(refusal.details.facts)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            {"limit": "watchers", "bound": "1"},
        )
        watch.call.cancel()
        await eventually(lambda: agent.groups.watches.count == 0)
        assert await GroupWatch(channel, "g").ids() == []


async def test_at_the_limit_a_watch_is_ended_in_favour_of_a_connection_with_fewer(clock: ManualClock) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        agent_services(clock=clock, max_watchers=2) as agent,
        grpc.aio.insecure_channel(agent.addr, options=own) as greedy,
        grpc.aio.insecure_channel(agent.addr, options=own) as honest,
    ):
        first = GroupWatch(greedy, "g")
        await first.news()
        latest = GroupWatch(greedy, "g")
        await latest.news()
        assert await GroupWatch(honest, "g").ids() == []
        ended = await refusal_of(latest.call.read())
        assert ended.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "this watch was ended" in ended.message
        assert not first.call.done()
        assert agent.groups.watches.count == 2


@pytest.mark.parametrize(
    ("group", "client_id", "fields"),
    [("", "", ["group", "client_id"]), ("g", "nowhere", ["client_id"]), ("a b", A, ["group"])],
)
async def test_a_watch_that_cannot_be_is_refused_by_field(
    channel: grpc.aio.Channel, group: str, client_id: str, fields: list[str]
) -> None:
    refusal = await refusal_of(GroupWatch(channel, group, client_id).call.read())
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, fields)


async def test_a_new_member_is_shown_when_the_hold_down_ends_and_not_at_the_next_scan(clock: ManualClock) -> None:
    rules = GroupRules(warm_up=0.0, scan_interval=60.0, notices=NoticeRules(hold_down=5.0))
    async with agent_services(clock=clock, rules=rules) as agent:
        (first,) = await joined(agent, "10.0.0.1@1")
        watch = GroupWatch(first.channel, "g")
        assert await watch.ids() == ["10.0.0.1@1"]
        (second,) = await joined(agent, "10.0.0.2@1")
        assert agent.groups.core.membership("g").client_ids == ("10.0.0.1@1",)
        await clock.advance(5.0)
        assert await watch.ids() == ["10.0.0.1@1", "10.0.0.2@1"]
        await gone(first, second)
