"""Roles on a real server: who may call what with a token or a certificate, and how others are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.daemon.rpc.listeners import LANE, LISTENERS
from pointsman.daemon.tls.tls import client_certificate
from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import registration_service_pb2 as registration
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest, KnownRoute, ListTopicsRequest, WatchTopicRoutesRequest
from pointsman_namesrv.app import NameServerApp
from tests.kit.access_tokens import TokenFolder
from tests.kit.certificates import DNS, MAIL, Authority, der
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, serving
from tests.kit.refusal import refusal_of
from tests.kit.tls_peers import channel, tls_config
from tests.kit.waiting import eventually

SECONDS = 60.0
GRANTS = (
    Grant("admin", "ops"),
    Grant("client", "app"),
    Grant("broker", "broker-a", cluster="c1", broker_name="a"),
    Grant("broker", "broker-b", cluster="c1", broker_name="b"),
)
B = wire.identity("b", addr="10.0.0.2:10911")


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFolder:
    return TokenFolder(tmp_path, "ops", "app", "broker-a", "broker-b", "stray")


@pytest.fixture
def limits() -> dict[str, float]:
    """Settings of ``[access]``; a test that needs others sets them."""
    return {}


@pytest.fixture
async def server(
    clock: ManualClock, tmp_path: Path, tokens: TokenFolder, limits: dict[str, float]
) -> AsyncIterator[NameServerApp]:
    access = tokens.settings(*GRANTS, **limits)
    async with running_name_server(clock=clock, history=tmp_path / "history", access=access) as app:
        yield app


async def register(peer: Peer, header: Any, **facts: Any) -> int:
    call = peer.registration.RegisterBroker(wire.registration(wire.topic("orders"), **facts), metadata=header)
    return (await call).generation


async def read_to_its_end(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


def denied(server: NameServerApp, method: str, reason: str) -> float:
    labels = {"method": method, "reason": reason}
    return server.metrics.registry.get_sample_value("pointsman_namesrv_denied_calls_total", labels) or 0.0


async def events(peer: Peer, tokens: TokenFolder, name: str = "a") -> list[admin.BrokerEvent]:
    request = admin.ListBrokerEventsRequest(cluster="c1", broker_name=name)
    return list((await peer.admin.ListBrokerEvents(request, metadata=tokens.header("ops"))).events)


# --- credentials --------------------------------------------------------------------------------------------------


async def test_a_call_without_credentials_is_refused_with_what_to_send(peer: Peer, server: NameServerApp) -> None:
    refused = await refusal_of(peer.route.ListTopics(ListTopicsRequest()))
    assert refused.status is StatusCode.UNAUTHENTICATED
    assert "authorization: Bearer TOKEN" in refused.message
    assert refused.details.code == "UNAUTHENTICATED"
    assert refused.details.facts == {"identity": "''", "method": "ListTopics", "reason": "no_credentials"}
    assert denied(server, "ListTopics", "no_credentials") == 1


async def test_tokens_that_are_not_exactly_one_are_refused_and_others_served(peer: Peer, tokens: TokenFolder) -> None:
    good = tokens.tokens["app"]
    for value in (good, f"Bearer {good} x", f"Bearer  {good}", f"Bearer {good.swapcase()}", "Bearer", "", "Basic Og=="):
        call = peer.route.ListTopics(ListTopicsRequest(), metadata=(("authorization", value),))
        refused = await refusal_of(call)
        assert refused.status is StatusCode.UNAUTHENTICATED, value
        assert good not in refused.message
    twice = (*tokens.header("app"), *tokens.header("app"))
    assert (await refusal_of(peer.route.ListTopics(ListTopicsRequest(), metadata=twice))).status is (
        StatusCode.UNAUTHENTICATED
    )
    await peer.route.ListTopics(ListTopicsRequest(), metadata=tokens.header("app"))


async def test_a_mebibyte_of_metadata_costs_its_call_alone(
    peer: Peer, server: NameServerApp, tokens: TokenFolder
) -> None:
    async with grpc.aio.insecure_channel(server.addr, options=[("grpc.use_local_subchannel_pool", 1)]) as hostile:
        greedy = Peer(hostile)
        metadata = (("authorization", "Bearer " + "x" * 1024 * 1024),)
        for _ in range(3):
            refused = await refusal_of(greedy.route.ListTopics(ListTopicsRequest(), metadata=metadata))
            assert refused.status is StatusCode.RESOURCE_EXHAUSTED
            more = tuple((f"k{number}", "x" * 1024) for number in range(1_024))
            refused = await refusal_of(greedy.admin.GetNodeInfo(admin.GetNodeInfoRequest(), metadata=more))
            assert refused.status is StatusCode.RESOURCE_EXHAUSTED
            await peer.route.ListTopics(ListTopicsRequest(), metadata=tokens.header("app"))


async def test_an_identity_without_a_grant_is_denied(peer: Peer, tokens: TokenFolder) -> None:
    refused = await refusal_of(peer.route.ListTopics(ListTopicsRequest(), metadata=tokens.header("stray")))
    assert refused.status is StatusCode.PERMISSION_DENIED
    assert refused.details.facts["identity"] == "'stray'"
    assert refused.details.facts["reason"] == "no_grant"


async def test_health_is_open_and_reflection_needs_a_role(
    peer: Peer, server: NameServerApp, tokens: TokenFolder
) -> None:
    health = health_pb2_grpc.HealthStub(peer.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest(service="live"))).status
    stub = reflection_pb2_grpc.ServerReflectionStub(peer.channel)

    async def refused(metadata: Any) -> StatusCode:
        # gRPC may report a request that is written after the end as INTERNAL, so none is.
        return (await refusal_of(stub.ServerReflectionInfo(metadata=metadata).read())).status

    assert await refused(()) is StatusCode.UNAUTHENTICATED
    assert await refused(tokens.header("stray")) is StatusCode.PERMISSION_DENIED
    assert denied(server, "ServerReflectionInfo", "no_grant") == 1
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    allowed = stub.ServerReflectionInfo(iter([request]), metadata=tokens.header("app"))
    assert "AdminService" in str(await allowed.read())


# --- roles --------------------------------------------------------------------------------------------------------


async def test_each_role_reads_routes_and_only_an_admin_what_operators_see(peer: Peer, tokens: TokenFolder) -> None:
    await register(peer, tokens.header("broker-a"))
    for name in ("ops", "app", "broker-b"):
        await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"), metadata=tokens.header(name))
    record = admin.RecordChangeRequest(what="x")
    refused = await refusal_of(peer.admin.RecordChange(record, metadata=tokens.header("broker-a")))
    assert refused.status is StatusCode.PERMISSION_DENIED
    for name in ("app", "broker-a"):
        refused = await refusal_of(peer.admin.GetNodeInfo(admin.GetNodeInfoRequest(), metadata=tokens.header(name)))
        assert refused.status is StatusCode.PERMISSION_DENIED
        assert refused.details.facts["method"] == "GetNodeInfo"
    assert (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest(), metadata=tokens.header("ops"))).sizes[
        "brokers"
    ] == 1


async def test_a_client_registers_no_broker(peer: Peer, tokens: TokenFolder) -> None:
    assert (await refusal_of(register(peer, tokens.header("app")))).status is StatusCode.PERMISSION_DENIED


async def test_a_broker_that_writes_another_one_is_denied_in_every_call_and_changes_nothing(
    peer: Peer, server: NameServerApp, tokens: TokenFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="pointsman.daemon.access.access")
    generation = await register(peer, tokens.header("broker-b"), who=B)
    header = tokens.header("broker-a")
    other_cluster = wire.identity("a", cluster="c2")
    calls: list[tuple[str, Any, Message]] = [
        ("Heartbeat", peer.registration.Heartbeat, registration.HeartbeatRequest(beat=wire.beat(generation, who=B))),
        (
            "Heartbeat",
            peer.registration.Heartbeat,
            registration.HeartbeatRequest(beat=wire.beat(generation, who=other_cluster)),
        ),
        (
            "UpdateTopics",
            peer.registration.UpdateTopics,
            registration.UpdateTopicsRequest(
                identity=B,
                generation=generation,
                base_data_version=wire.data_version((0, 0, 1)),
                data_version=wire.data_version((0, 0, 2)),
                removed=["orders"],
            ),
        ),
        (
            "UnregisterBroker",
            peer.registration.UnregisterBroker,
            wire.unregistration(B, generation),
        ),
        (
            "ReportQueueStats",
            peer.registration.ReportQueueStats,
            registration.ReportQueueStatsRequest(identity=B, generation=generation),
        ),
        (
            "SetWritePerm",
            peer.admin.SetWritePerm,
            admin.SetWritePermRequest(cluster="c1", broker_name="b", writable=False),
        ),
    ]
    for method, call, request in calls:
        refused = await refusal_of(call(request, metadata=header))
        assert refused.status is StatusCode.PERMISSION_DENIED, method
        assert refused.details.facts == {"identity": "'broker-a'", "method": method, "reason": "other_broker"}
    many = [wire.topic(f"t{number}") for number in range(12_000)]
    for who in (B, other_cluster):
        for topics in ([wire.topic("orders")], many):
            chunks = wire.registration(*topics, who=who)
            refused = await refusal_of(peer.registration.RegisterBroker(chunks, metadata=header))
            assert refused.status is StatusCode.PERMISSION_DENIED
    stream = peer.registration.KeepAlive(wire.keep_alive([wire.beat(generation, who=B)]), metadata=header)
    assert (await refusal_of(stream.read())).status is StatusCode.PERMISSION_DENIED
    route = await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"), metadata=header)
    assert [data.broker_name for data in route.route.broker_datas] == ["b"]
    assert {event.event for event in await events(peer, tokens, "b")} == {"REGISTERED"}
    assert denied(server, "RegisterBroker", "other_broker") == 4
    facts = [record.facts for record in caplog.records]  # type: ignore[attr-defined]  # of ours
    assert len(facts) == len(calls) + 5
    assert {fact["identity"] for fact in facts} == {"broker-a"}
    assert len({fact["request_id"] for fact in facts}) == len(facts)
    assert all(fact["peer"].startswith("127.0.0.1:") for fact in facts)


async def test_a_role_for_the_new_name_is_enough_to_end_the_earlier_one_that_is_not_heard(
    peer: Peer, tokens: TokenFolder
) -> None:
    generation = await register(peer, tokens.header("broker-a"))
    renamed = wire.identity("b", addr="10.0.0.1:10911")
    await peer.registration.Heartbeat(
        registration.HeartbeatRequest(beat=wire.beat(generation, hand_over=True)), metadata=tokens.header("broker-a")
    )
    await register(peer, tokens.header("broker-b"), who=renamed)
    assert (await events(peer, tokens))[-1].reason == "SUPERSEDED"
    assert [each.event for each in await events(peer, tokens, "b")] == ["REGISTERED"]

    # One that is heard stays: a conflict.
    again = await register(peer, tokens.header("broker-a"))
    assert again != generation
    assert [each.event for each in await events(peer, tokens, "b")] == ["REGISTERED", "ADDRESS_CONFLICT"]


async def test_a_known_registration_from_another_broker_is_denied_though_its_bytes_are_known(
    peer: Peer, tokens: TokenFolder
) -> None:
    chunks = list(wire.registration(*(wire.topic(f"t{number}") for number in range(500)), who=B))
    await peer.registration.RegisterBroker(iter(chunks), metadata=tokens.header("broker-b"))
    refused = await refusal_of(peer.registration.RegisterBroker(iter(chunks), metadata=tokens.header("broker-a")))
    assert refused.status is StatusCode.PERMISSION_DENIED


async def test_a_stream_that_turns_to_another_broker_ends_there(peer: Peer, tokens: TokenFolder) -> None:
    header = tokens.header("broker-a")
    generation = await register(peer, header)
    theirs = await register(peer, tokens.header("broker-b"), who=B)
    stream = peer.registration.KeepAlive(metadata=header)
    await stream.write(registration.KeepAliveRequest(beat=wire.beat(generation)))
    assert await stream.read() is not grpc.aio.EOF
    await stream.write(registration.KeepAliveRequest(beat=wire.beat(theirs, who=B)))
    assert (await refusal_of(stream.read())).status is StatusCode.PERMISSION_DENIED


async def test_a_replayed_unregister_of_an_old_generation_is_denied_to_another_broker_and_stale_for_its_own(
    peer: Peer, tokens: TokenFolder
) -> None:
    own = tokens.header("broker-b")
    replayed = wire.unregistration(B, await register(peer, own, who=B))
    await peer.registration.UnregisterBroker(replayed, metadata=own)
    await register(peer, own, who=B)
    refused = await refusal_of(peer.registration.UnregisterBroker(replayed, metadata=tokens.header("broker-a")))
    assert refused.status is StatusCode.PERMISSION_DENIED
    await peer.registration.UnregisterBroker(replayed, metadata=own)
    route = await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"), metadata=own)
    assert [data.broker_name for data in route.route.broker_datas] == ["b"], "its old generation removes nothing"


# --- the author of a change ---------------------------------------------------------------------------------------


async def test_the_history_has_the_authenticated_author_and_the_claimed_one(
    peer: Peer, tokens: TokenFolder, tmp_path: Path, clock: ManualClock
) -> None:
    await register(peer, tokens.header("broker-a"))
    change = admin.SetWritePermRequest(cluster="c1", broker_name="a", writable=False, by="agent 10.0.0.1:9880")
    await peer.admin.SetWritePerm(change, metadata=tokens.header("broker-a"))
    change.writable, change.by = True, "ops"
    await peer.admin.SetWritePerm(change, metadata=tokens.header("ops"))
    await peer.admin.SetDrain(admin.SetDrainRequest(draining=True, by="alice"), metadata=tokens.header("ops"))
    await peer.admin.SetDrain(admin.SetDrainRequest(draining=False), metadata=tokens.header("ops"))
    put = admin.PutKvRequest(namespace="n", key="k", value="v", by="alice")
    await peer.admin.PutKv(put, metadata=tokens.header("ops"))
    evict = admin.EvictBrokerRequest(cluster="c1", broker_name="a", by="bob")
    await peer.admin.EvictBroker(evict, metadata=tokens.header("ops"))
    moved = admin.RecordChangeRequest(what="offsets of group g in topic orders", group="g", by="eve")
    await peer.admin.RecordChange(moved, metadata=tokens.header("app"))

    def authors() -> list[tuple[str, str, str]]:
        return [
            (row["event"], row["detail"]["by"], row["detail"].get("claimed_by", ""))
            for row in rows_in(tmp_path / "history")
            if "by" in row.get("detail", {})
        ]

    expected = [
        ("PERM_CHANGED", "broker-a", "agent 10.0.0.1:9880"),
        ("PERM_CHANGED", "ops", ""),
        ("NAMESRV_DRAINING", "ops", "alice"),
        ("NAMESRV_DRAINING", "ops", ""),
        ("KV_CHANGED", "ops", "alice"),
        ("UNREGISTERED", "ops", "bob"),
        ("BROKER_DATA_CHANGED", "app", "eve"),
    ]
    await eventually(lambda: authors() == expected, clock=clock, step=1.0)


# --- revoked ------------------------------------------------------------------------------------------------------


async def test_streams_of_a_removed_token_end_within_the_reload_and_do_not_mark_the_broker(
    peer: Peer, server: NameServerApp, tokens: TokenFolder, clock: ManualClock
) -> None:
    generation = await register(peer, tokens.header("broker-a"))
    kept, gone = (
        peer.route.WatchTopicRoutes(
            WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]), metadata=tokens.header(name)
        )
        for name in ("ops", "app")
    )
    stream = peer.registration.KeepAlive(metadata=tokens.header("broker-a"))
    await stream.write(registration.KeepAliveRequest(beat=wire.beat(generation)))
    for each in (kept, gone, stream):
        assert await each.read() is not grpc.aio.EOF
    tokens.remove("app")
    tokens.remove("broker-a")
    tokens.add("another")
    ended = [(server, method, "unknown_token") for method in ("KeepAlive", "WatchTopicRoutes")]
    await eventually(lambda: all(denied(*each) for each in ended), clock=clock, step=1.0)
    for each in (gone, stream):
        refused = await refusal_of(read_to_its_end(each))
        assert refused.status is StatusCode.UNAUTHENTICATED
        assert "was removed from the token file" in refused.message
    assert not kept.done()
    kept.cancel()
    refused = await refusal_of(register(peer, tokens.header("broker-a")))
    assert refused.details.facts["reason"] == "unknown_token"
    assert [event.event for event in await events(peer, tokens)] == ["REGISTERED"], "no sign of a fault"
    route = await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"), metadata=tokens.header("ops"))
    assert route.route.broker_datas


async def test_an_invalid_file_is_listed_as_a_problem(
    peer: Peer, server: NameServerApp, tokens: TokenFolder, clock: ManualClock
) -> None:
    tokens.path.write_text("half a li", encoding="utf-8")
    await eventually(server.access.problems, clock=clock, step=1.0)
    info = await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest(), metadata=tokens.header("ops"))
    assert any("line 1: has 3 words" in complaint for complaint in info.complaints)


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"registrations_burst": 3, "registrations_per_second": 1.0}])
async def test_beyond_its_limit_an_identity_learns_when_to_retry_and_others_are_served(
    peer: Peer, server: NameServerApp, tokens: TokenFolder, clock: ManualClock
) -> None:
    header = tokens.header("broker-a")
    generations = [await register(peer, header) for _ in range(3)]
    refused = await refusal_of(register(peer, header))
    assert refused.status is StatusCode.RESOURCE_EXHAUSTED
    assert refused.details.code == "RATE_LIMITED"
    assert refused.details.facts["retry_after_seconds"] == "1.000"
    assert denied(server, "RegisterBroker", "rate") == 1
    beat = registration.HeartbeatRequest(beat=wire.beat(generations[-1]))
    for _ in range(20):
        answer = (await peer.registration.Heartbeat(beat, metadata=header)).answer
        assert answer.status == registration.BEAT_STATUS_OK
    await register(peer, tokens.header("broker-b"), who=B)
    await clock.advance(1.0)
    await register(peer, header)


async def test_without_grants_the_limit_is_that_of_the_node(clock: ManualClock) -> None:
    async with serving(clock=clock, access=TokenFolder.open(admin_calls_burst=5)) as (_, peer):
        for _ in range(5):
            await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())
        refused = await refusal_of(peer.admin.GetNodeInfo(admin.GetNodeInfoRequest()))
        assert refused.status is StatusCode.RESOURCE_EXHAUSTED
        await peer.route.ListTopics(ListTopicsRequest())
        await register(peer, ())


async def calls_of(peer: Peer, count: int) -> None:
    for _ in range(count):
        await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())


async def test_without_grants_three_greedy_connections_keep_out_no_other(clock: ManualClock) -> None:
    limits = {"registrations_burst": 300, "registrations_per_second": 1.0, "admin_calls_burst": 300}
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        running_name_server(clock=clock, access=TokenFolder.open(**limits)) as server,
        grpc.aio.insecure_channel(server.addr, options=options) as honest,
    ):
        for number in range(3):
            async with grpc.aio.insecure_channel(server.addr, options=options) as plain:
                greedy = Peer(plain)
                silent = [asyncio.ensure_future(refusal_of(greedy.registration.RegisterBroker())) for _ in range(400)]
                await asyncio.wait(silent, return_when=asyncio.FIRST_COMPLETED)
                assert {each.result().details.code for each in silent if each.done()} == {"RATE_LIMITED"}
                for stream in silent:
                    stream.cancel()
                await asyncio.gather(*silent, return_exceptions=True)
                refused = await refusal_of(calls_of(greedy, 400))
                assert "of all callers together" in refused.message
                peer = Peer(honest)
                await register(peer, (), who=wire.identity(f"b{number}", addr=f"10.0.0.{number + 1}:10911"))
                await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())


async def test_1000_clients_behind_one_address_are_not_limited(
    peer: Peer, server: NameServerApp, tokens: TokenFolder
) -> None:
    await register(peer, tokens.header("broker-a"))
    header = tokens.header("app")
    options = [("grpc.use_local_subchannel_pool", 1)]
    clients = [grpc.aio.insecure_channel(server.addr, options=options) for _ in range(1_000)]

    watches = []

    async def is_served(client: grpc.aio.Channel) -> bool:
        route = Peer(client).route
        watch = route.WatchTopicRoutes(WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]), metadata=header)
        watches.append(watch)  # gRPC cancels a call that is garbage
        assert await watch.read() is not grpc.aio.EOF
        for _ in range(3):
            await route.GetTopicRoute(GetTopicRouteRequest(topic="orders"), metadata=header)
        return not watch.done()

    try:
        async with asyncio.timeout(SECONDS):
            assert all(await asyncio.gather(*map(is_served, clients)))
        assert server.parts.hub.count == 1_000
    finally:
        await asyncio.gather(*(client.close() for client in clients))


# --- certificates -------------------------------------------------------------------------------------------------


async def test_a_brokers_certificate_registers_its_own_name_and_no_other(
    clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    server_files, broker = authority.issue("server"), authority.issue("broker", "broker-a.example", "10.0.0.1")
    stranger = authority.issue("stranger", "stranger.example", "broker-a.example.evil")
    tokens = TokenFolder(tmp_path, "ops")
    grants = (Grant("broker", "broker-a.example", cluster="c1", broker_name="a"), Grant("admin", "ops"))
    access, tls = tokens.settings(*grants), tls_config(server_files, mutual=True)
    async with running_name_server(clock=clock, tls=tls, access=access) as server:
        async with channel(server.addr, authority.file, broker) as ours:
            peer = Peer(ours)
            for _ in range(2):
                await register(peer, ())
            refused = await refusal_of(register(peer, (), who=B))
            assert refused.status is StatusCode.PERMISSION_DENIED
            assert refused.details.facts["identity"] == "'broker-a.example'"
            assert refused.details.facts["reason"] == "other_broker"
            [audit] = [record for record in caplog.records if record.name == "pointsman.daemon.access.access"]
            assert audit.facts["method"] == "RegisterBroker"  # type: ignore[attr-defined]  # of ours
            info = await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest(), metadata=tokens.header("ops"))
            assert info.sizes["brokers"] == 1, "a token counts before the certificate"
        async with channel(server.addr, authority.file, stranger) as theirs:
            for _ in range(2):
                refused = await refusal_of(Peer(theirs).route.ListTopics(ListTopicsRequest()))
                assert refused.details.facts["reason"] == "no_grant"


async def test_a_name_that_only_looks_like_another_is_not_it(clock: ManualClock, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("ops", "ops.example")
    odd = {
        "no_grant": [(DNS, b"ops.example\0.evil")],
        "no_credentials": [(MAIL, b"ops.example")],
        "unreadable_credentials": [(DNS, b"\xff\xfe"), (DNS, b"ops.example")],
    }
    access = AccessSettings(grants=(Grant("admin", "ops.example"),))
    tls = tls_config(authority.issue("server"), mutual=True)
    async with running_name_server(clock=clock, tls=tls, access=access) as server:
        for _ in range(2):  # the second time after the real one was seen
            for reason, names in odd.items():
                files = authority.sign(reason, *names)
                async with channel(server.addr, authority.file, files) as theirs:
                    refused = await refusal_of(Peer(theirs).admin.GetNodeInfo(admin.GetNodeInfoRequest()))
                    assert refused.details.facts["reason"] == reason
            async with channel(server.addr, authority.file, own) as ours:
                await Peer(ours).admin.GetNodeInfo(admin.GetNodeInfoRequest())


@pytest.mark.parametrize("carrier", LISTENERS)
async def test_an_optional_certificate_is_an_identity_on_the_lane_and_is_not_requested_by_grpcio(
    clock: ManualClock, tmp_path: Path, carrier: str
) -> None:
    authority = Authority(tmp_path)
    own, tls = (
        authority.issue("ops", "ops.example"),
        tls_config(authority.issue("server"), mutual=True, client_certificate="optional"),
    )
    access = AccessSettings(grants=(Grant("admin", "ops.example"),))
    async with running_name_server(clock=clock, tls=tls, access=access, listener=carrier) as server:
        async with channel(server.addr, authority.file) as theirs:
            refused = await refusal_of(Peer(theirs).admin.GetNodeInfo(admin.GetNodeInfoRequest()))
            assert refused.details.facts["reason"] == "no_credentials"
        async with channel(server.addr, authority.file, own) as ours:
            asked = Peer(ours).admin.GetNodeInfo(admin.GetNodeInfoRequest())
            if carrier == LANE:
                await asked
            else:
                assert (await refusal_of(asked)).details.facts["reason"] == "no_credentials"


@pytest.mark.parametrize("grants", [(), (Grant("admin", "ops.example"),)], ids=["open", "grants"])
async def test_a_denied_certificate_is_refused_and_its_streams_end(
    clock: ManualClock, tmp_path: Path, grants: tuple[Grant, ...]
) -> None:
    authority, denied_file = Authority(tmp_path), tmp_path / "denied"
    denied_file.write_text("# none\n", encoding="utf-8")
    stolen, fresh = authority.issue("stolen", "ops.example"), authority.issue("fresh", "ops.example")
    access = AccessSettings(grants=grants, denied_certificates=str(denied_file))
    tls = tls_config(authority.issue("server"), mutual=True)
    async with (
        running_name_server(clock=clock, tls=tls, access=access) as server,
        channel(server.addr, authority.file, stolen) as theirs,
        channel(server.addr, authority.file, fresh) as ours,
    ):
        watches = [
            Peer(each).route.WatchTopicRoutes(WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]))
            for each in (theirs, ours)
        ]
        for watch, each in zip(watches, (theirs, ours), strict=True):
            await watch.read()
            await Peer(each).admin.GetNodeInfo(admin.GetNodeInfoRequest())
        digest = client_certificate(der(stolen)).digest.hex(":").upper()
        denied_file.write_text(f"sha256:{digest} stolen\n", encoding="utf-8")
        gone = asyncio.create_task(read_to_its_end(watches[0]))
        await eventually(gone.done, clock=clock, step=1.0)
        refused = await refusal_of(gone)
        assert "is denied now" in refused.message
        refused = await refusal_of(Peer(theirs).route.ListTopics(ListTopicsRequest()))
        assert refused.status is StatusCode.UNAUTHENTICATED
        assert refused.details.facts["reason"] == "denied_certificate"
        async with channel(server.addr, authority.file, stolen) as again:
            assert (await refusal_of(register(Peer(again), ()))).status is StatusCode.UNAUTHENTICATED
        await Peer(ours).admin.GetNodeInfo(admin.GetNodeInfoRequest())
        assert not watches[1].done()
        denied_file.write_text("sha256:12\n", encoding="utf-8")
        await eventually(server.access.problems, clock=clock, step=1.0)
        info = await Peer(ours).admin.GetNodeInfo(admin.GetNodeInfoRequest())
        assert any("access.denied_certificates" in each and "line 1" in each for each in info.complaints)
        assert (await refusal_of(Peer(theirs).route.ListTopics(ListTopicsRequest()))).details.facts["reason"]
        sample = server.metrics.registry.get_sample_value
        assert sample("pointsman_namesrv_access_denied_certificates") == 1
        assert sample("pointsman_namesrv_access_denied_certificates_file_invalid") == 1
