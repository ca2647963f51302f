"""Clients with certificates and tokens: whom they trust, what they send, error texts, rotation under a watch."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_opener import POLL_INTERVAL_SECONDS
from pointsman_client import (
    AccessDeniedError,
    Credentials,
    InvalidOptionError,
    NameServerClient,
    NameServersUnavailableError,
    Producer,
)
from pointsman_client.client_options import ClientOptions
from pointsman_client.memory import MemoryTransport
from pointsman_client.pointsman_grpc.links import OpenChannel, open_channel
from pointsman_client.pointsman_grpc.thread_channel import open_thread_channel
from pointsman_client.prometheus import PrometheusMetrics
from tests.kit.certificates import Authority, Files
from tests.kit.ctl.process import ctl_process
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, broker_data, scripted_route_server, topic_route
from tests.kit.tls_peers import tls_config
from tests.kit.waiting import eventually

TOKEN = "token-of-this-test"


@pytest.fixture(params=[open_channel, open_thread_channel], ids=["aio", "threads"])
def opening(request: pytest.FixtureRequest) -> OpenChannel:
    found: OpenChannel = request.param
    return found


def server_credentials(files: Files, client_ca: Path | None) -> grpc.ServerCredentials:
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    ca = client_ca.read_bytes() if client_ca else None
    return grpc.ssl_server_credentials([pair], ca, require_client_auth=ca is not None)


@asynccontextmanager
async def tls_server(files: Files | None, *, client_ca: Path | None = None) -> AsyncIterator[ScriptedRouteServer]:
    """A name server with the topic orders; ``client_ca``: clients must have a certificate of it. No files: no TLS."""
    credentials = server_credentials(files, client_ca) if files is not None else None
    async with scripted_route_server(credentials=credentials) as server:
        server.routes["orders"] = topic_route()
        yield server


def mutual(files: Files, *, ca: Path | None = None) -> Credentials:
    return Credentials(ca=str(ca or files.ca), certificate=str(files.certificate), key=str(files.key))


async def failure(addr: str, credentials: Credentials | None, opening: OpenChannel = open_channel) -> str:
    """The cause that the error gives for the one name server."""
    async with NameServerClient(addr, credentials=credentials, open_channel=opening) as client:
        with pytest.raises(NameServersUnavailableError) as raised:
            await client.fetch_route("orders")
    assert raised.value.retriable
    return str(raised.value)


async def test_both_sides_authenticate(authority: Authority, opening: OpenChannel) -> None:
    own = authority.issue("client")
    async with (
        tls_server(authority.issue("server"), client_ca=authority.file) as server,
        NameServerClient(server.addr, credentials=mutual(own), open_channel=opening) as client,
    ):
        await client.topic_route("orders")
        await eventually(lambda: client.describe("orders")["watched"])
    assert {certificate for certificate, _ in server.callers} == {own.certificate.read_bytes()}


async def test_a_real_name_server_serves_and_watches_over_mutual_tls(authority: Authority) -> None:
    own = mutual(authority.issue("client"))
    async with (
        running_name_server(tls=tls_config(authority.issue("server"), mutual=True)) as app,
        NameServerClient(app.addr, credentials=own) as client,
        NameServerClient(app.addr, credentials=Credentials(ca=str(authority.file)), poll_jitter=0.0) as stranger,
    ):
        assert await client.list_topics() == ()
        with pytest.raises(NameServersUnavailableError, match="with a certificate that its client CA signed"):
            await stranger.list_topics()


async def test_a_certificate_of_another_name_is_accepted_with_its_server_name(authority: Authority) -> None:
    server_files = authority.issue("server", "ns1.example")
    async with tls_server(server_files) as server:
        assert "certificate is for another host" in await failure(server.addr, Credentials(ca=str(authority.file)))
        named = Credentials(ca=str(authority.file), server_name="ns1.example")
        async with NameServerClient(server.addr, credentials=named) as client:
            assert (await client.fetch_route("orders")).topic == "orders"


async def test_an_expired_certificate_is_named(authority: Authority, opening: OpenChannel) -> None:
    expired = authority.issue("server", expires=dt.datetime.now(dt.UTC) - dt.timedelta(days=1))
    async with tls_server(expired) as server:
        text = await failure(server.addr, Credentials(ca=str(authority.file)), opening)
    assert "the server's certificate has expired" in text


async def test_a_certificate_of_an_unknown_ca_is_named(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    async with tls_server(other.issue("server")) as server:
        assert "not signed by a trusted CA" in await failure(server.addr, Credentials(ca=str(authority.file)))
        assert "not signed by a trusted CA" in await failure(server.addr, Credentials(tls=True))


@pytest.fixture
def self_signed(tmp_path: Path, authority: Authority) -> Files:
    files = Files(authority.file, tmp_path / "self.pem", tmp_path / "self.key")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    outputs = ["-keyout", str(files.key), "-out", str(files.certificate)]
    subprocess.run([*command.split(), *outputs], check=True, capture_output=True)
    return files


async def test_a_self_signed_certificate_is_named(self_signed: Files, authority: Authority) -> None:
    files = self_signed
    async with tls_server(files) as server:
        assert "self-signed" in await failure(server.addr, Credentials(ca=str(authority.file)))
        trusting = Credentials(ca=str(files.certificate))
        async with NameServerClient(server.addr, credentials=trusting) as client:
            assert (await client.fetch_route("orders")).topic == "orders"


async def test_tls_on_one_side_alone_is_named(authority: Authority, opening: OpenChannel) -> None:
    async with tls_server(None) as server:
        assert "does not use TLS" in await failure(server.addr, Credentials(ca=str(authority.file)), opening)
    async with tls_server(authority.issue("server")) as server:
        assert "if it uses TLS, set tls here" in await failure(server.addr, None, opening)


async def test_an_own_certificate_that_the_server_rejects_is_hinted_at(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "other").issue("stranger")
    expired = authority.issue("old", expires=dt.datetime.now(dt.UTC) - dt.timedelta(days=1))
    async with tls_server(authority.issue("server"), client_ca=authority.file) as server:
        for files in (stranger, expired):
            text = await failure(server.addr, mutual(files, ca=authority.file))
            assert "with a certificate that its client CA signed" in text


async def test_a_name_server_without_a_trusted_certificate_counts_as_failed(
    authority: Authority, tmp_path: Path
) -> None:
    imposter = Authority(tmp_path, "other").issue("imposter")
    credentials = Credentials(ca=str(authority.file))
    async with tls_server(imposter) as first, tls_server(authority.issue("server")) as second:
        addrs = [first.addr, second.addr]
        async with NameServerClient(addrs, credentials=credentials, shuffle_name_servers=False) as client:
            assert (await client.topic_route("orders")).topic == "orders"
            assert client.name_server_in_use == second.addr
    assert first.callers == []


async def test_files_that_cannot_be_used_are_an_error_of_the_constructor(authority: Authority) -> None:
    files = authority.issue("client")
    files.key.write_bytes(files.key.read_bytes()[:100])
    for make in (
        lambda: NameServerClient("127.0.0.1:1", credentials=mutual(files)),
        lambda: Producer("127.0.0.1:1", transport=MemoryTransport, credentials=mutual(files)),
    ):
        with pytest.raises(InvalidOptionError, match=rf"credentials.*key: {files.key} is cut short"):
            make()


async def test_a_client_that_is_passed_in_keeps_its_credentials() -> None:
    client = NameServerClient("127.0.0.1:1")
    with pytest.raises(InvalidOptionError, match="must be set on the client passed in"):
        Producer(client, transport=MemoryTransport, credentials=Credentials(tls=True))
    assert ClientOptions("127.0.0.1:1").credentials is None


# Tokens


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    write_token(file, f"{TOKEN}\n")
    return file


def write_token(file: Path, token: str) -> None:
    file.write_text(token, encoding="ascii")


async def test_a_token_is_sent_over_tls_and_to_loopback(
    authority: Authority, token_file: Path, opening: OpenChannel
) -> None:
    over_tls = Credentials(ca=str(authority.file), token_file=str(token_file))
    async with tls_server(authority.issue("server")) as secure, tls_server(None) as local:
        for server, credentials in ((secure, over_tls), (local, Credentials(token_file=str(token_file)))):
            async with NameServerClient(server.addr, credentials=credentials, open_channel=opening) as client:
                await client.topic_route("orders")
                await eventually(lambda: client.describe("orders")["watched"])
            assert {sent for _, sent in server.callers} == {f"Bearer {TOKEN}"}


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probing:
        try:
            probing.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has loopback alone")
        return str(probing.getsockname()[0])


async def test_a_token_beyond_loopback_without_tls_is_refused_before_a_byte_is_sent(
    token_file: Path, opening: OpenChannel
) -> None:
    received: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1_000))
        writer.close()

    listener = await asyncio.start_server(accept, own_address(), 0)
    host, port = listener.sockets[0].getsockname()
    async with listener:
        text = await failure(f"{host}:{port}", Credentials(token_file=str(token_file)), opening)
        await eventually(lambda: received)
    assert "a token is sent over TLS, or to loopback only, and was not sent: set tls or ca" in text
    assert TOKEN not in text
    assert set(received) == {b""}


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
async def test_a_denied_call_names_the_remedy_and_other_name_servers_are_tried(status: grpc.StatusCode) -> None:
    hints = {
        grpc.StatusCode.UNAUTHENTICATED: "use credentials that it accepts",
        grpc.StatusCode.PERMISSION_DENIED: "grant the role in [[access.grants]]",
    }
    async with tls_server(None) as first, tls_server(None) as second:
        first.fail_with(status)
        second.fail_with(status)
        addrs = [first.addr, second.addr]
        async with NameServerClient(addrs, shuffle_name_servers=False) as client:
            with pytest.raises(AccessDeniedError) as raised:
                await client.topic_route("orders")
            assert not raised.value.retriable
            assert raised.value.status is status
            assert hints[status] in str(raised.value)
            assert first.addr in str(raised.value)
            second.recover()
            assert (await client.topic_route("orders")).topic == "orders"


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "give --tls-certificate and --tls-key, or --token-file"),
        (grpc.StatusCode.PERMISSION_DENIED, "grant the role in [[access.grants]] of that server"),
    ],
)
async def test_pointsmanctl_prints_one_line_for_a_denied_call(
    token_file: Path, status: grpc.StatusCode, hint: str
) -> None:
    async with tls_server(None) as server:
        server.fail_with(status)
        for command in ("route orders", "topics"):
            ended = await ctl_process(
                *command.split(), POINTSMAN_NAMESRV=server.addr, POINTSMAN_TOKEN_FILE=str(token_file)
            )
            assert (ended.code, ended.out) == (1, "")
            assert f"{server.addr} rejected the request: scripted {status.name}; {hint}" in ended.err
            assert len(ended.err.splitlines()) == 1
    assert {sent for _, sent in server.callers} == {f"Bearer {TOKEN}"}


# Rotation


async def test_a_watch_survives_three_rotations_and_new_calls_present_the_new_certificates(
    authority: Authority, tmp_path: Path, clock: ManualClock, opening: OpenChannel
) -> None:
    own = authority.issue("client")
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry, clock=clock)
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())

    def applied() -> float | None:
        return registry.get_sample_value("pointsman_client_credential_reloads_total", {"result": "applied"})

    async with (
        tls_server(authority.issue("server"), client_ca=authority.file) as server,
        NameServerClient(
            server.addr, credentials=mutual(own, ca=trusted), clock=clock, metrics_hook=metrics, open_channel=opening
        ) as client,
    ):
        await client.topic_route("orders")
        await eventually(lambda: client.describe("orders")["watched"], clock=clock)
        for rotation in (1, 2, 3):
            authority.issue("client")
            # The CA is replaced, too, by a bundle of the one in use and the next.
            with trusted.open("ab") as bundle:
                bundle.write(Authority(tmp_path, f"next-{rotation}").file.read_bytes())
            await clock.advance(POLL_INTERVAL_SECONDS)
            await eventually(lambda: applied() == rotation, clock=clock)  # noqa: B023  # awaited here
            await client.fetch_route("orders")
            assert server.callers[-1][0] == own.certificate.read_bytes()
            server.routes["orders"] = topic_route(groups=[broker_data(f"broker-{rotation}")])
            server.push("orders")
            await eventually(lambda: client.broker("DefaultCluster", f"broker-{rotation}"))  # noqa: B023  # as above
        assert server.calls["WatchTopicRoutes"] == 1
        assert len({certificate for certificate, _ in server.callers}) == 4


async def test_files_that_cannot_be_used_leave_the_last_valid_ones_in_use(
    authority: Authority, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    own = authority.issue("client")
    results: list[str] = []

    class Hook(PrometheusMetrics):
        def credentials_reloaded(self, *, result: str) -> None:
            results.append(result)

    hook = Hook(CollectorRegistry(), clock=clock)
    caplog.set_level(logging.INFO, "pointsman.wire.channel_opener")
    async with (
        tls_server(authority.issue("server"), client_ca=authority.file) as server,
        NameServerClient(server.addr, credentials=mutual(own), clock=clock, metrics_hook=hook) as client,
    ):
        valid = own.certificate.read_bytes()
        own.certificate.write_bytes(valid[:200])
        for _ in range(3):
            await clock.advance(POLL_INTERVAL_SECONDS)
            await eventually(lambda: results, clock=clock)
        own.certificate.unlink()
        await clock.advance(POLL_INTERVAL_SECONDS)
        await eventually(lambda: len(results) == 2, clock=clock)
        await client.fetch_route("orders")
        assert server.callers[-1][0] == valid
        authority.issue("client")
        await clock.advance(POLL_INTERVAL_SECONDS)
        await eventually(lambda: len(results) == 3, clock=clock)
        await client.fetch_route("orders")
        assert server.callers[-1][0] == own.certificate.read_bytes()
    assert results == ["rejected", "rejected", "applied"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert f"certificate: {own.certificate} is cut short" in caplog.messages[0]


async def test_a_new_token_is_sent_by_new_calls(token_file: Path, clock: ManualClock) -> None:
    async with (
        tls_server(None) as server,
        NameServerClient(server.addr, credentials=Credentials(token_file=str(token_file)), clock=clock) as client,
    ):
        await client.fetch_route("orders")
        write_token(token_file, "another-token")
        await clock.advance(POLL_INTERVAL_SECONDS)
        await eventually(lambda: client._opener.version == 1, clock=clock)
        await client.fetch_route("orders")
    assert [sent for _, sent in server.callers] == [f"Bearer {TOKEN}", "Bearer another-token"]


# Without an event loop

FORKED = """
import os, sys
from pointsman_client import Credentials
from pointsman_client.sync import NameServerClient

addr, ca, certificate, key, token_file = sys.argv[1:]
credentials = Credentials(ca=ca, certificate=certificate, key=key, token_file=token_file)
made_before = NameServerClient(addr, credentials=credentials)
with NameServerClient(addr, credentials=credentials) as parents:
    assert parents.topic_route("orders").topic == "orders"
    child = os.fork()
    if child == 0:
        with made_before, NameServerClient(addr, credentials=credentials) as own:
            routes = made_before.topic_route("orders"), own.topic_route("orders")
        os._exit(0 if all(route.topic == "orders" for route in routes) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), parents.fetch_route("orders").topic)
"""


async def test_the_blocking_client_works_with_certificates_and_a_token_in_a_forked_child(
    authority: Authority, token_file: Path
) -> None:
    own = authority.issue("client")
    async with tls_server(authority.issue("server"), client_ca=authority.file) as server:
        arguments = [server.addr, *map(str, (own.ca, own.certificate, own.key, token_file))]
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", FORKED, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            printed, errors = await program.communicate()
    assert (printed.split(), program.returncode) == ([b"0", b"orders"], 0), errors.decode()
    assert {sent for _, sent in server.callers} == {f"Bearer {TOKEN}"}
