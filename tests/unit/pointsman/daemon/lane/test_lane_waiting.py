"""What bounds count for a connection is not less than its memory."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable

import grpc
import pytest

from pointsman.daemon.lane.lane_call import OPEN_REQUEST_BYTES
from pointsman.daemon.lane.lane_connection import LaneConnection
from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.lane.lane_waiting import UNSENT_STREAM_BYTES
from pointsman.http2.frame_codec import Setting, settings_frame
from pointsman.http2.grpc_framing import message_prefix
from pointsman.http2.header_blocks import EMPTY_TABLE
from tests.kit.http2.client_frames import BLOCK, METHOD, data, headers
from tests.kit.http2.raw_client import OPENING

STREAMS = 1_000
IDLE_BYTES = 2_500
"""Of a connection that was idle since its beginning, without its transport."""


class Transport:
    """Takes everything."""

    def set_write_buffer_limits(self, *, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return name, 1

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, content: bytes) -> None:
        pass


@pytest.fixture
def server() -> LaneServer:
    async def echo(request: bytes, _: object) -> bytes:
        return request

    service, _, method = METHOD.decode().strip("/").partition("/")
    server = LaneServer((), {METHOD.decode(): lambda request, _: request})
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    return server


def memory_of(build: Callable[[], object]) -> tuple[int, object]:
    build()  # what is made once
    gc.collect()
    tracemalloc.start()
    built = build()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size, built


def connected(server: LaneServer, *frames: bytes) -> LaneConnection:
    connection = LaneConnection(server)
    connection.connection_made(Transport())  # type: ignore[arg-type]  # as much as it needs of one
    connection.data_received(OPENING)
    connection.data_received(b"".join(frames))
    return connection


def streams(*of_each: Callable[[int], bytes]) -> bytes:
    first = headers(1, EMPTY_TABLE + BLOCK)
    opened = [first, *(headers(1 + 2 * n) for n in range(1, STREAMS))]
    return b"".join(begin + b"".join(f(1 + 2 * n) for f in of_each) for n, begin in enumerate(opened))


async def test_an_idle_connection_is_small(server: LaneServer) -> None:
    server.loop = asyncio.get_running_loop()
    size, _ = memory_of(lambda: connected(server))
    assert size < IDLE_BYTES


async def test_a_request_that_only_begins_counts_as_much_as_it_takes(server: LaneServer) -> None:
    server.loop = asyncio.get_running_loop()
    content = streams()
    size, _ = memory_of(lambda: connected(server, content))
    assert size < STREAMS * OPEN_REQUEST_BYTES


async def test_a_response_that_waits_counts_as_much_as_it_takes(server: LaneServer) -> None:
    server.loop = asyncio.get_running_loop()
    content = settings_frame({Setting.INITIAL_WINDOW_SIZE: 0})
    content += streams(lambda stream_id: data(stream_id, message_prefix(1) + b"a", is_end=True))
    size, connection = memory_of(lambda: connected(server, content))
    assert isinstance(connection, LaneConnection)
    assert connection.http2.unsent_streams == STREAMS
    assert size < STREAMS * UNSENT_STREAM_BYTES
