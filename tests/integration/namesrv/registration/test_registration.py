"""RegistrationService over a real channel: what is applied, what is refused, and the state after a disconnect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_status import rpc_status

from pointsman.v1 import registration_service_pb2 as messages
from pointsman.v1.broker_pb2 import PROBE_STATUS_FAILING, BrokerIdentity, TopicConfig
from pointsman.v1.registration_service_pb2 import RegisterBrokerRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.wire.error_details import ErrorDetails, read_status
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.rpc import register_call
from pointsman_namesrv.slices import SLICE_TOPICS
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer
from tests.kit.waiting import eventually

BIG = [wire.topic(f"topic-{i}") for i in range(20_000)]


async def refusal(error: grpc.aio.AioRpcError) -> ErrorDetails:
    """The error details next to the status code."""
    return read_status(rpc_status.from_call(error))


async def test_a_registered_topic_is_routed_with_its_queues_and_addresses(peer: Peer) -> None:
    registered = await peer.registration.RegisterBroker(
        wire.registration(wire.topic("orders", queues=8), ha_addr="10.0.0.1:10912", zone="z1")
    )
    route = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route

    assert registered.generation
    assert (registered.heartbeat_interval.seconds, registered.expiry.seconds) == (30, 120)
    assert [(q.cluster, q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queue_datas] == [
        ("c1", "a", 8, 8, 6)
    ]
    (group,) = route.broker_datas
    assert (group.zone, group.acting_master) == ("z1", True)
    assert [(r.broker_id, r.addr, r.ha_addr) for r in group.replicas] == [(0, "10.0.0.1:10911", "10.0.0.1:10912")]
    assert len(route.revision.digest) == 8
    assert route.revision.boot


async def test_a_slave_gets_the_addresses_of_its_master_and_of_its_masters_agent(peer: Peer) -> None:
    master = await peer.registration.RegisterBroker(
        wire.registration(ha_addr="10.0.0.1:10912", agent_addr="10.0.0.1:9880")
    )
    slave = await peer.registration.RegisterBroker(wire.registration(who=wire.identity(broker_id=1, addr="10.0.0.2:1")))

    assert (slave.group.master_addr, slave.group.ha_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")
    assert slave.group.master_agent_addr == "10.0.0.1:9880"
    assert (master.group.master_addr, master.group.ha_addr, master.group.master_agent_addr) == ("", "", "")


async def test_twenty_thousand_topics_in_chunks_are_all_there(server: NameServerApp, peer: Peer) -> None:
    await peer.register(*BIG)

    assert len(server.core.routes.topic_names()) == len(BIG)


async def test_a_commit_with_wrong_counts_changes_nothing(server: NameServerApp, peer: Peer) -> None:
    chunks = list(wire.registration(wire.topic("orders")))
    chunks[-1].commit.topic_count = 2

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.RegisterBroker(iter(chunks))

    violations = (await refusal(refused.value)).violations
    assert [(v.field, v.description) for v in violations] == [("commit.topic_count", "is 2, but 1 were received")]
    assert server.core.replicas() == []


async def test_a_stream_that_ends_without_a_commit_changes_nothing(server: NameServerApp, peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.register(*BIG[:15_000], commit=False)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.core.replicas() == []
    assert server.core.routes.topic_names() == []


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_registration_that_breaks_after_15_000_topics_changes_nothing(
    server: NameServerApp, peer: Peer, how: str
) -> None:
    sent = asyncio.Event()

    async def chunks() -> AsyncIterator[RegisterBrokerRequest]:
        for chunk in wire.registration(*BIG[:15_000], commit=False):
            yield chunk
        sent.set()
        await asyncio.Event().wait()  # the end never arrives

    async with grpc.aio.insecure_channel(server.addr) as channel:
        call = RegistrationServiceStub(channel).RegisterBroker(chunks())
        await sent.wait()
        if how == "cancel":
            call.cancel()
        else:
            await channel.close()
    # A call after it shows that the server has seen the end of the stream or will yet: nothing is applied either way.
    await peer.register("other", who=wire.identity(name="b"))

    assert [replica.identity.broker_name for _, replica in server.core.replicas()] == ["b"]
    assert set(server.core.routes.topic_names()) == {"other"}


async def test_a_registration_that_never_ends_is_given_up_and_changes_nothing(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_call, "COLLECT_SECONDS", 0.2)
    is_over = asyncio.Event()

    async def chunks() -> AsyncIterator[RegisterBrokerRequest]:
        for chunk in wire.registration(*BIG[:15_000], commit=False):
            yield chunk
        await is_over.wait()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.RegisterBroker(chunks())
    is_over.set()
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.core.replicas() == []


def _bad(**fields: object) -> list[RegisterBrokerRequest]:
    return list(wire.registration(**fields))  # type: ignore[arg-type]  # each case names its own fields


def _bad_topic(**fields: int | str) -> list[RegisterBrokerRequest]:
    good: dict[str, int | str] = {"topic": "orders", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6}
    return list(wire.registration(TopicConfig(**(good | fields))))  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("chunks", "field", "value"),
    [
        pytest.param(_bad(who=wire.identity(name="a b")), "broker.identity.broker_name", "'a b'", id="name"),
        pytest.param(_bad(who=wire.identity(addr="10.0.0.1")), "broker.identity.addr", "'10.0.0.1'", id="no-port"),
        pytest.param(_bad(who=wire.identity(broker_id=2**31)), "broker.identity.broker_id", "2147483648", id="id"),
        pytest.param(_bad(ha_addr="nowhere"), "broker.ha_addr", "'nowhere'", id="ha-addr"),
        pytest.param(_bad(zone="a\x1b[31m"), "broker.zone", r"'a\x1b[31m'", id="control-characters"),
        pytest.param(_bad(heartbeat=0), "broker.heartbeat_interval", "0s", id="interval-0"),
        pytest.param(_bad(heartbeat=301, expiry=1000), "broker.heartbeat_interval", "301s", id="interval-301"),
        pytest.param(_bad(heartbeat=30, expiry=89), "broker.expiry", "89s", id="expiry-under-3-intervals"),
        pytest.param(_bad(heartbeat=30, expiry=3601), "broker.expiry", "3601s", id="expiry-over-the-bound"),
        pytest.param(_bad_topic(topic="or ders"), "topics[0].topic", "'or ders'", id="topic-name"),
        pytest.param(_bad_topic(read_queue_nums=65_536), "topics[0].read_queue_nums", "65536", id="read-queues"),
        pytest.param(_bad_topic(write_queue_nums=2**32 - 1), "topics[0].write_queue_nums", "4294967295", id="queues"),
        pytest.param(_bad_topic(perm=16), "topics[0].perm", "16", id="perm"),
        pytest.param(_bad_topic(topic_sys_flag=4), "topics[0].topic_sys_flag", "4", id="flag"),
        pytest.param(_bad_topic(queue_weight=101), "topics[0].queue_weight", "101", id="weight"),
        pytest.param(
            list(wire.registration(wire.topic("orders"), wire.topic("orders"))),
            "topics[1].topic",
            "'orders'",
            id="twice",
        ),
        pytest.param(
            list(wire.registration(wire.topic("t"), wire.topic("u"), wire.topic("t"), chunk=2)),
            "topics[2].topic",
            "'t'",
            id="twice-over-chunks",
        ),
    ],
)
async def test_bad_input_is_refused_with_field_and_value_and_changes_nothing(
    server: NameServerApp, peer: Peer, chunks: list[RegisterBrokerRequest], field: str, value: str
) -> None:
    await peer.register("kept", who=wire.identity(name="kept"))
    change = server.core.routes.change

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.RegisterBroker(iter(chunks))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    (violation,) = (await refusal(refused.value)).violations
    assert violation.field == field
    assert value in violation.description
    assert server.core.routes.change == change
    assert set(server.core.routes.topic_names()) == {"kept"}


async def test_all_errors_of_a_request_are_listed_together(peer: Peer) -> None:
    chunks = wire.registration(wire.topic("a b", queues=70_000), who=wire.identity(name="?", addr="x"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.RegisterBroker(chunks)
    fields = [v.field for v in (await refusal(refused.value)).violations]
    assert fields == ["broker.identity.broker_name", "broker.identity.addr"]


async def test_of_many_errors_as_many_are_listed_as_fit_into_a_response(peer: Peer) -> None:
    bad = [wire.topic(f"bad topic {i}", queues=70_000) for i in range(SLICE_TOPICS)]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.register(*bad)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    violations = (await refusal(refused.value)).violations
    assert violations[0].field == "topics[0].topic"
    assert violations[-1].description == f"and {3 * SLICE_TOPICS - len(violations) + 1} more violations"


async def test_a_delta_of_too_many_topics_is_refused(server: NameServerApp, peer: Peer) -> None:
    generation = await peer.register("a")
    delta = messages.UpdateTopicsRequest(
        identity=wire.identity(),
        generation=generation,
        base_data_version=wire.data_version((0, 0, 1)),
        data_version=wire.data_version((0, 0, 2)),
        changed=BIG[:5_000],
        removed=["a"],
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.UpdateTopics(delta)
    (violation,) = (await refusal(refused.value)).violations
    assert (violation.field, "5001" in violation.description) == ("changed", True)
    assert set(server.core.routes.topic_names()) == {"a"}


async def test_a_delta_moves_the_revision_of_the_topics_it_names_and_of_no_other(peer: Peer) -> None:
    topics = (wire.topic("changed"), wire.topic("untouched"))
    generation = await peer.register(*topics)

    async def counters() -> list[int]:
        routes = [await peer.route.GetTopicRoute(GetTopicRouteRequest(topic=topic.topic)) for topic in topics]
        return [answer.route.revision.counter for answer in routes]

    before = await counters()
    await peer.registration.UpdateTopics(
        messages.UpdateTopicsRequest(
            identity=wire.identity(),
            generation=generation,
            base_data_version=wire.data_version((0, 0, 1)),
            data_version=wire.data_version((0, 0, 2)),
            changed=[wire.topic("changed", queues=9)],
        )
    )
    after = await counters()
    assert after[0] > before[0]
    assert after[1] == before[1]


async def test_a_delta_on_a_known_base_changes_only_what_it_names(peer: Peer) -> None:
    registered = await peer.registration.RegisterBroker(wire.registration(wire.topic("a"), wire.topic("b")))
    delta = messages.UpdateTopicsRequest(
        identity=wire.identity(),
        generation=registered.generation,
        base_data_version=wire.data_version((0, 0, 1)),
        data_version=wire.data_version((0, 0, 2)),
        changed=[wire.topic("b", queues=9), wire.topic("c")],
        removed=["a"],
    )
    updated = await peer.registration.UpdateTopics(delta)

    assert updated.topic_count == 2
    route = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="b"))).route
    assert route.queue_datas[0].read_queue_nums == 9
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="a"))
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as stale:
        await peer.registration.UpdateTopics(delta)
    assert stale.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (await refusal(stale.value)).code == "STALE_DATA_VERSION"


async def test_a_lower_claim_is_refused_with_the_address_of_the_holder(server: NameServerApp, peer: Peer) -> None:
    await peer.register("orders", version=(5, 0, 1))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.RegisterBroker(
            wire.registration(who=wire.identity(addr="10.0.0.9:10911"), version=(4, 0, 9))
        )

    details = await refusal(refused.value)
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert (details.code, details.facts) == ("IDENTITY_HELD", {"holder_addr": "10.0.0.1:10911"})
    assert [replica.identity.addr for _, replica in server.core.replicas()] == ["10.0.0.1:10911"]
    assert server.parts.recorder.recent.of("a")[-1].event.kind == "REJECTED"


async def test_the_response_to_a_heartbeat_is_what_the_server_requests(peer: Peer) -> None:
    async def status(beat: messages.Beat) -> messages.BeatAnswer:
        return (await peer.registration.Heartbeat(messages.HeartbeatRequest(beat=beat))).answer

    assert (await status(wire.beat(1))).status == messages.BEAT_STATUS_UNKNOWN_BROKER
    generation = await peer.register()
    assert (await status(wire.beat(generation))).status == messages.BEAT_STATUS_OK
    stale = await status(wire.beat(generation + 1))
    assert (stale.status, stale.holder_addr) == (messages.BEAT_STATUS_STALE_GENERATION, "10.0.0.1:10911")
    old = await status(wire.beat(generation, version=(0, 0, 2)))
    assert (old.status, old.held_data_version.counter) == (messages.BEAT_STATUS_TOPICS_OUT_OF_DATE, 1)


async def test_unregistering_with_a_stale_generation_changes_nothing_and_reports_it(
    server: NameServerApp, peer: Peer
) -> None:
    first = await peer.register()
    second = await peer.register()

    def leave(generation: int) -> messages.UnregisterBrokerRequest:
        return wire.unregistration(wire.identity(), generation)

    stale = await peer.registration.UnregisterBroker(leave(first))
    assert stale.status == messages.UNREGISTER_STATUS_STALE_GENERATION
    assert len(server.core.replicas()) == 1
    done = await peer.registration.UnregisterBroker(leave(second))
    assert done.status == messages.UNREGISTER_STATUS_UNREGISTERED
    assert server.core.replicas() == []


async def test_unregistering_without_a_reason_is_refused(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.UnregisterBroker(messages.UnregisterBrokerRequest(identity=wire.identity()))
    assert [v.field for v in (await refusal(refused.value)).violations] == ["reason"]


async def test_a_failing_probe_removes_the_broker_from_the_routes_and_a_passing_one_restores_it(
    server: NameServerApp, peer: Peer
) -> None:
    generation = await peer.register("orders")
    stream = peer.registration.KeepAlive()
    for probe, routed in ((PROBE_STATUS_FAILING, False), (0, True)):
        beat = wire.beat(generation, probe=probe)  # type: ignore[arg-type]  # 0 is UNSPECIFIED
        await stream.write(messages.KeepAliveRequest(beat=beat))
        answer = await stream.read()
        assert isinstance(answer, messages.KeepAliveResponse)
        assert answer.answer.status == messages.BEAT_STATUS_OK
        assert ("orders" in server.core.routes.topic_names()) is routed
    stream.cancel()
    kinds = [(r.event.kind, r.event.reason) for r in server.parts.recorder.recent.of("a")]
    assert kinds == [("REGISTERED", None), ("PROBE_FAILED", "PROBE"), ("RECOVERED", "PROBE")]


async def test_an_address_of_another_kind_is_refused_in_a_heartbeat_too(peer: Peer) -> None:
    beat = wire.beat(1, who=BrokerIdentity(cluster="c", broker_name="a", addr="nope"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.Heartbeat(messages.HeartbeatRequest(beat=beat))
    assert [v.field for v in (await refusal(refused.value)).violations] == ["beat.identity.addr"]


async def test_a_negative_interval_is_refused(peer: Peer) -> None:
    chunks = list(wire.registration())
    chunks[0].broker.heartbeat_interval.CopyFrom(Duration(seconds=-5))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.registration.RegisterBroker(iter(chunks))
    fields = [v.field for v in (await refusal(refused.value)).violations]
    assert fields == ["broker.heartbeat_interval"]


async def test_as_many_silent_streams_as_may_be_open_do_not_keep_a_registration_out(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_call, "FIRST_CHUNK_SECONDS", 60.0)
    connections, streams = 3, 700
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for _ in range(connections):
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(server.addr, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            stub = RegistrationServiceStub(channel)
            calls += [stub.RegisterBroker() for _ in range(streams)]
        stack.callback(lambda: [call.cancel() for call in calls])
        await asyncio.gather(*(call.wait_for_connection() for call in calls))
        bound = server.parts.registration.calls._silent
        await eventually(lambda: bound.total >= bound.bound)
        assert bound.bound < len(calls)
        assert await peer.register("orders")
