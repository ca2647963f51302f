"""KeepMembership and LeaveGroups over real gRPC: who is in a group, and until when."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_rules import GroupRules
from tests.kit.agent.group_clients import Consumer, ending_of, reads
from tests.kit.agent.services import AgentServices, agent_services
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

OK, TAKEN_OVER = wire.MEMBERSHIP_STATUS_OK, wire.MEMBERSHIP_STATUS_TAKEN_OVER
KEEP = "/pointsman.v1.ConsumerGroupService/KeepMembership"


@pytest.fixture
async def agent(clock: ManualClock) -> AsyncIterator[AgentServices]:
    async with agent_services(clock=clock) as agent:
        yield agent


def ids(agent: AgentServices, group: str = "g") -> list[str]:
    return [each.client_id for each in agent.groups.core.members(group)]


async def test_a_client_is_in_the_groups_that_its_last_heartbeat_named(agent: AgentServices) -> None:
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    answer = await consumer.beat(reads("g"), reads("h"))
    assert (answer.status, answer.expiry.seconds, list(answer.conflicting_groups)) == (OK, 120, [])
    assert agent.groups.core.names() == ["g", "h"]
    await consumer.beat(reads("h"))
    assert agent.groups.core.names() == ["h"]
    await consumer.crash()


async def test_a_crashed_client_is_removed_after_the_grace_and_not_before(
    agent: AgentServices, clock: ManualClock
) -> None:
    stays, crashes = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
    await stays.beat(reads("g"))
    await crashes.beat(reads("g"))
    await crashes.crash()
    await eventually(lambda: not agent.groups.core.members("g")[1].is_connected)
    await clock.advance(1.9)
    assert ids(agent) == ["10.0.0.1@a", "10.0.0.2@b"]
    await clock.advance(0.1)
    assert ids(agent) == ["10.0.0.1@a"]
    await stays.crash()


async def test_a_client_that_reconnects_within_the_grace_stays_a_member(
    agent: AgentServices, clock: ManualClock
) -> None:
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    await consumer.beat(reads("g"))
    counter = agent.groups.core.revision("g")
    await consumer.crash()
    await eventually(lambda: not agent.groups.core.members("g")[0].is_connected)
    await clock.advance(1.0)
    back = Consumer(agent.addr, "10.0.0.1@a")
    await back.beat(reads("g"))
    await clock.advance(10.0)
    assert ids(agent) == ["10.0.0.1@a"]
    assert agent.groups.core.revision("g") == counter
    await back.crash()


async def test_a_client_that_is_silent_for_longer_than_the_expiry_is_out_although_its_stream_is_open(
    agent: AgentServices, clock: ManualClock
) -> None:
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    await consumer.beat(reads("g"))
    await clock.advance(120.0)
    assert ids(agent) == ["10.0.0.1@a"]
    await clock.advance(10.0)
    assert ids(agent) == []
    assert (await consumer.beat()).status == OK
    assert ids(agent) == ["10.0.0.1@a"]
    await consumer.crash()


async def test_leaving_a_group_applies_immediately_and_the_end_of_the_stream_changes_nothing_more(
    agent: AgentServices, clock: ManualClock
) -> None:
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    await consumer.beat(reads("g"), reads("h"))
    assert await consumer.leave("h", "unknown") == ["h"]
    assert ids(agent, "h") == []
    assert await consumer.leave() == ["g"]
    assert await consumer.leave() == []
    assert ids(agent) == []
    assert agent.groups.membership_changes() == {"g": (2, 2), "h": (2, 2)}
    await consumer.crash()
    await eventually(lambda: not agent.groups._streams)
    await clock.advance(5.0)
    assert agent.groups.tallies.removals == {
        cause: int(cause.value == "left") * 2 for cause in agent.groups.tallies.removals
    }


async def test_the_same_bytes_after_a_leave_join_again(agent: AgentServices) -> None:
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    await consumer.beat(reads("g"))
    await consumer.leave()
    await consumer.beat()
    assert ids(agent) == ["10.0.0.1@a"]
    await consumer.leave("g")
    await consumer.beat()
    assert ids(agent) == ["10.0.0.1@a"]
    await consumer.crash()


async def test_the_later_of_two_streams_owns_the_client_and_the_older_is_notified(
    agent: AgentServices, clock: ManualClock
) -> None:
    older, newer = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.1@a")
    await older.beat(reads("g"))
    assert (await newer.beat(reads("g"))).status == OK
    # Without a heartbeat; and all later heartbeats change nothing.
    assert (await older.answer()).status == TAKEN_OVER
    for _ in range(2):
        assert (await older.beat(reads("h"))).status == TAKEN_OVER
    await older.crash()
    await clock.advance(60.0)
    assert ids(agent) == ["10.0.0.1@a"]
    assert agent.groups.core.names() == ["g"]
    assert agent.groups.tallies.takeovers == 1
    await newer.crash()


async def test_a_superseded_stream_does_not_own_the_client_again_when_the_later_one_ends(
    agent: AgentServices, clock: ManualClock
) -> None:
    older, newer = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.1@a")
    await older.beat(reads("g"))
    await newer.beat(reads("g"))
    await older.answer()
    await newer.crash()
    await eventually(lambda: not agent.groups.core.members("g")[0].is_connected)
    await clock.advance(2.0)
    assert (await older.beat()).status == TAKEN_OVER
    assert ids(agent) == []
    await older.crash()


async def test_a_stream_that_loses_one_of_its_groups_is_notified_and_keeps_the_others(agent: AgentServices) -> None:
    older, newer = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.1@a")
    await older.beat(reads("ga"), reads("gb"))
    await newer.beat(reads("gb"))
    # Unsolicited; the next response lists the groups that it lost.
    assert (await older.answer()).status == OK
    answer = await older.beat()
    assert (answer.status, list(answer.taken_over_groups)) == (OK, ["gb"])
    peers = {name: agent.groups.core.members(name)[0].peer for name in ("ga", "gb")}
    assert peers["ga"] != peers["gb"]
    await newer.beat(reads("ga"), reads("gb"))
    assert (await older.answer()).status == TAKEN_OVER
    for consumer in (older, newer):
        await consumer.crash()


async def test_members_that_read_something_else_are_reported_and_nothing_flips(agent: AgentServices) -> None:
    first, second = Consumer(agent.addr, "10.0.0.2@first"), Consumer(agent.addr, "10.0.0.1@second")
    await first.beat(reads("g", "orders", tags="b||a"), reads("h"))
    assert list((await second.beat(reads("g", "orders", tags=" a || b "))).conflicting_groups) == []
    for _ in range(2):
        assert list((await second.beat(reads("g", "orders", "refunds"))).conflicting_groups) == ["g"]
        assert list((await first.beat()).conflicting_groups) == ["g"]
    members = {each.client_id: each for each in (await first.stub.GetGroup(wire.GetGroupRequest(group="g"))).members}
    assert {client_id: each.is_conflicting for client_id, each in members.items()} == {
        "10.0.0.1@second": True,
        "10.0.0.2@first": False,
    }
    assert list((await second.beat(reads("g", "orders", tags="a || b"))).conflicting_groups) == []
    assert list((await first.beat()).conflicting_groups) == []
    for consumer in (first, second):
        await consumer.crash()


async def test_members_of_a_broadcasting_group_may_read_what_they_like(agent: AgentServices) -> None:
    first, second = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
    broadcasting = wire.MESSAGE_MODEL_BROADCASTING
    await first.beat(reads("g", "orders", model=broadcasting))
    assert list((await second.beat(reads("g", "refunds", model=broadcasting))).conflicting_groups) == []
    assert list((await second.beat(reads("g", "orders"))).conflicting_groups) == ["g"]
    for consumer in (first, second):
        await consumer.crash()


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        pytest.param(wire.KeepMembershipRequest(), ["client_id"], id="empty"),
        pytest.param(wire.KeepMembershipRequest(client_id="10.0.0.1"), ["client_id"], id="id-without-instance"),
        pytest.param(wire.KeepMembershipRequest(client_id="a@" + "b" * 254), ["client_id"], id="id-too-long"),
        pytest.param(wire.KeepMembershipRequest(client_id="a b@c"), ["client_id"], id="id-with-a-space"),
        pytest.param(wire.KeepMembershipRequest(client_id="ä@c"), ["client_id"], id="id-not-ascii"),
        pytest.param(
            wire.KeepMembershipRequest(client_id="a@b", groups=[wire.GroupSubscription(group="a.b")]),
            ["groups[0].group", "groups[0].consume_type", "groups[0].message_model"],
            id="group-of-nothing",
        ),
        pytest.param(
            wire.KeepMembershipRequest(client_id="a@b", groups=[reads("g"), reads("g")]),
            ["groups[1].group"],
            id="group-twice",
        ),
        pytest.param(
            wire.KeepMembershipRequest(client_id="a@b", groups=[reads(f"g{i}") for i in range(65)]),
            ["groups"],
            id="too-many-groups",
        ),
        pytest.param(
            wire.KeepMembershipRequest(client_id="a@b", groups=[reads("g", *(f"t{i}" for i in range(257)))]),
            ["groups[0].subscriptions"],
            id="too-many-topics",
        ),
        pytest.param(
            wire.KeepMembershipRequest(client_id="a@b", groups=[reads("g", "t", "t")]),
            ["groups[0].subscriptions[1].topic"],
            id="topic-twice",
        ),
        pytest.param(
            wire.KeepMembershipRequest(client_id="a@b", groups=[reads("g", "no/name", tags="a | b")]),
            ["groups[0].subscriptions[0].topic", "groups[0].subscriptions[0].expression"],
            id="topic-and-tags",
        ),
    ],
)
async def test_an_invalid_heartbeat_is_refused_by_field_and_changes_nothing(
    agent: AgentServices, request_: wire.KeepMembershipRequest, fields: list[str]
) -> None:
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    await consumer.stream.write(request_)
    refusal = await refusal_of(consumer.stream.read())
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.fields == fields
    assert agent.groups.core.client_count == 0
    await consumer.crash()


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(b"\xff\xff", id="no-message"),
        pytest.param(
            wire.KeepMembershipRequest(client_id="10.0.0.1@other").SerializeToString(), id="another-client-id"
        ),
    ],
)
async def test_a_stream_ended_for_an_invalid_heartbeat_lets_its_client_expire(
    agent: AgentServices, clock: ManualClock, nonsense: bytes
) -> None:
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(KEEP)()
        await call.write(wire.KeepMembershipRequest(client_id="10.0.0.1@a", groups=[reads("g")]).SerializeToString())
        await call.read()
        await call.write(nonsense)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    await clock.advance(60.0)
    assert ids(agent) == ["10.0.0.1@a"]
    await clock.advance(75.0)
    assert ids(agent) == []


async def test_limits_refuse_new_members_and_keep_present_ones(clock: ManualClock) -> None:
    rules = GroupRules(warm_up=0.0, max_clients=1, max_groups=2)
    async with agent_services(clock=clock, rules=rules) as agent:
        held = Consumer(agent.addr, "10.0.0.1@a")
        await held.beat(reads("g"), reads("h"))
        newcomer = Consumer(agent.addr, "10.0.0.2@b")
        await newcomer.stream.write(wire.KeepMembershipRequest(client_id="10.0.0.2@b"))
        refusal = await refusal_of(newcomer.stream.read())
        assert (refusal.status, dict(refusal.details.facts)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            {"limit": "clients", "bound": "1"},
        )
        await held.beat(reads("g"), reads("h"))
        await held.stream.write(
            wire.KeepMembershipRequest(client_id="10.0.0.1@a", groups=[reads("g"), reads("h"), reads("i")])
        )
        refusal = await refusal_of(held.stream.read())
        assert dict(refusal.details.facts) == {"limit": "groups", "bound": "2"}
        assert agent.groups.core.names() == ["g", "h"]
        await asyncio.gather(held.crash(), newcomer.crash())


async def test_a_member_beyond_the_bound_of_subscriptions_is_refused_by_field_and_value(clock: ManualClock) -> None:
    rules = GroupRules(warm_up=0.0, max_subscriptions=6, max_subscriptions_per_client=4)
    async with agent_services(clock=clock, rules=rules) as agent:
        first, second = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
        assert (await first.beat(reads("g", "t1", "t2"), reads("h", "t1", "t2"))).status == OK
        assert (await second.beat(reads("g", "t1", "t2"))).status == OK
        refusals = []
        for client_id, topics in (
            ("10.0.0.3@c", ("t1", "t2", "t3", "t4", "t5")),
            ("10.0.0.3@c", ("t1", "t2", "t3", "t4")),
        ):
            newcomer = Consumer(agent.addr, client_id)
            await newcomer.stream.write(wire.KeepMembershipRequest(client_id=client_id, groups=[reads("g", *topics)]))
            refusals.append(await refusal_of(newcomer.stream.read()))
            await newcomer.crash()
        assert [each.status for each in refusals] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
        assert [each.details.code for each in refusals] == ["LIMIT_EXCEEDED"] * 2
        assert [each.message for each in refusals] == [
            "groups: this agent allows at most 4 subscriptions of one client, not 5",
            "groups: this agent allows at most 6 subscriptions, not 10",
        ]
        assert agent.groups.core.subscription_count == 6
        for consumer in (first, second):
            assert (await consumer.beat()).status == OK
            await consumer.crash()


async def test_at_the_bound_the_connection_that_holds_most_is_refused_and_the_others_are_served(
    clock: ManualClock,
) -> None:
    rules = GroupRules(warm_up=0.0, max_subscriptions=6)
    async with agent_services(clock=clock, rules=rules) as agent:
        greedy, modest = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
        await greedy.beat(reads("g", "t1", "t2", "t3", "t4", "t5", "t6"))
        assert (await modest.beat(reads("g", "t1"))).status == OK
        assert await ending_of(greedy.stream) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert ids(agent) == ["10.0.0.2@b"]
        again = Consumer(agent.addr, "10.0.0.1@a")
        await again.stream.write(
            wire.KeepMembershipRequest(client_id="10.0.0.1@a", groups=[reads("g", *(f"t{i}" for i in range(6)))])
        )
        assert (await refusal_of(again.stream.read())).status == grpc.StatusCode.RESOURCE_EXHAUSTED
        for consumer in (greedy, modest, again):
            await consumer.crash()


async def test_a_stream_without_a_heartbeat_is_ended_after_ten_seconds(
    agent: AgentServices, clock: ManualClock
) -> None:
    speaks, silent = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
    await speaks.beat(reads("g"))
    await eventually(lambda: len(agent.groups._streams) == 2)
    await clock.advance(9.9)
    assert len(agent.groups._streams) == 2
    await clock.advance(0.1)
    assert await ending_of(silent.stream) == (grpc.StatusCode.DEADLINE_EXCEEDED, "TOO_SLOW")
    await clock.advance(60.0)
    assert (await speaks.beat()).status == OK
    for consumer in (speaks, silent):
        await consumer.crash()


async def test_of_too_many_streams_without_a_heartbeat_the_oldest_of_the_connection_with_most_ends(
    agent: AgentServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.groups._silent, "_max_streams", 3)
    greedy = Consumer(agent.addr, "10.0.0.1@a")
    more = [greedy.stub.KeepMembership() for _ in range(2)]
    await eventually(lambda: len(agent.groups._streams) == 3)
    modest = Consumer(agent.addr, "10.0.0.2@b")
    await eventually(lambda: agent.groups._silent.refused == 1)
    endings = [asyncio.ensure_future(ending_of(call)) for call in (greedy.stream, *more)]
    (ended,), others = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
    assert ended.result() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert len(agent.groups._streams) == 3
    assert (await modest.beat(reads("g"))).status == OK
    for consumer in (greedy, modest):
        await consumer.crash()
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_a_stopping_agent_ends_the_streams_with_a_reason_and_records_no_crash(clock: ManualClock) -> None:
    async with agent_services(clock=clock) as agent:
        consumer = Consumer(agent.addr, "10.0.0.1@a")
        await consumer.beat(reads("g"))
        await agent.stop()
        assert await ending_of(consumer.stream) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
        await clock.advance(5.0)
        assert ids(agent) == ["10.0.0.1@a"]
        await consumer.crash()


async def test_a_pause_of_the_agent_removes_no_member(agent: AgentServices, clock: ManualClock) -> None:
    beats, crashed = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
    await beats.beat(reads("g"))
    await crashed.beat(reads("g"))
    await clock.advance(25.0)
    await clock.pause(300.0)
    assert ids(agent) == ["10.0.0.1@a", "10.0.0.2@b"]
    # Clients may have hung up because of the pause: they are given the time of a warm-up, here none, to come back.
    for _ in range(4):
        await clock.advance(28.0)
        await beats.beat()
    assert ids(agent) == ["10.0.0.1@a"]
    await asyncio.gather(beats.crash(), crashed.crash())


def stating(name: str, *, age: int, is_ordered: bool = False) -> wire.GroupSubscription:
    """A member's registration in ``g`` with its settings."""
    group = reads("g")
    group.settings.strategy.name = name
    group.settings.strategy.settings = "{}"
    group.settings.strategy.digest = hashlib.sha256(name.encode()).digest()
    group.settings.strategy.buildable_from = group.settings.known_strategies = 1
    group.settings.is_ordered = is_ordered
    group.settings.started_at.FromSeconds(1_700_000_000 - age)
    return group


