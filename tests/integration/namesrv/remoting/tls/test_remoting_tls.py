"""TLS on RocketMQ's wire: who is served, by which name; unfinished handshakes do not affect others."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pointsman.daemon.tls import tls_connection
from pointsman.daemon.tls.server_certificates import POLL_INTERVAL_SECONDS
from pointsman.daemon.tls.tls_connection import HANDSHAKE_SECONDS
from pointsman.manual_clock import ManualClock
from pointsman.names import split_addr
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.remoting import remoting_connection
from pointsman_namesrv.remoting import remoting_server as shell
from pointsman_namesrv.remoting.remoting_connection import RemotingConnection
from tests.kit.broker.rocketmq.frames import ask, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import Closed, remoting_peer
from tests.kit.certificates import DNS, MAIL, URI, Authority, Files, Name
from tests.kit.faults import hostile
from tests.kit.name_server.in_process import running_name_server
from tests.kit.tls_peers import context, self_signed, tls_config
from tests.kit.waiting import eventually


@pytest.fixture
def files(authority: Authority) -> Files:
    return authority.issue("server")


@pytest.fixture
def mode() -> str:
    """``[remoting] tls``; a test that needs the other sets it."""
    return "required"


@pytest.fixture
def clients() -> str:
    """Whether clients present a certificate: required, optional, or empty for no mTLS."""
    return ""


@pytest.fixture
async def server(clock: ManualClock, files: Files, mode: str, clients: str) -> AsyncIterator[NameServerApp]:
    tls = tls_config(files, mutual=bool(clients), client_certificate=clients or "required")
    remoting = RemotingConfig(listen="127.0.0.1:0", tls=mode)
    async with running_name_server(clock=clock, tls=tls, remoting=remoting) as app:
        yield app


async def is_served(server: NameServerApp, tls: ssl.SSLContext | None) -> bool:
    try:
        async with remoting_peer(server.remoting_addr, tls) as peer:
            return await peer.is_answered()
    except (ssl.SSLError, ConnectionError):
        return False


def closed(server: NameServerApp, cause: str) -> float:
    name = "pointsman_namesrv_remoting_connections_closed_total"
    return server.metrics.registry.get_sample_value(name, {"cause": cause}) or 0.0


def connections(server: NameServerApp) -> list[RemotingConnection]:
    assert server.parts.remoting is not None
    return list(server.parts.remoting._connections)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_brokers_and_clients_are_served_over_tls(
    server: NameServerApp, authority: Authority, version: ssl.TLSVersion
) -> None:
    tls = context(authority.file)
    tls.minimum_version = tls.maximum_version = version
    topics = {f"topic-{n}": topic_config(f"topic-{n}") for n in range(2_000)}
    async with remoting_peer(server.remoting_addr, tls) as broker, remoting_peer(server.remoting_addr, tls) as client:
        broker.send(register(body=register_body(topics)))
        answering = asyncio.create_task(broker.answer())
        await eventually(answering.done)
        assert answering.result().code == 0
        assert (await client.ask(105, {"topic": "topic-7"})).json()["queueDatas"]
        listed = await client.ask(206)  # more than one TLS record
        assert len(listed.json()["topicList"]) == 2_000
        for _ in range(50):
            client.send(ask(206, opaque=1))
        for _ in range(50):
            assert (await client.answer()).body == listed.body


async def test_a_stream_of_single_bytes_is_read(server: NameServerApp, authority: Authority) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context(authority.file).wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await asyncio.open_connection(*split_addr(server.remoting_addr))

    async def send() -> None:
        for byte in outgoing.read():
            writer.write(bytes([byte]))
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await send()
                incoming.write(await reader.read(65_536))
        tls.write(ask(999, opaque=5))
        await send()
        answer = b""
        while not answer:
            incoming.write(await reader.read(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer = tls.read(1_000)
    assert b'"opaque":5' in answer
    writer.close()
    await writer.wait_closed()


async def test_required_closes_plaintext(server: NameServerApp, authority: Authority) -> None:
    assert not await is_served(server, None)
    assert closed(server, "plaintext") == 1
    assert await is_served(server, context(authority.file))


@pytest.mark.parametrize("mode", ["permissive"])
async def test_permissive_serves_tls_and_plaintext_on_one_port(server: NameServerApp, authority: Authority) -> None:
    async with (
        remoting_peer(server.remoting_addr, context(authority.file)) as protected,
        remoting_peer(server.remoting_addr) as plain,
    ):
        for peer in (plain, protected, plain):
            assert await peer.is_answered()
        plain.send(b"GET / HTTP/1.1\r\n\r\n")
        await plain.until_closed()
    assert closed(server, "http") == 1


async def test_a_tls_client_of_a_plaintext_port_is_closed(clock: ManualClock, authority: Authority) -> None:
    async with running_name_server(clock=clock, remoting=RemotingConfig(listen="127.0.0.1:0")) as server:
        assert not await is_served(server, context(authority.file))
        assert closed(server, "tls") == 1
        assert await is_served(server, None)


@pytest.mark.parametrize("clients", ["required"])
async def test_under_mtls_a_peer_needs_a_certificate_and_has_its_names(
    server: NameServerApp, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    stranger = Authority(tmp_path, "other").issue("stranger", "broker-a.example")
    expired = authority.issue("expired", "broker-a.example", expires=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    for own in (None, stranger, expired, self_signed(tmp_path)):
        assert not await is_served(server, context(authority.file, own))
    await eventually(lambda: closed(server, "handshake") == 4)
    (line,) = [record for record in caplog.records if "connection closed" in record.getMessage()]
    assert line.facts["cause"] == "handshake"  # type: ignore[attr-defined]  # of our own logs
    assert line.facts["problem"]  # type: ignore[attr-defined]  # as above
    own = authority.issue("broker", "broker-a.example", "b.example")
    async with remoting_peer(server.remoting_addr, context(authority.file, own)) as peer:
        assert await peer.is_answered()
        [certificate] = [each.certificate for each in connections(server)]
        assert certificate is not None
        assert certificate.names == ("broker-a.example", "b.example")


@pytest.mark.parametrize("clients", ["required"])
@pytest.mark.parametrize("name", [(DNS, b"\xff\xfe"), (URI, b"\xff"), (MAIL, b"\xff")])
async def test_a_certificate_that_cannot_be_read_ends_its_connection_and_no_other(
    server: NameServerApp, authority: Authority, name: Name
) -> None:
    broker, odd = authority.issue("broker", "broker-a.example"), authority.sign("odd", name)
    async with remoting_peer(server.remoting_addr, context(authority.file, broker)) as peer:
        for _ in range(2):
            assert not await is_served(server, context(authority.file, odd))
        await eventually(lambda: closed(server, "handshake") == 2)
        assert await peer.is_answered()
        assert await is_served(server, context(authority.file, broker))


@pytest.mark.parametrize("clients", ["required"])
async def test_an_internal_error_of_a_handshake_ends_its_connection_and_no_other(
    server: NameServerApp, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = context(authority.file, authority.issue("broker", "broker-a.example"))
    async with remoting_peer(server.remoting_addr, own) as peer:
        assert await peer.is_answered()
        with monkeypatch.context() as patched:
            patched.setattr(tls_connection, "client_certificate", lambda _: 1 / 0)
            assert not await is_served(server, own)
        assert "internal error" in caplog.text
        assert await peer.is_answered()
        assert await is_served(server, own)


@pytest.mark.parametrize("clients", ["optional"])
async def test_with_optional_certificates_a_peer_without_one_has_no_names(
    server: NameServerApp, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").issue("stranger", "broker-a.example")
    assert not await is_served(server, context(authority.file, stranger))
    async with remoting_peer(server.remoting_addr, context(authority.file)) as peer:
        assert await peer.is_answered()
        assert [each.certificate for each in connections(server)] == [None]


async def test_a_connection_survives_three_rotations(
    server: NameServerApp, authority: Authority, clock: ManualClock
) -> None:
    tls = context(authority.file)
    shown = set()
    async with remoting_peer(server.remoting_addr, tls) as peer:
        for round_ in range(4):
            if round_:
                new = authority.issue("server").certificate.read_bytes()
                await clock.advance(POLL_INTERVAL_SECONDS)
                await eventually(lambda new=new: server._certificates._loaded.pems[0].data == new)  # type: ignore[misc, union-attr]
            assert await peer.is_answered()
            async with remoting_peer(server.remoting_addr, tls) as fresh:
                assert await fresh.is_answered()
                shown.add(fresh.writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    assert len(shown) == 4


@pytest.mark.parametrize("size", [0, 1, 5, 100])
async def test_a_connection_with_an_unfinished_handshake_is_closed_in_time(
    server: NameServerApp, authority: Authority, clock: ManualClock, size: int
) -> None:
    async with remoting_peer(server.remoting_addr) as slow:
        slow.send(hostile.client_hello()[:size])
        await eventually(lambda: len(connections(server)) == 1)
        await clock.advance(HANDSHAKE_SECONDS + shell.POLL_INTERVAL_SECONDS)
        await slow.drain_to_end()
    assert closed(server, "handshake") == 1
    assert await is_served(server, context(authority.file))


async def test_garbage_in_place_of_a_handshake_and_after_it_is_closed(
    server: NameServerApp, authority: Authority
) -> None:
    hello = hostile.client_hello()
    for data in (b"\x16" + b"x" * 1_000, b"\x16\x03\x01\xff\xff" + bytes(70_000), hello + hello + b"x" * 500):
        async with remoting_peer(server.remoting_addr) as stranger:
            stranger.send(data)
            await stranger.drain_to_end()
    for opening in hostile.wrong_bytes(seed=22, count=10):
        await hostile.send_bytes(server.remoting_addr, opening)
    async with remoting_peer(server.remoting_addr, context(authority.file)) as peer:
        assert await peer.is_answered()
        peer.send(b"GET / HTTP/1.1\r\n\r\n")
        await peer.until_closed()
    assert await is_served(server, context(authority.file))
    await eventually(lambda: not connections(server))


async def test_many_unfinished_handshakes_are_bounded_and_others_are_served(
    clock: ManualClock, files: Files, authority: Authority
) -> None:
    remoting = RemotingConfig(listen="127.0.0.1:0", max_connections=50)
    async with (
        running_name_server(clock=clock, tls=tls_config(files), remoting=remoting) as server,
        AsyncExitStack() as open_,
    ):
        peer = await open_.enter_async_context(remoting_peer(server.remoting_addr, context(authority.file)))
        assert await peer.is_answered()
        hello = hostile.client_hello()
        for _ in range(300):
            stranger = socket.create_connection(split_addr(server.remoting_addr))
            open_.callback(stranger.close)
            stranger.send(hello[:-1])
            await asyncio.sleep(0)
        assert await peer.is_answered()
        assert await is_served(server, context(authority.file))
        assert len(connections(server)) <= 51


async def test_a_client_that_does_not_read_is_not_read(
    server: NameServerApp, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_connection, "UNSENT_A_CONNECTION", 1_024)
    tls = context(authority.file)
    topics = {f"t-{n}": topic_config(f"t-{n}") for n in range(1_000)}
    async with remoting_peer(server.remoting_addr, tls) as greedy, remoting_peer(server.remoting_addr, tls) as other:
        greedy.send(register(body=register_body(topics)))
        answering = asyncio.create_task(greedy.answer())
        await eventually(answering.done)
        greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream
        for _ in range(2_000):
            greedy.send(ask(206, opaque=1))
        await eventually(lambda: any(each.unsent for each in connections(server)))
        assert await other.is_answered()
        greedy.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        for _ in range(2_000):
            assert (await greedy.answer()).code == 0


async def test_the_goodbye_of_either_side_ends_a_connection(server: NameServerApp, authority: Authority) -> None:
    async with remoting_peer(server.remoting_addr, context(authority.file)) as peer:
        assert await peer.is_answered()
    await eventually(lambda: not connections(server))
    async with remoting_peer(server.remoting_addr, context(authority.file)) as peer:
        assert await peer.is_answered()
        connections(server)[0].close("idle")
        with pytest.raises(Closed):
            await peer.answer()
