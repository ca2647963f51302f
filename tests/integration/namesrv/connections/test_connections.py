"""Idle connections are closed, and connections with an open stream are not, even if it is quiet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from pointsman.wire.channel_options import SERVER_OPTIONS
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.rpc.node_server import node_options
from tests.kit.certificates import Authority
from tests.kit.faults.hostile import client_hello

SHORT_MS = 1_000
"""In place of minutes; gRPC counts no shorter time."""
LONG_MS = 60_000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@asynccontextmanager
async def bare_server(credentials: grpc.ServerCredentials | None = None, **options: int) -> AsyncIterator[int]:
    """A server with the product's options except those given here; yields its port."""
    changed = dict(SERVER_OPTIONS) | {f"grpc.{name}": value for name, value in options.items()}
    assert changed.keys() == dict(SERVER_OPTIONS).keys()

    async def watch(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.write(request)
        await asyncio.Event().wait()

    async def beat(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        async for request in requests:
            await context.write(request)

    server = grpc.aio.server(options=list(changed.items()))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
        "Beat": grpc.stream_stream_rpc_method_handler(beat),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    if credentials is not None:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


async def ends(port: int, *, says: bytes = b"") -> float:
    """Open a connection, send something, and return the seconds until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(says)
    started = time.monotonic()
    async with asyncio.timeout(30):
        while await reader.read(1_000):
            pass
    writer.close()
    await writer.wait_closed()
    return time.monotonic() - started


def test_idle_connections_have_five_minutes_and_handshakes_ten_seconds() -> None:
    options = dict(SERVER_OPTIONS)
    assert options["grpc.max_connection_idle_ms"] == 300_000
    assert options["grpc.server_handshake_timeout_ms"] == 10_000


@pytest.mark.parametrize("says", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n"])
async def test_a_handshake_that_does_not_end_is_ended(says: bytes) -> None:
    async with bare_server(server_handshake_timeout_ms=SHORT_MS, max_connection_idle_ms=LONG_MS) as port:
        assert 0.9 < await ends(port, says=says) < 10


async def test_a_connection_without_a_call_is_closed() -> None:
    async with bare_server(server_handshake_timeout_ms=LONG_MS, max_connection_idle_ms=SHORT_MS) as port:
        assert 0.5 < await ends(port, says=PREFACE) < 10


async def test_quiet_watches_and_keep_alive_streams_are_not_idle() -> None:
    async with (
        bare_server(max_connection_idle_ms=SHORT_MS) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        watches: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/bare/Watch")
        watch = watches(b"state")
        beats: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream("/bare/Beat")()
        await beats.write(b"beat")
        assert (await watch.read(), await beats.read()) == (b"state", b"beat")
        await asyncio.sleep(2.5 * SHORT_MS / 1_000)
        assert not watch.done()
        await beats.write(b"again")
        assert await beats.read() == b"again"
        for call in (watch, beats):
            call.cancel()


async def test_a_connection_over_the_limit_is_closed_and_one_that_ends_frees_its_place() -> None:
    server = grpc.aio.server(options=node_options(300.0, 2))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        first, second = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in (first, second):
            writer.write(PREFACE)
            assert await reader.read(1_000)
        assert await ends(port, says=PREFACE) < 5
        first[1].close()
        await first[1].wait_closed()
        async with asyncio.timeout(30):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(PREFACE)
                is_served = bool(await reader.read(1_000))
                writer.close()
                if is_served:
                    break
        second[1].close()
    finally:
        await server.stop(0)


@pytest.mark.parametrize("sent", [0, 1, 100])
async def test_a_tls_handshake_that_does_not_end_is_closed_in_time(tmp_path: Path, sent: int) -> None:
    files = Authority(tmp_path).issue("server")
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    async with bare_server(grpc.ssl_server_credentials([pair]), server_handshake_timeout_ms=SHORT_MS) as port:
        assert await ends(port, says=client_hello()[:sent]) < 10 * SHORT_MS / 1_000


async def test_the_tests_of_the_wire_run_on_the_listener_that_they_name(server: NameServerApp, listener: str) -> None:
    assert server.config.server.listener == listener