def metric(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("pointsman_agent_member"))
    return {name: float(value) for name, _, value in pairs}


async def test_members_whose_settings_differ_are_named_in_log_and_metric_and_the_list_states_what_holds(
    agent: AgentServices, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    registry.register(agent.groups.collector())
    old, new, ordered = (Consumer(agent.addr, f"10.0.0.{number}@a") for number in (3, 1, 2))
    await new.beat(stating("CONSISTENT_HASH", age=0))
    await old.beat(stating("AVG", age=60))
    answer = await ordered.beat(stating("AVG", age=0, is_ordered=True))
    (own,) = answer.own_differences
    assert (own.group, own.stands_aside, own.holder) == ("g", True, "10.0.0.3@a")
    assert list(answer.conflicting_groups) == []

    membership = (await old.stub.GetMembership(wire.GetMembershipRequest(group="g"))).membership
    assert list(membership.client_ids) == ["10.0.0.1@a", "10.0.0.3@a"]
    assert (membership.holder, membership.settings.strategy.name) == ("10.0.0.3@a", "AVG")
    assert [(each.client_id, each.stands_aside, each.strategy) for each in membership.differing] == [
        ("10.0.0.1@a", False, "CONSISTENT_HASH"),
        ("10.0.0.2@a", True, ""),
    ]
    await clock.advance(1.0)
    series = 'pointsman_agent_member_difference{client_id="10.0.0.1@a",difference="strategy",group="g"}'
    aside = 'pointsman_agent_member_difference{client_id="10.0.0.2@a",difference="ordered",group="g"}'
    assert metric(registry) == {series: 0.0, aside: 1.0, "pointsman_agent_members_standing_aside": 1.0}
    facts = [
        record.__dict__["facts"]
        for record in caplog.records
        if record.getMessage() == "members of a group have different settings"
    ][-1]
    assert (facts["group"], facts["holder"], facts["strategy"], facts["members"]) == ("g", "10.0.0.3@a", "AVG", 2)
    assert facts["differing"] == [
        {
            "client_id": "10.0.0.1@a",
            "differs_in": ["strategy"],
            "strategy": "CONSISTENT_HASH",
            "holds_queues": True,
        },
        {"client_id": "10.0.0.2@a", "differs_in": ["ordered"], "holds_queues": False},
    ]

    await old.leave()
    await ordered.leave()
    membership = (await new.stub.GetMembership(wire.GetMembershipRequest(group="g"))).membership
    assert (membership.settings.strategy.name, len(membership.differing)) == ("CONSISTENT_HASH", 0)
    await clock.advance(1.0)
    assert metric(registry) == {"pointsman_agent_members_standing_aside": 0.0}
    assert "members of a group have the same settings again" in caplog.messages
    for consumer in (old, new, ordered):
        await consumer.crash()


async def test_log_and_metric_name_at_most_20_members(
    agent: AgentServices, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    registry.register(agent.groups.collector())
    consumers = [Consumer(agent.addr, f"10.0.0.{number}@a") for number in range(10, 36)]
    for number, consumer in enumerate(consumers):
        await consumer.beat(stating("AVG" if number == 0 else "CONSISTENT_HASH", age=60 - number))
    await clock.advance(2.0)
    series = [name for name in metric(registry) if "difference{" in name]
    assert len(series) == 20
    assert registry.get_sample_value("pointsman_agent_differing_members") == 25.0
    facts = caplog.records[-1].__dict__["facts"]
    assert (facts["members"], len(facts["differing"])) == (25, 20)
    for consumer in consumers:
        await consumer.crash()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"name": ""}, "strategy.name", id="no-name"),
        pytest.param({"name": "x" * 128}, "strategy.name", id="name-too-long"),
        pytest.param({"name": "a\n"}, "strategy.name", id="control-character"),
        pytest.param({"settings": "x" * 513}, "strategy.settings", id="settings-too-long"),
        pytest.param({"settings": "ä"}, "strategy.settings", id="not-ascii"),
        pytest.param({"digest": b"x" * 31}, "strategy.digest", id="digest-too-short"),
        pytest.param({"seconds": 0}, "started_at", id="no-start"),
        pytest.param({"seconds": 2**62}, "started_at", id="start-too-late"),
    ],
)
async def test_invalid_settings_are_refused_and_change_nothing(
    agent: AgentServices, change: dict[str, object], field: str
) -> None:
    group = stating("AVG", age=0)
    for name, value in change.items():
        setattr(group.settings.started_at if name == "seconds" else group.settings.strategy, name, value)
    consumer = Consumer(agent.addr, "10.0.0.1@a")
    await consumer.stream.write(wire.KeepMembershipRequest(client_id="10.0.0.1@a", groups=[group]))
    refusal = await refusal_of(consumer.stream.read())
    assert refusal.fields == [f"groups[0].settings.{field}"]
    assert agent.groups.core.client_count == 0
    await consumer.crash()
