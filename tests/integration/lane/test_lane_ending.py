"""How a connection ends: its client reads why, also if it is still writing, and cannot keep it open."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.daemon.lane.lane_server import CLOSING_SECONDS, CONNECTION_WINDOW, LaneServer
from pointsman.http2.frame_codec import ErrorCode, FrameType
from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_options import SERVER_OPTIONS
from tests.kit.certificates import Authority, Files
from tests.kit.http2.client_frames import data, frames_of
from tests.kit.http2.raw_client import OPENING
from tests.kit.tls_peers import context
from tests.kit.waiting import eventually

WRONG = data(1, b"on an idle stream")
MORE = data(3, bytes(16_000)) * 190
"""Less than the windows allow, and more than one read of the server and the buffers of the kernel take."""


@pytest.fixture(params=["plaintext", "tls"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files | None:
    return Authority(tmp_path).issue("server") if request.param == "tls" else None


@pytest.fixture
async def server(clock: ManualClock, files: Files | None) -> AsyncIterator[LaneServer]:
    server = LaneServer(SERVER_OPTIONS, {}, clock=clock)
    if files is None:
        server.add_insecure_port("127.0.0.1:0")
    else:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(files.certificate, files.key)
        made.set_alpn_protocols(["h2"])
        server.add_secure_port("127.0.0.1:0", lambda: made)
    await server.start()
    yield server
    await server.stop(0)


class Client(asyncio.Protocol):
    """Keeps what it receives, and closes nothing."""

    def __init__(self) -> None:
        self.received = b""
        self.has_read_end = False
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.has_read_end = True
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


async def connected(server: LaneServer, files: Files | None) -> tuple[asyncio.WriteTransport, Client]:
    assert server._socket is not None
    made = None
    if files is not None:
        made = context(files.ca)
        made.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    return await loop.create_connection(
        Client, "localhost", server._socket.getsockname()[1], ssl=made, server_hostname="localhost" if made else None
    )


async def test_a_client_that_is_still_writing_reads_why_its_connection_ends(
    server: LaneServer, files: Files | None
) -> None:
    transport, client = await connected(server, files)
    transport.write(OPENING + WRONG + MORE)
    # asyncio's own TLS closes when it reads the end.
    await eventually(lambda: client.has_read_end or client.lost.done())
    *_, last = frames_of(client.received)
    assert (last.kind, last.payload[4:8]) == (FrameType.GOAWAY, ErrorCode.PROTOCOL_ERROR.to_bytes(4, "big"))
    assert not client.lost.done() or client.lost.result() is None
    assert server.connection_count == 0
    transport.close()
    await eventually(lambda: not server._ended)


@pytest.mark.parametrize("files", [None], ids=["plaintext"])
async def test_a_client_that_does_not_close_is_closed_in_time(server: LaneServer, clock: ManualClock) -> None:
    transport, client = await connected(server, None)
    transport.write(OPENING + WRONG)
    await eventually(lambda: client.has_read_end)
    await clock.advance(CLOSING_SECONDS)
    assert len(server._ended) == 1
    transport.write(b"more, which is not a reason to stay")
    await clock.advance(2.0)
    await eventually(lambda: not server._ended)
    transport.close()


@pytest.mark.parametrize("files", [None], ids=["plaintext"])
async def test_a_client_that_writes_on_is_closed(server: LaneServer) -> None:
    transport, client = await connected(server, None)
    transport.write(OPENING + WRONG)
    await eventually(lambda: client.has_read_end)
    assert len(server._ended) == 1
    transport.write(bytes(CONNECTION_WINDOW + 1))
    await eventually(lambda: not server._ended)
    transport.close()
