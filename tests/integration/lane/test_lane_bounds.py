"""What clients of the lane may make it keep, and for how long."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import grpc
import pytest

from pointsman.daemon.lane import lane_connection
from pointsman.daemon.lane.lane_call import OPEN_REQUEST_BYTES
from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.lane.lane_waiting import UNREAD_SECONDS, UNSENT_STREAM_BYTES
from pointsman.daemon.rpc.calling_peer import Context
from pointsman.daemon.waiting_bytes import FRAME_SECONDS, RELIEF_SECONDS, SLOW_SECONDS
from pointsman.http2.frame_codec import (
    DEFAULT_WINDOW,
    ErrorCode,
    FrameType,
    Setting,
    frame,
    ping_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.grpc_framing import GrpcStatus, message_prefix
from pointsman.http2.peer_limits import Bound
from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_options import SERVER_OPTIONS
from tests.kit.http2.client_frames import data, headers
from tests.kit.http2.raw_client import RawClient, raw_client
from tests.kit.waiting import eventually

SERVICE = "pointsman.test.Bounds"
LARGE = bytes(300_000)
HALF = message_prefix(3_000_000) + bytes(10_000)


@dataclass
class Handlers:
    """Methods of two kinds."""

    takes: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, request: bytes, _: Context) -> bytes:
        return request

    async def large(self, request: bytes, _: Context) -> bytes:
        """Return the same object for each call, or another one for each."""
        return LARGE if request == b"shared" else bytes(len(LARGE))

    async def join(self, requests: AsyncIterator[bytes], _: Context) -> bytes:
        await self.takes.wait()
        return b"%d" % sum([len(request) async for request in requests])

    async def flood(self, _: bytes, context: Context) -> None:
        while True:
            await context.write(LARGE)

    def table(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
                "Large": grpc.unary_unary_rpc_method_handler(self.large),
                "Join": grpc.stream_unary_rpc_method_handler(self.join),
                "Flood": grpc.unary_stream_rpc_method_handler(self.flood),
            },
        )


@pytest.fixture
def handlers() -> Handlers:
    handlers = Handlers()
    handlers.takes.set()
    return handlers


@pytest.fixture
async def server(clock: ManualClock, handlers: Handlers) -> AsyncIterator[LaneServer]:
    server = LaneServer(SERVER_OPTIONS, {}, clock=clock)
    server.add_generic_rpc_handlers([handlers.table()])
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield server
    await server.stop(0)
    assert server.coming_in.total == server.unsent.total == 0
    assert not server.coming_in._incomplete
    assert not server.unsent._unread


@asynccontextmanager
async def client(server: LaneServer) -> AsyncIterator[RawClient]:
    assert server._socket is not None
    addr = f"127.0.0.1:{server._socket.getsockname()[1]}"
    async with raw_client(addr, SERVICE) as raw:
        assert await is_served(raw)
        yield raw


async def is_served(raw: RawClient) -> bool:
    raw.call("Echo", b"a")
    return (await raw.until_end())[1].payload.endswith(b"a")


async def ending(raw: RawClient) -> tuple[ErrorCode, bytes]:
    """The GOAWAY after which the server closes."""
    while (last := await raw.frame()).kind is not FrameType.GOAWAY:
        pass
    assert await raw.reader.read() == b""
    return ErrorCode(int.from_bytes(last.payload[4:8], "big")), last.payload[8:]


async def status(raw: RawClient) -> int:
    trailers = (await raw.until_end())[-1].payload
    _, _, rest = trailers.partition(b"grpc-status")
    return int(rest[1 : 1 + rest[0]])


async def received(raw: RawClient) -> None:
    """Wait until the server has read what was sent."""
    raw.write(ping_frame(b"received"))
    while (await raw.frame()).kind is not FrameType.PING:
        pass


def counts(server: LaneServer) -> dict[Bound, int]:
    return dict(server.shared.excesses.counts)


# --- requests that do not continue ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"\0", id="frame-header"),
        pytest.param(data(1, b"a" * 100)[:-1], id="frame"),
        pytest.param(headers(101, flags=0), id="header-block"),
        pytest.param(headers(101, flags=0) + frame(FrameType.CONTINUATION, 0, 101, b"")[:-1], id="continuation"),
    ],
)
async def test_a_frame_or_header_block_that_does_not_continue_ends_its_connection(
    server: LaneServer, clock: ManualClock, begun: bytes
) -> None:
    async with client(server) as raw:
        raw.write(begun)
        await eventually(lambda: server.coming_in.total > 0)
        await clock.advance(FRAME_SECONDS - 1)
        assert counts(server) == {}
        await clock.advance(3)
        assert await ending(raw) == (ErrorCode.ENHANCE_YOUR_CALM, b"a frame or header block took too long")
    assert counts(server) == {Bound.SLOW_REQUESTS: 1}


async def received_more(server: LaneServer, octets: int) -> None:
    await eventually(lambda: server.coming_in.total > octets or counts(server))


async def test_a_header_block_of_an_octet_at_a_time_is_one_that_does_not_continue(
    server: LaneServer, clock: ManualClock
) -> None:
    async with client(server) as raw:
        raw.write(headers(101, flags=0))
        for second in range(20):
            raw.write(frame(FrameType.CONTINUATION, 0, 101, b"a"))
            await received_more(server, second)
            await clock.advance(1)
            if counts(server):
                break
        assert counts(server) == {Bound.SLOW_REQUESTS: 1}
        assert second < 15
        assert (await ending(raw))[0] is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("cut", [-1, 3], ids=["within-a-frame", "within-a-message"])
async def test_what_arrives_in_parts_is_not_what_came_before(server: LaneServer, clock: ManualClock, cut: int) -> None:
    """At any time a frame or message is incomplete, and each is complete in half of its time."""
    async with client(server) as raw:
        stream_id = raw.begin("Join")
        message = message_prefix(5) + b"12345"
        if cut < 0:
            sent = data(stream_id, message)
            begin, between, rest = sent[:cut], sent[cut:] + sent[:cut], sent[cut:]
        else:
            parts = message[:cut], message[cut:] + message[:cut], message[cut:]
            begin, between, rest = (data(stream_id, part) for part in parts)
        [connection] = server._connections
        raw.write(begin)
        for _ in range(5):
            await eventually(lambda: server.coming_in.total > 0)
            await clock.advance(FRAME_SECONDS / 2)
            raw.write(between)
            await eventually(lambda: connection.received_at == clock.now)
        raw.write(rest, data(stream_id, is_end=True))
        assert (await raw.until_end())[1].payload.endswith(b"30")
    assert counts(server) == {}


@pytest.mark.parametrize(
    ("method", "begun"),
    [("Echo", b""), ("Echo", b"\0\0"), ("Echo", HALF[:1_000]), ("Join", b"\0\0"), ("Join", HALF[:1_000])],
)
async def test_a_message_that_does_not_continue_ends_its_call_and_no_other(
    server: LaneServer, clock: ManualClock, method: str, begun: bytes
) -> None:
    async with client(server) as raw:
        stream_id = raw.begin(method)
        if begun:
            raw.write(data(stream_id, begun))
        await eventually(lambda: server.coming_in.total > 0)
        await clock.advance(FRAME_SECONDS - 1)
        assert await is_served(raw)
        await clock.advance(3)
        assert await status(raw) == GrpcStatus.DEADLINE_EXCEEDED
        assert server.coming_in.total == 0
        assert await is_served(raw)
    assert counts(server) == {Bound.SLOW_REQUESTS: 1}


async def test_an_answered_request_must_end_or_be_reset(server: LaneServer, clock: ManualClock) -> None:
    async with client(server) as raw, client(server) as other:
        for each in (raw, other):
            for _ in range(100):
                last = each.begin("Nothing")
                assert await status(each) == GrpcStatus.UNIMPLEMENTED
        await clock.advance(FRAME_SECONDS - 1)
        for stream_id in range(last, 1, -2):
            other.write(frame(FrameType.RST_STREAM, 0, stream_id, bytes(4)))
        await received(other)
        assert counts(server) == {}
        await clock.advance(4)
        assert await ending(raw) == (ErrorCode.ENHANCE_YOUR_CALM, b"an answered request did not end")
        await clock.advance(2 * FRAME_SECONDS)
        assert await is_served(other)
    assert counts(server) == {Bound.SLOW_REQUESTS: 1}


async def test_a_large_message_needs_a_rate(server: LaneServer, clock: ManualClock) -> None:
    size, step = 200_000, 16_000
    async with client(server) as raw:
        fast = raw.send("Echo", message_prefix(size), is_end=False)
        slow = raw.send("Echo", message_prefix(size), is_end=False)
        for sent in range(step, size, step):
            raw.write(data(fast, bytes(step)), data(slow, b"a"))
            await received(raw)
            await clock.advance(1)  # the first 64 KiB may take 10 s
            assert server.coming_in.total > sent
        assert counts(server) == {Bound.SLOW_REQUESTS: 1}
        await clock.advance(1)
        raw.write(data(fast, bytes(size % step), is_end=True))
        while (each := await raw.frame()).stream_id != fast:
            pass
        assert b"grpc-status" not in each.payload


async def test_a_stream_may_be_silent_between_its_messages(server: LaneServer, clock: ManualClock) -> None:
    async with client(server) as raw:
        stream_id = raw.call("Join", b"12", is_end=False)
        await clock.advance(90)
        raw.write(data(stream_id, message_prefix(1) + b"3", is_end=True))
        assert (await raw.until_end())[1].payload.endswith(b"3")
    assert counts(server) == {}


async def test_what_the_server_holds_back_is_not_slow(
    server: LaneServer, clock: ManualClock, handlers: Handlers
) -> None:
    """The window of the stream is closed, because the handler takes nothing."""
    handlers.takes.clear()
    window = server.shared.limits.stream_window
    async with client(server) as raw:
        stream_id = raw.send("Join", b"", is_end=False)
        message = message_prefix(12_000) + bytes(12_000)
        content = (message * (window // len(message) + 1))[:window]
        for at in range(0, window, 16_000):
            raw.write(data(stream_id, content[at : at + 16_000]))
        await eventually(lambda: server.coming_in.total > window * 9 // 10)
        await clock.advance(60)
        assert counts(server) == {}
        handlers.takes.set()
        while (each := await raw.frame()).kind is not FrameType.WINDOW_UPDATE or not each.stream_id:
            pass
        rest = len(message) - window % len(message)
        raw.write(data(stream_id, bytes(rest), is_end=True))
        assert (await raw.until_end())[1].payload.endswith(b"%d" % (12_000 * (window // len(message) + 1)))


async def test_a_pause_of_this_process_is_not_time_of_its_clients(server: LaneServer, clock: ManualClock) -> None:
    async with client(server) as raw:
        stream_id = raw.send("Echo", b"\0\0", is_end=False)
        await eventually(lambda: server.coming_in.total > 0)
        await clock.pause(60)
        assert counts(server) == {}
        raw.write(data(stream_id, b"\0\0\1a", is_end=True))
        assert (await raw.until_end())[1].payload.endswith(b"a")


# --- what all connections have sent -----------------------------------------------------------------------------


async def test_half_messages_are_bounded_together_and_a_fast_one_only_waits(
    server: LaneServer, clock: ManualClock
) -> None:
    server.coming_in.bound = 60_000
    async with AsyncExitStack() as open_:
        slow = [await open_.enter_async_context(client(server)) for _ in range(5)]
        for raw in slow:
            raw.send("Echo", HALF, is_end=False)
        await eventually(lambda: server.coming_in.total > 50_000)
        await clock.advance(SLOW_SECONDS)
        fast = await open_.enter_async_context(client(server))
        fast.send("Echo", message_prefix(16_000) + bytes(16_000), is_end=False)
        await eventually(lambda: Bound.RECEIVED_BYTES in counts(server))
        assert server.coming_in.total <= 60_000
        await clock.advance(RELIEF_SECONDS)
        fast.write(data(3, b"", is_end=True))
        assert len(b"".join(each.payload for each in (await fast.until_end())[1:-1])) == 16_005
        closed = counts(server)[Bound.RECEIVED_BYTES]
        assert 1 <= closed < len(slow)
        assert server.connection_count == 1 + len(slow) - closed


async def test_requests_that_only_begin_count_too(server: LaneServer) -> None:
    async with client(server) as raw:
        for _ in range(100):
            raw.begin("Echo")
        await eventually(lambda: server.coming_in.total == 100 * OPEN_REQUEST_BYTES)
        raw.write(frame(FrameType.RST_STREAM, 0, 3, bytes(4)))
        await eventually(lambda: server.coming_in.total == 99 * OPEN_REQUEST_BYTES)


async def test_compressed_messages_are_kept_as_they_came(server: LaneServer, handlers: Handlers) -> None:
    handlers.takes.clear()
    bomb = gzip.compress(bytes(4_000_000))
    async with client(server) as raw:
        message = message_prefix(len(bomb), compressed=True) + bomb
        stream_id = raw.send("Join", message, (b"grpc-encoding", b"gzip"), is_end=False)
        for _ in range(9):
            raw.write(data(stream_id, message))
        raw.write(data(stream_id, is_end=True))
        await eventually(lambda: server.coming_in.total == 10 * len(bomb))
        handlers.takes.set()
        assert (await raw.until_end())[1].payload.endswith(b"40000000")


# --- responses that are not read --------------------------------------------------------------------------------


def closed_windows(raw: RawClient) -> None:
    raw.write(settings_frame({Setting.INITIAL_WINDOW_SIZE: 0}))


@pytest.mark.parametrize("method", ["Large", "Flood"])
async def test_a_response_of_which_nothing_is_taken_ends_and_others_do_not(
    server: LaneServer, clock: ManualClock, method: str
) -> None:
    async with client(server) as raw:
        closed_windows(raw)
        stream_id = raw.call(method, b"")
        await eventually(lambda: server.unsent.total > len(LARGE))
        await clock.advance(UNREAD_SECONDS - 5)
        raw.write(window_update_frame(stream_id, 1))  # something is taken: its time begins again
        while (await raw.frame()).kind is not FrameType.DATA:
            pass
        await clock.advance(UNREAD_SECONDS - 5)
        assert counts(server) == {}
        await clock.advance(10)
        while (each := await raw.frame()).kind is not FrameType.RST_STREAM:
            pass
        assert (each.stream_id, each.payload) == (stream_id, ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4, "big"))
        assert server.unsent.total == 0
        raw.write(settings_frame({Setting.INITIAL_WINDOW_SIZE: DEFAULT_WINDOW}))
        assert await is_served(raw)
    assert counts(server) == {Bound.UNREAD_RESPONSES: 1}


async def test_a_client_that_reads_nothing_from_its_socket_is_closed_in_time(
    server: LaneServer, clock: ManualClock
) -> None:
    async with client(server) as raw:
        raw.write(settings_frame({Setting.INITIAL_WINDOW_SIZE: 1 << 30}), window_update_frame(0, 1 << 30))
        raw.call("Flood", b"")
        await eventually(lambda: server.unsent.total > lane_connection.UNSENT_BYTES)
        begun_at = clock.now
        await eventually(lambda: server.connection_count == 0, clock=clock, step=1)
        assert clock.now - begun_at > UNREAD_SECONDS
    assert counts(server) == {Bound.UNREAD_RESPONSES: 1}


def is_unsent(server: LaneServer, octets: int) -> bool:
    return server.unsent.total == octets


async def test_a_content_that_many_do_not_read_counts_once(server: LaneServer) -> None:
    async with AsyncExitStack() as open_:
        for number in range(1, 6):
            raw = await open_.enter_async_context(client(server))
            closed_windows(raw)
            raw.call("Large", b"shared")
            most = len(LARGE) + number * (UNSENT_STREAM_BYTES + 5)
            await eventually(partial(is_unsent, server, most))
    await eventually(lambda: server.unsent.total == 0)


async def test_the_client_that_has_read_nothing_for_longest_is_closed_at_the_bound(
    server: LaneServer, clock: ManualClock
) -> None:
    server.unsent.bound = 3 * len(LARGE)
    async with AsyncExitStack() as open_:
        deaf = []
        for _ in range(4):
            raw = await open_.enter_async_context(client(server))
            closed_windows(raw)
            deaf.append(raw)
            raw.call("Large", b"own")
            await received(raw)
            await clock.advance(1)
        assert counts(server) == {Bound.UNSENT_BYTES: 2}  # their streams count, too
        for raw in deaf[:2]:
            assert (await ending(raw))[0] is ErrorCode.ENHANCE_YOUR_CALM
        assert server.connection_count == 2
        deaf[2].write(window_update_frame(0, 1 << 20), settings_frame({Setting.INITIAL_WINDOW_SIZE: 1 << 20}))
        assert await status(deaf[2]) == GrpcStatus.OK
