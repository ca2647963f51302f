"""Streams without a task: the newest state for a slow client, one write for many streams, and how they end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.rpc.call_tallies import CallMetrics
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended, HandlerTable, Write
from pointsman.http2.frame_codec import ErrorCode, FrameType, reset_frame, window_update_frame
from pointsman.http2.grpc_framing import PREFIX
from pointsman.manual_clock import ManualClock
from pointsman.v1 import route_service_pb2 as wire
from pointsman.wire.channel_options import SERVER_OPTIONS
from pointsman.wire.refusals import NotReady
from tests.kit.http2.raw_client import RawClient, raw_client
from tests.kit.latest_value import LatestValue
from tests.kit.waiting import eventually

ROUTE = wire.DESCRIPTOR.services_by_name["RouteService"]
WATCH = f"/{ROUTE.full_name}/WatchTopicRoutes"


class Servicer:
    """Has one subscription for each watch."""

    def __init__(self) -> None:
        self.watches: list[LatestValue] = []

    async def watch_topic_routes(self, _: bytes, write: Write, peer: Peer) -> LatestValue:
        assert peer.addr.startswith("127.0.0.1:")
        watch = LatestValue()
        self.watches.append(watch)
        await write(b"first")
        return watch

    def __getattr__(self, name: str) -> Any:
        return self.watch_topic_routes  # of the other methods, which no test calls


@dataclass
class Rig:
    """A lane, and what it serves."""

    servicer: Servicer
    table: HandlerTable
    server: LaneServer
    addr: str = ""
    raw: frozenset[str] = field(default_factory=lambda: frozenset(method.name for method in ROUTE.methods))

    @property
    def watches(self) -> list[LatestValue]:
        return self.servicer.watches

    def count(self, code: str) -> int:
        return self.table.metrics.rpcs.labels("WatchTopicRoutes", code).count


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    table = HandlerTable(clock=ManualClock(), metrics=CallMetrics("test", CollectorRegistry()))
    rig = Rig(Servicer(), table, LaneServer(list(SERVER_OPTIONS), table.inline))
    rig.server.add_generic_rpc_handlers([table.service(ROUTE, rig.servicer, raw=rig.raw)])
    rig.addr = f"127.0.0.1:{rig.server.add_insecure_port('127.0.0.1:0')}"
    await rig.server.start()
    yield rig
    await rig.server.stop(0)
    assert all(watch.is_closed for watch in rig.watches)


async def open_watches(rig: Rig, client: RawClient, count: int = 1) -> None:
    for _ in range(count):
        client.call("WatchTopicRoutes", b"")
    for _ in range(count):
        assert await message(client) == b"first"
    await eventually(lambda: all(watch.stream is not None for watch in rig.watches))


async def message(client: RawClient) -> bytes:
    """Read the next message, whatever the frames are."""
    content = b""
    while len(content) < PREFIX.size or len(content) < PREFIX.size + PREFIX.unpack_from(content)[1]:
        frame = await client.frame()
        if frame.kind is FrameType.DATA:
            content += frame.payload
    return content[PREFIX.size :]


async def test_values_arrive_and_no_task_waits_for_them(rig: Rig) -> None:
    async with raw_client(rig.addr, ROUTE.full_name) as client:
        await open_watches(rig, client)
        await eventually(lambda: not rig.server._tasks)
        for value in (b"1", b"2"):
            rig.watches[0].set(value)
            assert await message(client) == value


async def test_a_client_that_does_not_read_gets_the_newest_value_when_it_does(rig: Rig) -> None:
    async with raw_client(rig.addr, ROUTE.full_name) as client:
        await open_watches(rig, client)
        for number in range(10):
            rig.watches[0].set(bytes([number]) * 40_000)
            await asyncio.sleep(0.005)  # its turn, of which nothing can be seen from outside
        assert rig.watches[0].value == bytes([9]) * 40_000, "the window has room for less than two"
        client.write(window_update_frame(0, 1 << 20), window_update_frame(1, 1 << 20))
        assert [(await message(client))[0] for _ in range(3)] == [0, 1, 9]


async def test_a_change_to_many_streams_of_a_connection_is_one_write(rig: Rig) -> None:
    async with raw_client(rig.addr, ROUTE.full_name) as client:
        await open_watches(rig, client, 50)
        [connection] = rig.server._connections
        transport, writes = connection._transport, list[int]()

        class Counting:
            def write(self, data: bytes) -> None:
                writes.append(len(data))
                transport.write(data)  # type: ignore[union-attr]

            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

        connection._transport = Counting()  # type: ignore[assignment]
        for watch in rig.watches:
            watch.set(b"change")
            watch.set(b"change 2")
        assert {await message(client) for _ in range(50)} == {b"change 2"}
        assert len(writes) == 1


async def test_a_stream_that_the_client_resets_is_closed(rig: Rig) -> None:
    async with raw_client(rig.addr, ROUTE.full_name) as client:
        await open_watches(rig, client, 2)
        client.write(reset_frame(1, ErrorCode.CANCEL))
        await eventually(lambda: rig.watches[0].is_closed)
        assert rig.count("CANCELLED") == 1
        rig.watches[0].set(b"too late")
        rig.watches[1].set(b"in time")
        assert await message(client) == b"in time"
    await eventually(lambda: rig.watches[1].is_closed)
    assert rig.count("CANCELLED") == 2
    rig.table.close(NotReady("stopping"))
    await asyncio.wait_for(rig.table.until_quiet(), 5)


def garbage() -> list[object]:
    """What is kept of streams and connections; a test that failed before may keep some."""
    kinds = {"_KeptOpen", "LaneCall", "LaneConnection", "Http2Connection"}
    return [each for each in gc.get_objects() if type(each).__name__ in kinds]


async def test_a_stream_that_has_ended_leaves_no_garbage_cycles(rig: Rig) -> None:
    gc.collect()
    gc.disable()
    before = set(map(id, garbage()))
    try:
        async with raw_client(rig.addr, ROUTE.full_name) as client:
            await open_watches(rig, client, 2)
            client.write(reset_frame(1, ErrorCode.CANCEL))
            await eventually(lambda: rig.watches[0].is_closed)
        await eventually(lambda: rig.watches[1].is_closed)
        for watch in rig.watches:
            watch.stream = None
        await asyncio.sleep(0.05)  # the loop drops the connection
        assert not [each for each in garbage() if id(each) not in before]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("error", "code"),
    [(Ended(NotReady("over")), grpc.StatusCode.UNAVAILABLE), (ValueError("a bug"), grpc.StatusCode.INTERNAL)],
)
async def test_the_server_ends_a_stream_with_a_status(rig: Rig, error: Exception, code: grpc.StatusCode) -> None:
    async with grpc.aio.insecure_channel(rig.addr) as channel:
        call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH)
        watch = call(b"")
        assert await watch.read() == b"first"
        await eventually(lambda: rig.watches[0].stream is not None)
        if isinstance(error, Ended):
            assert rig.watches[0].stream is not None
            rig.watches[0].stream.end(error)
            rig.watches[0].stream.end(error)
        else:
            rig.watches[0].error = error
            rig.watches[0].set(b"")
        assert await watch.code() is code
        assert rig.watches[0].is_closed
        assert rig.count(code.name) == 1


async def test_the_deadline_of_the_client_ends_a_stream(rig: Rig) -> None:
    async with grpc.aio.insecure_channel(rig.addr) as channel:
        call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH)
        watch = call(b"", timeout=0.3)
        assert await watch.read() == b"first"
        assert await watch.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: rig.watches[0].is_closed)
