"""gRPC of a name server behind TLS: who is served, rotation, and strangers and bad files that do not affect others."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from pointsman.config import ConfigError
from pointsman.daemon.tls.server_certificates import POLL_INTERVAL_SECONDS
from pointsman.manual_clock import ManualClock
from pointsman.names import split_addr
from pointsman.v1.admin_service_pb2 import GetNodeInfoRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2 import KeepAliveRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import KnownRoute, ListTopicsRequest, WatchTopicRoutesRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from tests.kit.certificates import Authority, Files
from tests.kit.faults import hostile
from tests.kit.http2.raw_client import OPENING
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.tls_peers import channel, self_signed, tls_config
from tests.kit.waiting import eventually, read_until

SECONDS = 30.0


@pytest.fixture
def files(authority: Authority) -> Files:
    return authority.issue("server")


@pytest.fixture
def mutual() -> bool:
    """Whether clients need a certificate; a test that needs that sets it."""
    return False


@pytest.fixture
async def server(clock: ManualClock, files: Files, mutual: bool) -> AsyncIterator[NameServerApp]:
    async with running_name_server(clock=clock, tls=tls_config(files, mutual=mutual)) as app:
        yield app


async def is_served(peer: grpc.aio.Channel) -> bool:
    """Whether a call gets a response; if not, the handshake must be the cause."""
    async with peer:
        try:
            await RouteServiceStub(peer).ListTopics(ListTopicsRequest(), timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return False
            raise
    return True


async def shown(addr: str) -> x509.Certificate:
    """The certificate that a new connection gets."""
    pem = await asyncio.to_thread(ssl.get_server_certificate, split_addr(addr), timeout=SECONDS)
    return x509.load_pem_x509_certificate(pem.encode())


async def rotate(server: NameServerApp, clock: ManualClock, authority: Authority) -> None:
    """Replace the files, and wait until new connections get them."""
    new = x509.load_pem_x509_certificate(authority.issue("server").certificate.read_bytes())
    await clock.advance(POLL_INTERVAL_SECONDS)
    await read_until(lambda: shown(server.addr), lambda found: found == new, seconds=SECONDS)


def failures(server: NameServerApp) -> float | None:
    return server.metrics.registry.get_sample_value("pointsman_namesrv_tls_reload_failures_total")


async def test_clients_that_trust_the_authority_are_served_and_others_disconnect(
    server: NameServerApp, authority: Authority, tmp_path: Path
) -> None:
    assert await is_served(channel(server.addr, authority.file))
    assert not await is_served(channel(server.addr, Authority(tmp_path, "other").file))
    assert not await is_served(grpc.aio.insecure_channel(server.addr))
    assert await is_served(channel(server.addr, authority.file))


async def test_a_tls_client_of_a_plaintext_port_is_not_served_and_others_are(
    clock: ManualClock, authority: Authority
) -> None:
    async with running_name_server(clock=clock) as server:
        assert not await is_served(channel(server.addr, authority.file))
        assert await is_served(grpc.aio.insecure_channel(server.addr))


async def test_a_client_refuses_a_certificate_of_another_host_and_one_that_no_authority_signed(
    clock: ManualClock, authority: Authority, tmp_path: Path
) -> None:
    for files in (authority.issue("server", "elsewhere.example"), self_signed(tmp_path)):
        async with running_name_server(clock=clock, tls=tls_config(files)) as server:
            assert not await is_served(channel(server.addr, authority.file))


@pytest.mark.parametrize("mutual", [True])
async def test_under_mtls_a_client_needs_a_certificate_of_the_client_ca(
    server: NameServerApp, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").issue("stranger", "client.example")
    expired = authority.issue("expired", "client.example", expires=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    assert not await is_served(channel(server.addr, authority.file))
    assert not await is_served(channel(server.addr, authority.file, stranger))
    assert not await is_served(channel(server.addr, authority.file, expired))
    assert not await is_served(channel(server.addr, authority.file, self_signed(tmp_path)))
    assert await is_served(channel(server.addr, authority.file, authority.issue("client", "client.example")))


async def test_a_stream_a_watch_and_a_connection_survive_three_rotations(
    server: NameServerApp, authority: Authority, clock: ManualClock
) -> None:
    async with channel(server.addr, authority.file) as peer:
        registration, routes = RegistrationServiceStub(peer), RouteServiceStub(peer)
        generation = (await registration.RegisterBroker(wire.registration(wire.topic("orders")))).generation
        stream = registration.KeepAlive()
        watch = routes.WatchTopicRoutes(WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]))
        await watch.read()
        for round_ in range(4):
            if round_:
                await rotate(server, clock, authority)
            await stream.write(KeepAliveRequest(beat=wire.beat(generation)))
            assert await stream.read() is not grpc.aio.EOF
            assert (await routes.ListTopics(ListTopicsRequest())).topics == ["orders"]
            update = wire.registration(wire.topic("orders", queues=5 + round_), version=(0, 0, 2 + round_))
            generation = (await registration.RegisterBroker(update)).generation
            await clock.advance(1.0)
            async with asyncio.timeout(SECONDS):
                assert await watch.read() is not grpc.aio.EOF
        assert not stream.done()
        assert not watch.done()
        stream.cancel()
        watch.cancel()


async def test_a_rotation_to_bad_files_keeps_the_last_valid_ones_and_shows_it(
    server: NameServerApp, files: Files, authority: Authority, clock: ManualClock
) -> None:
    before = await shown(server.addr)
    files.key.write_bytes(files.key.read_bytes()[:50])
    await clock.advance(POLL_INTERVAL_SECONDS)
    await eventually(lambda: failures(server) == 1)
    assert await shown(server.addr) == before
    async with channel(server.addr, authority.file) as peer:
        info = await AdminServiceStub(peer).GetNodeInfo(GetNodeInfoRequest())
    assert any("is not a private key" in complaint for complaint in info.complaints)
    await rotate(server, clock, authority)
    assert failures(server) == 1


async def test_a_new_client_ca_applies_to_new_connections(clock: ManualClock, tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    files = old.issue("server")
    authorities = tmp_path / "clients.pem"
    authorities.write_bytes(old.file.read_bytes())
    config = tls_config(Files(authorities, files.certificate, files.key), mutual=True)
    async with running_name_server(clock=clock, tls=config) as server:
        ours, theirs = old.issue("ours", "c.example"), new.issue("theirs", "c.example")
        async with channel(server.addr, old.file, ours) as established:
            assert (await RouteServiceStub(established).ListTopics(ListTopicsRequest())).topics == []
            assert not await is_served(channel(server.addr, old.file, theirs))
            authorities.write_bytes(new.file.read_bytes())
            await clock.advance(POLL_INTERVAL_SECONDS)
            async with asyncio.timeout(SECONDS):
                while not await is_served(channel(server.addr, old.file, theirs)):
                    pass
            assert not await is_served(channel(server.addr, old.file, ours))
            assert (await RouteServiceStub(established).ListTopics(ListTopicsRequest())).topics == []


async def test_garbage_and_connections_that_send_little_cost_others_nothing(
    server: NameServerApp, authority: Authority
) -> None:
    async with AsyncExitStack() as silent:
        hello = hostile.client_hello()
        for count in range(200):
            connection = socket.create_connection(split_addr(server.addr))
            silent.callback(connection.close)
            connection.send(hello[: count % len(hello)])
        for opening in hostile.wrong_bytes(seed=21, count=20):
            await hostile.send_bytes(server.addr, opening)
        assert await is_served(channel(server.addr, authority.file))


async def test_certificates_that_cannot_be_used_are_a_configuration_error(clock: ManualClock, files: Files) -> None:
    files.key.unlink()
    with pytest.raises(ConfigError, match=r"tls\.key: '.*server\.key' cannot be read"):
        async with running_name_server(clock=clock, tls=tls_config(files)):
            raise AssertionError("it serves")


async def test_a_client_that_does_not_choose_http_2_by_alpn_is_disconnected(
    server: NameServerApp, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    host, port = split_addr(server.addr)
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="127.0.0.1")
    writer.write(OPENING)
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(SECONDS):
            assert await reader.read() == b""
    writer.close()
