"""A consumer's place in its group, at real agents."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pointsman.daemon.rpc.handler_table import Write
from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.groups.group_servicer import ConsumerGroups
from pointsman_agent.groups.group_watches import GroupWatches
from pointsman_client.core.allocation import AllocationStrategy, Averagely, AveragelyByCircle, ConsistentHash
from pointsman_client.core.rebalance import Members
from pointsman_client.pointsman_grpc.agents.group_settings import own_settings
from pointsman_client.pointsman_grpc.agents.member_stream import MemberState
from tests.kit.agent.consumer_agents import (
    ConsumerAgent,
    Routes,
    broker_data,
    consumer_agents,
    flow,
    queues_of,
)
from tests.kit.agent.group_clients import Consumer, pin, pin_queue, reads
from tests.kit.client.agent_members import Join, joined_members
from tests.kit.faults.cut_proxy import cut_proxy
from tests.kit.waiting import eventually

C1, C2, C3 = "10.0.0.1@1", "10.0.0.2@1", "10.0.0.3@1"
WARM_UP = GroupRules(warm_up=30.0)


@pytest.fixture
async def join(clock: ManualClock) -> AsyncIterator[Join]:
    async with joined_members(clock) as one:
        yield one


def has_members(agent: ConsumerAgent, *client_ids: str) -> bool:
    return agent.members() == list(client_ids)


def routes_of(*agents: ConsumerAgent) -> Routes:
    return Routes(*(agent.data() for agent in agents))


async def test_members_of_one_group_learn_of_each_other_when_one_joins_and_when_one_leaves(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", clock=clock) as agents:
        first = await join(C1, routes_of(*agents))
        assert first.membership.members is None
        await eventually(lambda: first.sees(C1), clock=clock)
        second = await join(C2, routes_of(*agents))
        await eventually(lambda: first.sees(C1, C2) and second.sees(C1, C2), clock=clock)
        # The list comes from one agent; the other may learn of the second member later.
        await eventually(lambda: [agent.members() for agent in agents] == [[C1, C2], [C1, C2]], clock=clock)
        await second.membership.leave()
        assert [agent.members() for agent in agents] == [[C1], [C1]]
        await eventually(lambda: first.sees(C1), clock=clock)


async def test_a_member_joins_at_every_replica_and_listens_to_the_first(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("b", "a", "a", clock=clock) as (b, a_slave, a_master):
        replicas = broker_data("a", a_slave.replica(1), a_master.replica(0))
        member = await join(C1, Routes(b.data(), replicas))
        await eventually(lambda: all(agent.members() == [C1] for agent in (b, a_slave, a_master)), clock=clock)
        await eventually(lambda: member.watches == a_master.addr, clock=clock)
        assert [agent.groups.watches.count for agent in (a_master, a_slave, b)] == [1, 0, 0]


async def test_five_agents_restarted_one_after_the_other_change_nothing_for_the_group(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", "c", "d", "e", clock=clock, rules=WARM_UP) as agents:
        members = [await join(client_id, routes_of(*agents)) for client_id in (C1, C2, C3)]
        await eventually(lambda: all(agent.members() == [C1, C2, C3] for agent in agents), clock=clock)
        await flow(clock, 35.0)
        await eventually(lambda: all(each.sees(C1, C2, C3) for each in members), clock=clock)
        for each in members:
            each.changes.clear()
        for agent in agents:
            await agent.restart()
            await eventually(partial(has_members, agent, C1, C2, C3), clock=clock)
            # It is READY again 30 s after its start, and polled every 20 s if it is the first.
            await flow(clock, 31.0)
            await eventually(lambda: all(each.watches == agents[0].addr for each in members), clock=clock)
        assert [each.changes for each in members] == [[], [], []]
        assert all(set(each.broken) == {agent.addr for agent in agents} for each in members)


async def test_nothing_is_reported_while_the_only_agent_warms_up(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock, rules=WARM_UP) as agents:
        member = await join(C1, routes_of(*agents))
        await eventually(lambda: agents[0].members() == [C1] and member.watches == agents[0].addr, clock=clock)
        await flow(clock, 20.0)
        assert member.membership.members is None
        assert member.changes == []
        await eventually(lambda: member.sees(C1), clock=clock)


async def test_the_last_list_stays_while_no_agent_is_there(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", "b", clock=clock) as agents:
        member = await join(C1, routes_of(*agents))
        await eventually(lambda: member.sees(C1), clock=clock)
        for agent in agents:
            await agent.stop()
        await flow(clock, 35.0)
        assert member.sees(C1)
        assert len(member.changes) == 1
        assert {member.stands(agent) for agent in agents} == {MemberState.UNREACHABLE}


async def test_an_agent_that_drains_is_passed_over_and_listened_to_again_when_it_is_ready(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", clock=clock, rules=WARM_UP) as agents:
        member = await join(C1, routes_of(*agents))
        await flow(clock, 35.0)
        await eventually(lambda: member.watches == agents[0].addr, clock=clock)
        await agents[0].groups.drain()
        await eventually(lambda: member.watches == agents[1].addr, clock=clock)
        agents[0].groups.resume()
        await flow(clock, 20.0)
        assert member.watches == agents[1].addr
        await flow(clock, 45.0)
        assert member.watches == agents[0].addr
        assert member.changes == [Members((C1,))]


async def test_a_member_that_breaks_off_is_back_within_the_grace_of_its_agent(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        first = await join(C1, routes_of(*agents))
        second = await join(C2, routes_of(*agents))
        await eventually(lambda: first.sees(C1, C2) and second.sees(C1, C2), clock=clock)
        second.changes.clear()
        await first.links.remove(agents[0].addr, timeout_seconds=1.0)
        await eventually(lambda: first.broken, clock=clock)
        await eventually(lambda: first.stands(agents[0]) == MemberState.MEMBER, clock=clock)
        await flow(clock, 5.0)
        assert agents[0].members() == [C1, C2]
        assert second.changes == []


async def test_a_list_from_before_this_client_was_registered_is_not_used(clock: ManualClock, join: Join) -> None:
    rules = GroupRules(warm_up=0.0, notices=NoticeRules(hold_down=5.0))
    async with consumer_agents("a", clock=clock, rules=rules) as agents:
        await join(C1, routes_of(*agents))
        await eventually(lambda: agents[0].members() == [C1], clock=clock)
        second = await join(C2, routes_of(*agents))
        await eventually(lambda: agents[0].members() == [C1, C2] and second.watches == agents[0].addr, clock=clock)
        await eventually(lambda: second.sees(C1, C2), clock=clock)
        assert second.changes == [Members((C1, C2))]


async def test_heartbeats_keep_a_member_and_a_shorter_expiry_makes_them_more_frequent(
    clock: ManualClock, join: Join
) -> None:
    rules = GroupRules(warm_up=0.0, expiry=12.0, scan_interval=1.0)
    async with consumer_agents("a", clock=clock, rules=rules) as agents:
        await join(C1, routes_of(*agents))
        await eventually(lambda: agents[0].members() == [C1], clock=clock)
        before = sum(agents[0].groups.tallies.beats.values())
        await flow(clock, 60.0)
        assert agents[0].members() == [C1]
        assert 20 <= sum(agents[0].groups.tallies.beats.values()) - before <= 26


async def test_a_changed_subscription_is_sent_immediately(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        member = await join(C1, routes_of(*agents))
        await eventually(lambda: member.sees(C1), clock=clock)
        member.subscriptions["orders"] = "a || b"
        member.membership.subscriptions_changed()
        started = clock.monotonic()

        def is_known() -> bool:
            (facts,) = agents[0].groups.core.members("g")
            return facts.subscription.subscriptions[0].expression == "a || b"

        await eventually(is_known, clock=clock)
        assert clock.monotonic() - started < 2.0


async def test_members_that_subscribe_differently_are_warned_once(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", "b", clock=clock) as agents:
        first = await join(C1, routes_of(*agents))
        await eventually(lambda: first.sees(C1), clock=clock)
        second = await join(C2, routes_of(*agents), topics={"orders": "a"})
        await eventually(lambda: second.membership.is_conflicting, clock=clock)
        await flow(clock, 31.0)
        assert first.membership.is_conflicting
        warned = [r for r in caplog.records if "differ from its oldest member" in r.getMessage()]
        assert len(warned) == 2
        second.subscriptions["orders"] = "*"
        second.membership.subscriptions_changed()
        await eventually(lambda: not second.membership.is_conflicting, clock=clock)
        await flow(clock, 31.0)
        assert not first.membership.is_conflicting


def states(
    strategy: AllocationStrategy, *, clock: ManualClock, is_ordered: bool = False, age: float = 0.0
) -> wire.MemberSettings:
    return own_settings(strategy, is_ordered=is_ordered, started_at=clock.utc_now() - timedelta(seconds=age))


async def test_a_younger_member_divides_queues_by_the_strategy_of_the_oldest_one_and_both_name_it(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", "b", clock=clock) as agents:
        first = await join(C2, routes_of(*agents), settings=states(Averagely(), clock=clock, age=60.0))
        second = await join(C1, routes_of(*agents), settings=states(ConsistentHash(), clock=clock))
        await eventually(lambda: first.sees(C1, C2) and second.sees(C1, C2), clock=clock)
        for member in (first, second):
            described = member.membership.describe()
            assert (described["oldestMember"], described["strategyInForce"]) == (C2, "AVG")
            assert (described["standsAside"], described["conflictingSubscriptions"]) == (False, False)
            assert described["differing"] == {
                C1: {"in": ["strategy"], "strategy": 'CONSISTENT_HASH {"virtual_nodes":10}', "standsAside": False}
            }
        text = f"members of group g differ from its oldest member {C2} (strategy AVG): {C1}: strategy (CONSISTENT_HASH"
        assert len([r for r in caplog.records if r.getMessage().startswith(text)]) == 2
        await first.membership.leave()
        await eventually(lambda: second.sees(C1), clock=clock)
        assert second.membership.describe()["strategyInForce"] == 'CONSISTENT_HASH {"virtual_nodes":10}'
        assert "members of group g have the same settings again" in caplog.text


async def test_a_member_that_cannot_follow_the_oldest_one_stands_aside_until_that_has_left(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", "b", clock=clock) as agents:
        first = await join(C1, routes_of(*agents), settings=states(Averagely(), clock=clock, age=60.0))
        second = await join(
            C2, routes_of(*agents), settings=states(Averagely(), is_ordered=True, clock=clock), topics={"orders": "a"}
        )
        await eventually(lambda: second.sees(C1), clock=clock)
        members = second.membership.members
        assert members is not None
        assert members.stands_aside(C2)
        assert members.has(C2)
        await eventually(lambda: first.sees(C1), clock=clock)
        text = (
            f"this member {C2} of group g holds no queues, since it differs from the oldest member {C1} in: "
            "subscriptions, ordered;"
        )
        assert text in caplog.text
        await first.membership.leave()
        await eventually(lambda: second.sees(C2), clock=clock)
        assert f"this member {C2} of group g takes part again" in caplog.text


async def test_the_oldest_member_is_the_same_after_all_agents_restarted_and_all_members_rejoined(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", clock=clock, rules=WARM_UP) as agents:
        members = [
            await join(client_id, routes_of(*agents), settings=states(strategy, clock=clock, age=age))
            for client_id, strategy, age in (
                (C1, ConsistentHash(), 1.0),
                (C2, Averagely(), 90.0),
                (C3, AveragelyByCircle(), 5.0),
            )
        ]
        await flow(clock, 31.0)
        await eventually(lambda: all(each.sees(C1, C2, C3) for each in members), clock=clock)
        for agent in agents:
            await agent.stop()
            await flow(clock, 5.0)
            await agent.start()
            # A channel connects again in real time, which the warm-up by the manual clock does not wait for.
            await eventually(partial(has_members, agent, C1, C2, C3), clock=clock, step=0.01)
            await flow(clock, 40.0)
            for each in members:
                assert each.membership.describe()["oldestMember"] == C2
                assert each.membership.describe()["strategyInForce"] == "AVG"


async def test_a_broadcasting_member_beside_older_clustering_ones_stands_aside_without_watching_the_group(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        first = await join(C1, routes_of(*agents), settings=states(Averagely(), clock=clock, age=60.0))
        second = await join(
            C2,
            routes_of(*agents),
            settings=states(Averagely(), clock=clock),
            model=wire.MESSAGE_MODEL_BROADCASTING,
        )
        await eventually(lambda: second.membership.describe()["standsAside"] is True, clock=clock)
        await eventually(lambda: first.sees(C1), clock=clock)  # sent on another stream, in any order
        assert second.watches == ""
        assert second.membership.problems() == [f"it holds no queues, because it differs from {C1} in: message model"]
        assert (
            f"of group g holds no queues, since it differs from the oldest member {C1} in: message model" in caplog.text
        )
        assert "subscriptions" not in caplog.text
        await first.membership.leave()
        await flow(clock, 31.0)
        assert second.membership.members is None


async def test_agents_come_and_go_with_the_routes(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", "b", "c", clock=clock) as (a, b, c):
        member = await join(C1, routes_of(a, b))
        await eventually(lambda: a.members() == b.members() == [C1], clock=clock)
        member.routes.brokers = (b.data(), c.data())
        await flow(clock, 31.0)
        assert (a.members(), b.members(), c.members()) == ([], [C1], [C1])
        member.routes.brokers = (a.data(), b.data(), c.data())
        member.membership.routes_changed()
        await eventually(lambda: a.members() == [C1], clock=clock)
        assert member.changes == [Members((C1,))]


async def test_a_link_to_an_agent_removed_from_the_routes_stays_until_its_queues_are_released(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        member = await join(C1, routes_of(a, b))
        await eventually(lambda: a.members() == b.members() == [C1], clock=clock)
        link = member.links.to(a.addr)
        member.routes.brokers = (b.data(),)
        member.membership.routes_changed()
        await eventually(lambda: a.members() == [], clock=clock)
        assert member.links.to(a.addr) is link
        await flow(clock, 61.0)
        assert member.links.to(a.addr) is not link


async def test_agents_of_routes_that_arrive_after_the_start_are_joined_immediately(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        member = await join(C1, Routes())
        await flow(clock, 30.0)
        member.routes.brokers = (b.data(),)
        await flow(clock, 1.0)
        await eventually(lambda: b.members() == [C1] and member.sees(C1), clock=clock)
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        member = await join(C2, routes_of(b))
        await flow(clock, 1.0)
        member.routes.brokers = (a.data(), b.data())
        await flow(clock, 1.0)
        await eventually(lambda: a.members() == [C2], clock=clock)
        member.membership.routes_changed()
        await eventually(lambda: member.watches == a.addr, clock=clock)


async def test_an_agent_that_is_new_in_the_routes_is_not_used_before_all_members_know_it(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        early = await join(C1, routes_of(b))
        late = await join(C2, routes_of(b))
        await flow(clock, 11.0)
        await eventually(lambda: early.sees(C1, C2) and late.sees(C1, C2), clock=clock)
        early.changes.clear()
        early.routes.brokers = (a.data(), b.data())
        early.membership.routes_changed()
        await flow(clock, 30.0)
        assert a.members() == [C1]
        late.routes.brokers = (a.data(), b.data())
        late.membership.routes_changed()
        await flow(clock, 90.0)
        assert early.watches == late.watches == a.addr
        assert early.changes == []


async def test_an_agent_that_just_recovered_is_not_relied_on_while_it_is_newer_in_the_routes_than_another(
    clock: ManualClock, join: Join
) -> None:
    async with (
        consumer_agents("a", clock=clock, rules=WARM_UP, keeps_lists=True) as (new,),
        consumer_agents("b", clock=clock) as (known,),
    ):
        first, second = await join(C1, routes_of(known)), await join(C2, routes_of(known))
        await flow(clock, 11.0)
        await eventually(lambda: first.sees(C1, C2), clock=clock)
        await known.stop()
        first.routes.brokers = (new.data(), known.data())
        first.membership.routes_changed()
        await eventually(lambda: new.members() == [C1] and first.watches == new.addr, clock=clock)
        await flow(clock, 10.0)
        assert new.groups.core.state_of("g").value == "recovered"
        assert first.sees(C1, C2)
        second.routes.brokers = first.routes.brokers
        second.membership.routes_changed()
        await eventually(lambda: new.members() == [C1, C2], clock=clock)


async def test_a_client_id_that_another_process_uses_is_released_and_logged_once(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", "b", clock=clock) as agents:
        member = await join(C1, routes_of(*agents))
        await eventually(lambda: member.sees(C1), clock=clock)
        others = [Consumer(agent.addr, C1, reads("g")) for agent in agents]
        for other in others:
            await other.beat()
        await eventually(lambda: all(member.stands(agent) == MemberState.TAKEN_OVER for agent in agents), clock=clock)
        assert member.membership.is_taken_over
        assert member.membership.members == Members(())
        await flow(clock, 65.0)
        assert [r.levelno for r in caplog.records if "another process" in r.getMessage()] == [logging.ERROR]
        assert member.membership.describe()["takenOver"] is True
        assert member.membership.problems() == [f"another process uses client id {C1}"]
        for other in others:
            assert (await other.beat()).status == wire.MEMBERSHIP_STATUS_OK
            await other.crash()
        await flow(clock, 40.0)
        await eventually(lambda: member.sees(C1), clock=clock)
        assert not member.membership.is_taken_over
        assert member.membership.problems() == []


async def test_one_client_id_in_two_groups_of_one_process_is_a_member_of_both(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", "b", clock=clock, rules=WARM_UP) as agents:
        first = await join(C1, routes_of(*agents), group="ga")
        second = await join(C1, routes_of(*agents), group="gb")
        await flow(clock, 35.0)
        await eventually(lambda: first.sees(C1) and second.sees(C1), clock=clock)
        for agent in agents:
            await agent.restart()
        both = [([C1], [C1])] * 2
        await eventually(lambda: [(each.members("ga"), each.members("gb")) for each in agents] == both, clock=clock)
        assert not first.membership.is_taken_over
        assert not second.membership.is_taken_over
        await second.membership.leave()
        await flow(clock, 5.0)
        assert [(agent.members("ga"), agent.members("gb")) for agent in agents] == [([C1], [])] * 2
        assert first.sees(C1)


@pytest.mark.parametrize("is_rebalanced", [True, False])
async def test_without_notices_a_member_learns_of_the_others_by_its_rebalance_alone(
    clock: ManualClock, join: Join, is_rebalanced: bool
) -> None:
    rules = GroupRules(warm_up=0.0, notices_of={"g": NoticeRules(notify=False)})
    async with consumer_agents("a", "b", clock=clock, rules=rules) as agents:
        first = await join(C1, routes_of(*agents))
        # The first list lacks this member: it queries the agent again once the agent has registered it.
        await eventually(lambda: first.sees(C1), clock=clock)
        second = await join(C2, routes_of(*agents))
        await eventually(lambda: second.sees(C1, C2), clock=clock)
        await flow(clock, 5.0)
        assert first.sees(C1)
        if is_rebalanced:
            await first.membership.refresh_members()
        assert first.sees(C1, C2) is is_rebalanced


async def test_a_list_from_before_the_member_was_accepted_that_arrives_later_is_queried_again(
    clock: ManualClock, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_listed, may_arrive = asyncio.Event(), asyncio.Event()
    keep_membership, watch = ConsumerGroups.keep_membership, GroupWatches.watch

    async def accept_after_the_list(self: ConsumerGroups, *arguments: Any) -> None:
        await is_listed.wait()
        await keep_membership(self, *arguments)

    async def list_late(self: GroupWatches, group: str, write: Write, *, peer: str) -> None:
        async def write_late(message: bytes) -> None:
            is_listed.set()
            await may_arrive.wait()
            await write(message)

        await watch(self, group, write_late, peer=peer)

    monkeypatch.setattr(ConsumerGroups, "keep_membership", accept_after_the_list)
    monkeypatch.setattr(GroupWatches, "watch", list_late)
    rules = GroupRules(warm_up=0.0, notices_of={"g": NoticeRules(notify=False)})
    async with consumer_agents("a", clock=clock, rules=rules) as (agent,):
        member = await join(C1, routes_of(agent))
        await eventually(lambda: member.stands(agent) == MemberState.MEMBER, clock=clock)
        assert member.membership.members is None
        may_arrive.set()
        await eventually(lambda: member.sees(C1), clock=clock, seconds=20.0)


async def test_a_notice_that_was_lost_is_made_up_for_by_the_next_rebalance(
    clock: ManualClock, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        first = await join(C1, routes_of(a))
        await eventually(lambda: first.sees(C1), clock=clock)
        with monkeypatch.context() as lossy:
            lossy.setattr(a.groups.watches, "notify", lambda _changes: None)
            second = await join(C2, routes_of(a))
            await eventually(lambda: second.sees(C1, C2), clock=clock)
        assert first.sees(C1)
        await first.membership.refresh_members()
        assert first.sees(C1, C2)
        changes = len(first.changes)
        # What is known is not sent again, and a later notice is not older than what was queried.
        await first.membership.refresh_members()
        assert len(first.changes) == changes
        await second.membership.leave()
        await eventually(lambda: first.sees(C1), clock=clock)


async def test_a_query_that_fails_keeps_the_members(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as (a,), cut_proxy(a.addr) as proxy:
        routed = replace(a.replica(), agent_addr=proxy.addr)
        member = await join(C1, Routes(broker_data("a", routed)))
        await eventually(lambda: member.sees(C1), clock=clock)
        proxy.cut()
        async with asyncio.timeout(10.0):
            await member.membership.refresh_members()
        assert member.sees(C1)


async def test_a_superseded_member_does_not_remove_the_process_that_replaced_it(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        member = await join(C1, routes_of(*agents))
        await eventually(lambda: member.sees(C1), clock=clock)
        other = Consumer(agents[0].addr, C1, reads("g"))
        await other.beat()
        await eventually(lambda: member.membership.is_taken_over, clock=clock)
        await member.membership.leave()
        await flow(clock, 5.0)
        assert agents[0].members() == [C1]
        await other.crash()


async def test_an_agent_that_does_not_respond_to_heartbeats_is_noticed_though_its_connection_is_open(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", clock=clock) as (a,), cut_proxy(a.addr) as proxy:
        routed = replace(a.replica(), agent_addr=proxy.addr)
        member = await join(C1, Routes(broker_data("a", routed)))
        await eventually(lambda: member.sees(C1), clock=clock)
        proxy.cut()
        await flow(clock, 65.0)
        assert member.broken[:1] == [proxy.addr]
        agents = member.membership.describe()["agents"]
        assert isinstance(agents, dict)
        assert "no response to a heartbeat" in agents[proxy.addr]["error"]
        (problem,) = member.membership.problems()
        assert problem.startswith(f"not a member at any agent: {proxy.addr}: {proxy.addr}: ")


async def test_a_pin_is_part_of_the_list(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        member = await join(C1, routes_of(*agents))
        operator = Consumer(agents[0].addr, C2, reads("g"))
        await operator.beat()
        await eventually(lambda: member.sees(C1, C2), clock=clock)
        await operator.stub.PinGroup(pin("g", ["10.0.0.2"], seconds=60))
        await eventually(lambda: member.membership.members == Members((C1, C2), pinned=(C2,)), clock=clock)
        await flow(clock, 60.0)
        await eventually(lambda: member.membership.members == Members((C1, C2)), clock=clock)
        await operator.crash()


async def test_pins_of_queues_are_part_of_the_list_and_follow_a_member_that_leaves_and_returns(
    clock: ManualClock, join: Join
) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        settings = states(Averagely(), clock=clock)
        member = await join(C1, routes_of(*agents), settings=settings)
        subscription = reads("g")
        subscription.settings.CopyFrom(settings)
        operator = Consumer(agents[0].addr, C2, subscription)
        await operator.beat()
        await eventually(lambda: member.sees(C1, C2), clock=clock)
        await operator.stub.PinQueue(pin_queue("g", "10.0.0.2", queue_id=3))
        [queue] = queues_of("a", 3)

        def pins() -> object:
            members = member.membership.members
            return None if members is None else members.queue_pins

        await eventually(lambda: pins() == ((queue, C2),), clock=clock)
        assert member.membership.describe()["queuePins"] == {str(queue): C2}
        await operator.leave()
        await eventually(lambda: pins() == (), clock=clock)
        await operator.beat()
        await eventually(lambda: pins() == ((queue, C2),), clock=clock)
        await flow(clock, 60.0)
        await eventually(lambda: pins() == (), clock=clock)
        await operator.crash()


async def test_a_broadcasting_group_is_joined_and_not_watched(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        member = await join(C1, routes_of(*agents), model=wire.MESSAGE_MODEL_BROADCASTING)
        await eventually(lambda: agents[0].members() == [C1], clock=clock)
        await flow(clock, 31.0)
        assert agents[0].groups.watches.count == 0
        assert member.membership.members is None


async def test_an_agent_that_refuses_is_distinguished_and_retried_seldom(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        member = await join("no-address", routes_of(*agents))
        await eventually(lambda: member.stands(agents[0]) == MemberState.REFUSED, clock=clock)
        refused = agents[0].server.metrics.rpcs.labels("KeepMembership", "INVALID_ARGUMENT")
        await flow(clock, 60.0)
        assert 1 <= refused.count <= 3
        logged = [r for r in caplog.records if "refused" in r.getMessage() and r.levelno == logging.WARNING]
        assert logged
        assert "client_id must be address@instance" in logged[0].getMessage()


async def test_an_agent_that_hangs_is_passed_over(clock: ManualClock, join: Join) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with consumer_agents("b", clock=clock) as (b,):
            hanging = ConsumerAgent("a", clock=clock)
            hanging.addr = f"127.0.0.1:{silent.getsockname()[1]}"
            member = await join(C1, routes_of(hanging, b))
            await eventually(lambda: member.sees(C1), clock=clock)
            assert member.watches == b.addr


async def test_an_error_of_a_background_task_is_logged_and_the_task_continues(
    clock: ManualClock, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        member = await join(C1, routes_of(a))
        await eventually(lambda: member.sees(C1), clock=clock)
        right = member.subscriptions.pop("orders")
        member.subscriptions["orders"] = 7  # type: ignore[assignment]  # an internal error
        member.membership.subscriptions_changed()
        await eventually(
            lambda: "task pointsman-heartbeat-g" in caplog.text and "ended with" in caplog.text, clock=clock
        )
        member.subscriptions["orders"] = right
        await eventually(lambda: member.stands(a) == MemberState.MEMBER, clock=clock)


async def test_a_leave_ends_though_an_agent_does_not_respond(clock: ManualClock, join: Join) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with consumer_agents("a", "b", clock=clock) as (a, b):
            hanging = ConsumerAgent("c", clock=clock)
            hanging.addr = f"127.0.0.1:{silent.getsockname()[1]}"
            member = await join(C1, routes_of(a, b, hanging))
            await eventually(lambda: a.members() == b.members() == [C1], clock=clock)
            async with asyncio.timeout(10):
                await member.membership.leave()
            assert a.members() == b.members() == []


async def test_a_membership_that_has_left_reports_nothing_more(clock: ManualClock, join: Join) -> None:
    async with consumer_agents("a", clock=clock) as agents:
        member = await join(C1, routes_of(*agents))
        await eventually(lambda: member.sees(C1), clock=clock)
        await member.membership.leave()
        member.membership.subscriptions_changed()
        member.membership.routes_changed()
        await member.membership.start()
        await flow(clock, 31.0)
        assert agents[0].members() == []
        assert len(member.changes) == 1
        assert agents[0].groups.watches.count == 0
