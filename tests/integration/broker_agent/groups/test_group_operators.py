"""GetGroup, ListGroups and PinGroup, and the server around the groups: health, metrics, stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import generate_latest

from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_membership import MembershipBeat
from pointsman_agent.core.group_rules import GroupRules, NoticeRules
from pointsman_agent.groups import group_codec, group_servicer
from tests.kit.agent.group_clients import Consumer, pin, reads
from tests.kit.agent.services import AgentServices, agent_services
from tests.kit.refusal import refusal_of
from tests.kit.waiting import eventually

A, B = "10.0.0.1@a", "10.0.0.2@b"


@pytest.fixture
async def agent(clock: ManualClock) -> AsyncIterator[AgentServices]:
    rules = GroupRules(warm_up=0.0, max_groups=8, notices_of={"held": NoticeRules(hold_down=10.0)})
    async with agent_services(clock=clock, rules=rules) as agent:
        await clock.advance(0.1)
        yield agent


@pytest.fixture
async def consumer(agent: AgentServices) -> AsyncIterator[Consumer]:
    consumer = Consumer(agent.addr, A)
    yield consumer
    await consumer.crash()


async def get(consumer: Consumer, group: str) -> wire.GetGroupResponse:
    return await consumer.stub.GetGroup(wire.GetGroupRequest(group=group))


async def counted(agent: AgentServices, method: str, code: grpc.StatusCode) -> None:
    """A call is counted when it ends, which its caller may see before the server."""
    await eventually(lambda: agent.server.metrics.rpcs.labels(method, code.name).count == 1)


async def test_one_group_with_its_members_as_operators_see_it(
    agent: AgentServices, consumer: Consumer, clock: ManualClock
) -> None:
    await consumer.beat(reads("held", "refunds", "orders", tags="b || a", consume_type=wire.CONSUME_TYPE_PULL))
    joined_at = clock.utc_now()
    await clock.advance(7.0)
    other = Consumer(agent.addr, B)
    await other.beat(reads("held", "refunds", "orders", tags="a||b"))
    answer = await get(consumer, "held")
    # Clients in a hold-down are members, but not yet shown to the others.
    assert [each.client_id for each in answer.members] == [A, B]
    assert list(answer.membership.client_ids) == [A]
    first = answer.members[0]
    assert first.peer.startswith("127.0.0.1:")
    assert (first.consume_type, first.is_connected, first.is_conflicting) == (wire.CONSUME_TYPE_PULL, True, False)
    assert [(each.topic, each.expression) for each in first.subscriptions] == [
        ("orders", "a || b"),
        ("refunds", "a || b"),
    ]
    assert (first.silent_for.seconds, answer.members[1].silent_for.seconds) == (7, 0)
    assert abs(first.joined_at.ToDatetime(joined_at.tzinfo) - joined_at).total_seconds() < 0.01
    assert (answer.notifies, answer.hold_down.seconds, answer.watchers) == (True, 10, 0)
    await other.crash()


async def test_an_unknown_group_is_not_found_on_a_ready_agent_and_not_yet_known_on_a_warming_one(
    consumer: Consumer, clock: ManualClock
) -> None:
    await consumer.stub.PinGroup(pin("g", [A], seconds=60))
    refusal = await refusal_of(get(consumer, "g"))
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    async with agent_services(clock=clock, rules=GroupRules()) as agent:
        other = Consumer(agent.addr, B)
        refusal = await refusal_of(get(other, "g"))
        assert (refusal.status, refusal.details.facts["state"]) == (grpc.StatusCode.UNAVAILABLE, "warming")
        await other.crash()


async def test_groups_are_listed_in_pages_sorted_by_name(agent: AgentServices, consumer: Consumer) -> None:
    await consumer.beat(*(reads(f"g{i}", "orders", "a") for i in (3, 1, 2)))
    other = Consumer(agent.addr, B)
    await other.beat(reads("g1", "refunds"))
    await consumer.stub.PinGroup(pin("g2", [A], seconds=60))
    await consumer.stub.PinGroup(pin("empty", [A], seconds=60))
    first = await consumer.stub.ListGroups(wire.ListGroupsRequest(page_size=2))
    assert [each.group for each in first.groups] == ["g1", "g2"]
    assert (first.groups[0].members, list(first.groups[0].topics), first.groups[0].is_conflicting) == (
        2,
        ["a", "orders", "refunds"],
        True,
    )
    assert [each.is_pinned for each in first.groups] == [False, True]
    assert first.state == wire.GROUP_STATE_READY
    rest = await consumer.stub.ListGroups(wire.ListGroupsRequest(page_size=2, page_token=first.next_page_token))
    assert [each.group for each in rest.groups] == ["g3"]
    assert rest.next_page_token == ""
    await other.crash()


async def test_a_page_that_cannot_be_is_refused_by_field(consumer: Consumer) -> None:
    refusal = await refusal_of(consumer.stub.ListGroups(wire.ListGroupsRequest(page_size=1_001, page_token="no/name")))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["page_size", "page_token"])


async def test_a_pin_may_be_set_on_an_empty_group_and_be_ended(consumer: Consumer) -> None:
    answer = await consumer.stub.PinGroup(pin("g", ["10.0.0.1", B], seconds=60, by="ops"))
    assert (list(answer.pinned_client_ids), answer.HasField("until")) == ([], True)
    await consumer.beat(reads("g"))
    assert list((await get(consumer, "g")).membership.pinned_client_ids) == [A]
    answer = await consumer.stub.PinGroup(pin("g", [], by="ops"))
    assert (list(answer.pinned_client_ids), answer.HasField("until")) == ([], False)
    assert list((await get(consumer, "g")).membership.pinned_client_ids) == []


@pytest.mark.parametrize(
    ("order", "fields"),
    [
        pytest.param(pin("", [A], seconds=1), ["group"], id="no-group"),
        pytest.param(pin("g", [A]), ["duration"], id="no-duration"),
        pytest.param(pin("g", [A], seconds=0), ["duration"], id="no-time"),
        pytest.param(pin("g", [A], seconds=-5), ["duration"], id="the-past"),
        pytest.param(pin("g", [A], seconds=7 * 86_400 + 1), ["duration"], id="too-long"),
        pytest.param(pin("g", [], seconds=5), ["duration"], id="duration-of-an-end"),
        pytest.param(pin("g", ["a b", "", A, A], seconds=5), ["to[0]", "to[1]", "to[3]"], id="odd-targets"),
        pytest.param(pin("g", [f"10.0.0.{i}" for i in range(17)], seconds=5), ["to"], id="too-many-targets"),
        pytest.param(pin("g", [A], seconds=5, by="x\n"), ["by"], id="by"),
        pytest.param(
            wire.PinGroupRequest(group="g", to=[A], duration=Duration(seconds=2**62)), ["duration"], id="overflow"
        ),
    ],
)
async def test_a_pin_that_cannot_be_is_refused_by_field_and_changes_nothing(
    agent: AgentServices, consumer: Consumer, order: wire.PinGroupRequest, fields: list[str]
) -> None:
    refusal = await refusal_of(consumer.stub.PinGroup(order))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, fields)
    assert agent.groups.core.pinned_count == 0


@pytest.mark.parametrize(
    ("client_id", "groups", "fields"),
    [("", [], ["client_id"]), (A, ["g", "a.b"], ["groups[1]"]), (A, ["g"] * 65, ["groups"])],
)
async def test_an_invalid_leave_is_refused_by_field(
    consumer: Consumer, client_id: str, groups: list[str], fields: list[str]
) -> None:
    refusal = await refusal_of(consumer.stub.LeaveGroups(wire.LeaveGroupsRequest(client_id=client_id, groups=groups)))
    assert (refusal.status, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, fields)


async def test_another_host_cannot_leave_for_a_client_whose_stream_is_open(
    agent: AgentServices, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await consumer.beat(reads("g"))
    monkeypatch.setattr("pointsman.daemon.rpc.handler_table.peer_of", lambda *_: Peer("10.9.9.9:1", ""))
    refusal = await refusal_of(consumer.stub.LeaveGroups(wire.LeaveGroupsRequest(client_id=A)))
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.FAILED_PRECONDITION, "HELD_BY_OTHER")
    assert refusal.details.facts["holder"].startswith("127.0.0.1:")
    await consumer.stream.done_writing()
    await eventually(lambda: not agent.groups.core.holders(A))
    assert await consumer.leave() == ["g"]


async def test_malformed_bytes_are_an_error_of_the_caller(agent: AgentServices) -> None:
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        for method in ("LeaveGroups", "GetGroup", "ListGroups", "PinGroup"):
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/pointsman.v1.ConsumerGroupService/{method}"
            )
            refusal = await refusal_of(call(b"\xff\xff"))
            assert (refusal.status, refusal.details.code) == (grpc.StatusCode.INVALID_ARGUMENT, "UNREADABLE_REQUEST")
            await counted(agent, method, grpc.StatusCode.INVALID_ARGUMENT)


async def test_every_call_of_the_service_has_a_handler(agent: AgentServices) -> None:
    methods = [method.name for method in group_servicer.SERVICE.methods]
    assert len(methods) == 9
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        for method in methods:
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(
                f"/{group_servicer.SERVICE.full_name}/{method}"
            )()
            await call.write(b"\xff\xff")
            await call.done_writing()  # a listener may begin a unary call with the end of its request
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_equal_heartbeats_are_parsed_once(
    agent: AgentServices, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = group_codec.beat

    def reading(message: wire.KeepMembershipRequest) -> MembershipBeat:
        read.append(message.client_id)
        return real(message)

    monkeypatch.setattr(group_codec, "beat", reading)
    for _ in range(5):
        await consumer.beat(reads("g"))
    assert read == [A]
    await consumer.beat(reads("h"))
    assert read == [A, A]
    assert sum(agent.groups.tallies.beats.values()) == 6


async def test_health_is_reported_per_service_and_in_total(agent: AgentServices) -> None:
    async with grpc.aio.insecure_channel(agent.addr) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", group_servicer.SERVICE.full_name):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(agent.stop())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await stopping


async def test_a_stop_waits_for_calls_that_run_and_refuses_new_ones(
    agent: AgentServices, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await consumer.beat(reads("g"))
    entered, go = asyncio.Event(), asyncio.Event()
    drain = agent.groups.drain

    async def slow_drain() -> None:
        entered.set()
        await go.wait()
        await drain()

    monkeypatch.setattr(agent.server, "services", (replace(agent.server.services[0], drain=slow_drain),))
    stopping = asyncio.create_task(agent.stop())
    await entered.wait()
    refusal = await refusal_of(get(consumer, "g"))
    assert (refusal.status, refusal.details.code) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    go.set()
    async with asyncio.timeout(60):
        await stopping


async def test_a_failed_background_task_is_noticed(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = AgentServices(rules=GroupRules(), clock=clock)

    async def dies() -> None:
        raise RuntimeError("upkeep is gone")

    monkeypatch.setattr(agent.groups._timer, "run", dies)
    await agent.server.start([agent.groups.service()])
    with pytest.raises(ExceptionGroup):
        await agent.server.watch_over()
    await agent.stop()


async def test_a_port_in_use_is_reported_in_one_line(agent: AgentServices, clock: ManualClock) -> None:
    other = AgentServices(rules=GroupRules(), clock=clock)
    with pytest.raises(CannotListen, match=agent.addr):
        other.server.bind(agent.addr)
    # A server that was never started cannot be stopped; gRPC warns when it is garbage collected.
    await other.server.start([])
    await other.stop()


async def test_metrics_count_what_happens(agent: AgentServices, consumer: Consumer) -> None:
    agent.registry.register(agent.groups.collector())
    await consumer.beat(reads("g"))
    await consumer.beat()
    await consumer.leave()
    await counted(agent, "LeaveGroups", grpc.StatusCode.OK)
    page = generate_latest(agent.registry).decode()
    for line in (
        'pointsman_agent_consumer_heartbeats_total{result="ok"} 2.0',
        'pointsman_agent_consumer_removals_total{cause="left"} 1.0',
        "pointsman_agent_group_changes_total 2.0",
        "pointsman_agent_consumers 0.0",
        "pointsman_agent_consumer_streams 1.0",
        'pointsman_agent_rpcs_total{code="OK",method="LeaveGroups"} 1.0',
    ):
        assert line in page
