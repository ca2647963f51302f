"""gRPC and RocketMQ's wire on one port: each connection has its wire, and what neither serves is refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.daemon.lane import lane_server
from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.rpc.listeners import LANE
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.http2.frame_codec import PREFACE, ErrorCode, FrameType
from pointsman.http2.peer_limits import Bound
from pointsman.manual_clock import ManualClock
from pointsman.names import split_addr
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_client import NameServerClient
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.access_tokens import TokenFolder
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.rocketmq.frames import ask, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.certificates import Authority, Files
from tests.kit.faults import hostile
from tests.kit.http2.client_frames import frames_of
from tests.kit.http2.raw_client import OPENING, raw_client
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer, peer_of
from tests.kit.tls_peers import channel, context, tls_config
from tests.kit.waiting import eventually

PROXY_V1 = b"PROXY TCP4 10.0.0.1 10.0.0.2 50000 9876\r\n"
PROXY_V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)
SERVICE = "pointsman.v1.RouteService"


@asynccontextmanager
async def serving(
    clock: ManualClock,
    *,
    tls: TlsConfig | None = None,
    mode: str = "required",
    access: AccessSettings | None = None,
) -> AsyncIterator[NameServerApp]:
    listen = f"127.0.0.1:{free_port()}"
    async with running_name_server(
        clock=clock,
        listen=listen,
        remoting=RemotingConfig(listen=listen, tls=mode),
        listener=LANE,
        tls=tls,
        access=access,
    ) as app:
        assert app.addr == app.remoting_addr == listen
        yield app


@pytest.fixture
async def server(clock: ManualClock) -> AsyncIterator[NameServerApp]:
    async with serving(clock) as app:
        yield app


@pytest.fixture
def files(authority: Authority) -> Files:
    return authority.issue("server")


@pytest.fixture
async def secured(clock: ManualClock, files: Files, mode: str) -> AsyncIterator[NameServerApp]:
    async with serving(clock, tls=tls_config(files), mode=mode) as app:
        yield app


@pytest.fixture
def mode() -> str:
    """``[remoting] tls``; a test that needs the other sets it."""
    return "required"


def lane(server: NameServerApp) -> LaneServer:
    found = server.server._server
    assert isinstance(found, LaneServer)
    return found


def closed(server: NameServerApp, cause: str) -> float:
    name = "pointsman_namesrv_remoting_connections_closed_total"
    return server.metrics.registry.get_sample_value(name, {"cause": cause}) or 0.0


def reached(server: NameServerApp, bound: Bound) -> float:
    name = "pointsman_namesrv_http2_limits_reached_total"
    return server.metrics.registry.get_sample_value(name, {"limit": bound.value}) or 0.0


async def register_at(peer: RemotingPeer, topic: str) -> int:
    peer.send(register(body=register_body({each: topic_config(each) for each in (topic, "another")})))
    return (await peer.answer()).code


async def has_route(grpc_channel: grpc.aio.Channel, topic: str) -> bool:
    response = await RouteServiceStub(grpc_channel).GetTopicRoute(GetTopicRouteRequest(topic=topic), timeout=20)
    return bool(response.route.queue_datas)


async def after(server: NameServerApp, *parts: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """What the server sends until it closes, on a connection that sends these parts."""
    host, port = split_addr(server.addr)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        async with asyncio.timeout(20):
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.01)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


# --- both are served --------------------------------------------------------------------------------------------


async def test_both_wires_in_plaintext(server: NameServerApp) -> None:
    async with remoting_peer(server.addr) as broker, peer_of(server.addr) as peer:
        assert await register_at(broker, "theirs") == 0
        assert await has_route(peer.channel, "theirs")
        await peer.register("ours", who=wire.identity("broker-b"))
        assert (await broker.ask(105, {"topic": "ours"})).json()["queueDatas"]
    async with (
        NameServerClient([server.addr]) as by_grpc,
        NameServerClient([f"rocketmq://{server.addr}"]) as by_remoting,
    ):
        assert set(await by_grpc.list_topics()) >= {"ours", "theirs"}
        assert set(await by_remoting.list_topics()) >= {"ours", "theirs"}


async def test_both_wires_over_tls(secured: NameServerApp, authority: Authority) -> None:
    async with (
        remoting_peer(secured.addr, context(authority.file)) as broker,
        channel(secured.addr, authority.file) as by_grpc,
    ):
        assert await register_at(broker, "theirs") == 0
        assert await has_route(by_grpc, "theirs")
        assert await broker.is_answered()
    assert lane(secured).shared.excesses.counts == {}


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
@pytest.mark.parametrize("proxy", [b"", PROXY_V1, PROXY_V2], ids=["plain", "proxy-v1", "proxy-v2"])
async def test_first_bytes_however_they_are_divided(server: NameServerApp, proxy: bytes, size: int) -> None:
    async def begin(opening: bytes, write: Callable[[bytes], None]) -> None:
        for at in range(0, len(opening), size):
            write(opening[at : at + size])
            await asyncio.sleep(0.001)

    async with remoting_peer(server.addr) as client:
        await begin(proxy + ask(106, opaque=1), client.send)
        assert (await client.answer()).code == 0
        assert await client.is_answered()
    async with raw_client(server.addr, SERVICE, opening=b"") as raw:
        await begin(proxy + OPENING, raw.write)
        raw.call("ListTopics", b"")
        assert b"grpc-status\x010" in (await raw.until_end())[-1].payload


@pytest.mark.parametrize("mode", ["permissive"])
async def test_permissive_serves_rocketmqs_plaintext_as_on_its_own_port(
    secured: NameServerApp, authority: Authority
) -> None:
    async with (
        remoting_peer(secured.addr) as plain,
        remoting_peer(secured.addr, context(authority.file)) as protected,
        channel(secured.addr, authority.file) as by_grpc,
    ):
        plain.send(PROXY_V1)
        assert await register_at(plain, "theirs") == 0
        assert await protected.is_answered()
        assert await has_route(by_grpc, "theirs")


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["required", "permissive"])
@pytest.mark.parametrize("proxy", [b"", PROXY_V1, PROXY_V2], ids=["plain", "proxy-v1", "proxy-v2"])
async def test_http2_in_plaintext_is_refused_where_the_port_has_tls(
    secured: NameServerApp, authority: Authority, proxy: bytes
) -> None:
    assert await after(secured, proxy + OPENING) == b""
    assert await after(secured, proxy, OPENING[:1], OPENING[1:]) == b""
    assert closed(secured, "plaintext") == 2
    async with grpc.aio.insecure_channel(secured.addr) as plain:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await has_route(plain, "any")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert lane(secured).connection_count == 0
    async with remoting_peer(secured.addr, context(authority.file)) as peer:
        assert await peer.is_answered()


async def test_rocketmqs_plaintext_is_refused_where_tls_is_required(secured: NameServerApp) -> None:
    async with remoting_peer(secured.addr) as plain:
        plain.send(ask(106))
        await plain.until_closed()
    assert closed(secured, "plaintext") == 1


async def test_h2_by_alpn_and_then_a_frame_of_rocketmq_is_closed(secured: NameServerApp, authority: Authority) -> None:
    tls = context(authority.file)
    tls.set_alpn_protocols(["h2"])
    *_, last = frames_of(await after(secured, ask(106), tls=tls))
    assert last.kind is FrameType.GOAWAY
    assert int.from_bytes(last.payload[4:8], "big") == ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize("opening", [OPENING, PREFACE[:5] + b"GET / HTTP/1.1\r\n\r\n"])
async def test_http2_over_tls_without_alpn_is_closed(
    secured: NameServerApp, authority: Authority, opening: bytes
) -> None:
    assert await after(secured, opening, tls=context(authority.file)) == b""
    assert closed(secured, "http") == 1


@pytest.mark.parametrize(
    ("opening", "cause"),
    [
        (hostile.client_hello(), "tls"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "http"),
        (b"POST / HTTP/1.1\r\n\r\n", "http"),
        (b"PROXY TCP4 " + b"1" * 200, "proxy"),
        (PROXY_V1 + b"GET / HTTP/1.1\r\n\r\n", "http"),
        (PROXY_V1 + PROXY_V1, "length"),
        (b"\xff" * 100, "length"),
    ],
)
async def test_what_is_neither_is_closed_as_on_rocketmqs_own_port(
    server: NameServerApp, opening: bytes, cause: str
) -> None:
    assert await after(server, opening) == b""
    assert closed(server, cause) == 1


@pytest.mark.parametrize("opening", [b"", b"P", PROXY_V1, PROXY_V1 + b"PR", PROXY_V2[:-1]])
async def test_a_connection_that_does_not_show_its_wire_is_closed_in_time(
    server: NameServerApp, monkeypatch: pytest.MonkeyPatch, opening: bytes
) -> None:
    assert lane(server)._handshake_seconds == 10
    monkeypatch.setattr(lane_server, "SWEEP_SECONDS", 0.01)
    lane(server)._handshake_seconds = 0.05
    assert await after(server, opening) == b""
    assert reached(server, Bound.HANDSHAKES) == 1


async def test_silent_connections_count_and_keep_out_none_that_sends_something(server: NameServerApp) -> None:
    lane(server)._max_connections = 5
    async with AsyncExitStack() as open_:
        silent = [await open_.enter_async_context(remoting_peer(server.addr)) for _ in range(5)]
        await eventually(lambda: len(lane(server)._undecided) == 5)
        client = await open_.enter_async_context(remoting_peer(server.addr))
        assert await client.is_answered()
        await silent[0].until_closed()
        assert len(lane(server)._undecided) == 4
        peer = await open_.enter_async_context(peer_of(server.addr))
        await peer.register("ours")
        assert reached(server, Bound.CONNECTIONS) == 1
        assert await silent[4].is_answered()


async def test_a_grant_by_address_is_of_rocketmqs_wire_alone(clock: ManualClock, tmp_path: Path) -> None:
    folder = TokenFolder(tmp_path, "ops")
    admin = Grant("admin", address="127.0.0.0/8")
    async with serving(clock, access=folder.settings(Grant("admin", "ops"), admin)) as server:
        async with remoting_peer(server.addr) as broker:
            assert await register_at(broker, "theirs") == 0
        async with peer_of(server.addr) as peer:
            await is_unauthenticated(peer)


async def is_unauthenticated(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await has_route(peer.channel, "theirs")
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_certificate_has_its_role_on_both_wires(
    clock: ManualClock, tmp_path: Path, files: Files, authority: Authority
) -> None:
    own = authority.issue("broker", "broker-a.example")
    grant = Grant("broker", "broker-a.example", cluster="DefaultCluster", broker_name="broker-a")
    access = TokenFolder(tmp_path, "ops").settings(Grant("admin", "ops"), grant)
    async with (
        serving(clock, tls=tls_config(files, mutual=True), access=access) as server,
        remoting_peer(server.addr, context(authority.file, own)) as broker,
        channel(server.addr, authority.file, own) as by_grpc,
    ):
        assert await register_at(broker, "theirs") == 0
        assert await has_route(by_grpc, "theirs")
        peer = Peer(by_grpc)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await peer.register("ours", who=wire.identity("broker-b"))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_stop_closes_connections_of_every_kind(clock: ManualClock) -> None:
    async with AsyncExitStack() as open_:
        async with serving(clock) as server:
            silent = await open_.enter_async_context(remoting_peer(server.addr))
            broker = await open_.enter_async_context(remoting_peer(server.addr))
            assert await register_at(broker, "theirs") == 0
            peer = await open_.enter_async_context(peer_of(server.addr))
            await peer.register("ours")
            addr = server.addr
        await silent.until_closed()
        await broker.until_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*split_addr(addr))
