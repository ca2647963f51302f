"""Clients of grpcio with the lane: every kind of method, how calls and connections end, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from pointsman.daemon.lane import lane_call, lane_server
from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.rpc.listeners import GRPCIO, LANE, LISTENERS
from pointsman.http2.frame_codec import (
    MAX_STREAM_ID,
    ErrorCode,
    FrameType,
    Setting,
    ping_frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.peer_limits import Bound
from pointsman.wire.channel_options import SERVER_OPTIONS
from tests.kit.http2.client_frames import frames_of
from tests.kit.http2.methods_of_each_kind import SERVICE
from tests.kit.http2.methods_of_each_kind import MethodsOfEachKind as Handlers
from tests.kit.http2.raw_client import OPENING, raw_client
from tests.kit.waiting import eventually

MIB = 1024 * 1024


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@contextlib.asynccontextmanager
async def serving(
    handlers: Handlers, *options: tuple[str, int], port: int = 0
) -> AsyncIterator[tuple[LaneServer, str]]:
    server = LaneServer([*SERVER_OPTIONS, *options], {f"/{SERVICE}/Inline": handlers.inline})
    server.add_generic_rpc_handlers(handlers.table())
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield server, f"127.0.0.1:{bound}"
    finally:
        await server.stop(0)


@pytest.fixture
async def addr(handlers: Handlers) -> AsyncIterator[str]:
    async with serving(handlers) as (_, addr):
        yield addr


@pytest.fixture
async def channel(addr: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(addr) as channel:
        yield channel


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"


def unary_unary(channel: grpc.aio.Channel, method: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(path(method))


def unary_stream(channel: grpc.aio.Channel, method: str) -> grpc.aio.UnaryStreamMultiCallable[bytes, bytes]:
    return channel.unary_stream(path(method))


def stream_unary(channel: grpc.aio.Channel, method: str) -> grpc.aio.StreamUnaryMultiCallable[bytes, bytes]:
    return channel.stream_unary(path(method))


def stream_stream(channel: grpc.aio.Channel, method: str) -> grpc.aio.StreamStreamMultiCallable[bytes, bytes]:
    return channel.stream_stream(path(method))


# --- the kinds of methods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 70_000, 3 * MIB])
@pytest.mark.parametrize("method", ["Echo", "Inline"])
async def test_a_unary_call_of_any_size(channel: grpc.aio.Channel, method: str, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert await unary_unary(channel, method)(message) == message


async def test_many_calls_at_a_time(channel: grpc.aio.Channel) -> None:
    call = unary_unary(channel, "Inline")
    sent = [b"%d" % number * 1_000 for number in range(500)]
    assert await asyncio.gather(*map(call, sent)) == sent


async def test_an_inline_method_may_need_time(channel: grpc.aio.Channel, handlers: Handlers) -> None:
    call = unary_unary(channel, "Inline")
    later = asyncio.ensure_future(call(b"later"))
    await eventually(lambda: "begun" in handlers.seen)
    assert await call(b"now") == b"now"
    handlers.release.set()
    assert await later == b"later"


async def test_responses_stream(channel: grpc.aio.Channel) -> None:
    assert [each async for each in unary_stream(channel, "Count")(b"1000")] == [b"%d" % each for each in range(1_000)]
    assert [each async for each in unary_stream(channel, "Count")(b"0")] == []


async def test_requests_stream(channel: grpc.aio.Channel) -> None:
    messages = [b"a" * 100_000, b"", b"b"] * 20
    assert await stream_unary(channel, "Join")(iter(messages)) == b",".join(messages)
    assert await stream_unary(channel, "Join")(iter(())) == b""
    small = [b"a" * 1_000] * 3_000  # together more than the windows
    assert await stream_unary(channel, "Join")(iter(small)) == b",".join(small)


@pytest.mark.parametrize("method", ["Talk", "Generate"])
async def test_both_stream(channel: grpc.aio.Channel, method: str) -> None:
    call = stream_stream(channel, method)()
    for number in range(100):
        await call.write(b"%d" % number)
        assert await call.read() == b"%d" % number
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_the_blocking_client_works_too(addr: str) -> None:
    def call_each() -> tuple[bytes, list[bytes], list[bytes]]:
        with grpc.insecure_channel(addr) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path("Echo"))
            count: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path("Count"))
            talk: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(path("Talk"))
            return call(b"a"), list(count(b"3")), list(talk(iter([b"a", b"b"])))

    assert await asyncio.to_thread(call_each) == (b"a", [b"0", b"1", b"2"], [b"A", b"B"])


async def test_a_handler_has_the_metadata_of_its_client(channel: grpc.aio.Channel, handlers: Handlers) -> None:
    sent = (("x-request-id", "7"), ("x-octets-bin", bytes(range(256))))
    await unary_unary(channel, "Echo")(b"", metadata=sent, timeout=5)
    await unary_unary(channel, "Echo")(b"", metadata=(("x-request-id", "8"),))
    first, second = handlers.seen
    assert isinstance(first, dict)
    assert first.items() >= dict(sent).items()
    assert {name for name in first if not name.startswith("x-")} == {"user-agent"}
    assert isinstance(second, dict)
    assert second["x-request-id"] == "8"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_read(channel: grpc.aio.Channel, compression: grpc.Compression) -> None:
    message = b"a" * 100_000
    for method in ("Echo", "Inline"):
        assert await unary_unary(channel, method)(message, compression=compression) == message
    assert await stream_unary(channel, "Join")(iter([message]), compression=compression) == message


@contextlib.asynccontextmanager
async def served_by(listener: str, handlers: Handlers) -> AsyncIterator[str]:
    """The address of the lane or of grpcio's server."""
    if listener == LANE:
        async with serving(handlers) as (_, addr):
            yield addr
        return
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(handlers.table())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.mark.parametrize("listener", LISTENERS)
async def test_responses_are_not_compressed_by_either_listener(handlers: Handlers, listener: str) -> None:
    async with served_by(listener, handlers) as addr, raw_client(addr, SERVICE) as raw:
        raw.call("Echo", b"a" * 10_000, (b"grpc-accept-encoding", b"identity,deflate,gzip"))
        frames = await raw.until_end()
    content = b"".join(each.payload for each in frames if each.kind is FrameType.DATA)
    assert content == b"\0" + (10_000).to_bytes(4, "big") + b"a" * 10_000


@pytest.mark.parametrize("method", ["Echo", "Join"])
async def test_a_request_that_cannot_be_decompressed_fails(addr: str, method: str) -> None:
    async with raw_client(addr, SERVICE) as raw:
        raw.send(method, b"\1\0\0\0\3abc", (b"grpc-encoding", b"gzip"))
        assert b"grpc-status\x0213" in (await raw.until_end())[-1].payload
        raw.call("Echo", b"a")
        assert (await raw.until_end())[1].payload.endswith(b"a")


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [b"return", b"abort"])
async def test_an_error_has_its_text_and_details(channel: grpc.aio.Channel, how: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary_unary(channel, "Fail")(how)
    assert (failed.value.code(), failed.value.details()) == (grpc.StatusCode.NOT_FOUND, "50% nö\n")
    status = rpc_status.from_call(failed.value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.reason == "WHY"


async def test_a_bug_of_a_handler_costs_its_call(channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary_unary(channel, "Fail")(b"raise")
    assert failed.value.code() is grpc.StatusCode.UNKNOWN
    assert "a bug" in caplog.text
    assert await unary_unary(channel, "Echo")(b"a") == b"a"


@pytest.mark.parametrize(
    ("listener", "code"), [(LANE, grpc.StatusCode.INTERNAL), (GRPCIO, grpc.StatusCode.UNKNOWN)], ids=[LANE, GRPCIO]
)
async def test_a_message_that_cannot_be_decoded_costs_its_call(
    handlers: Handlers, listener: str, code: grpc.StatusCode
) -> None:
    async with served_by(listener, handlers) as addr, grpc.aio.insecure_channel(addr) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await unary_unary(channel, "Decode")(b"not a number")
        assert failed.value.code() is code
        assert await unary_unary(channel, "Echo")(b"a") == b"a"


async def test_an_unknown_method_is_unimplemented(channel: grpc.aio.Channel) -> None:
    for unknown in ("Nothing", "Nothing/Echo"):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await unary_unary(channel, unknown)(b"")
        assert (failed.value.code(), failed.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


async def test_a_message_above_4_mib_is_refused_and_the_connection_continues(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary_unary(channel, "Echo")(bytes(4 * MIB + 1))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await unary_unary(channel, "Echo")(b"a") == b"a"


async def test_an_upload_may_be_refused_before_its_end(
    channel: grpc.aio.Channel, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_call, "LINGER_SECONDS", 10.0)  # a busy machine may need more than 0.1 s for an upload
    for _ in range(20):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stream_unary(channel, "Refuse")(iter([bytes(50_000)] * 40))
        assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert handlers.seen == [50_000] * 20


async def test_a_refused_upload_that_does_not_end_has_its_status_all_the_same(addr: str) -> None:
    async with raw_client(addr, SERVICE) as raw:
        raw.call("Refuse", b"a", is_end=False)
        frames = await raw.until_end()
    assert b"grpc-status\x017" in frames[-1].payload


# --- deadlines and cancellation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["Wait", "Inline"])
async def test_a_deadline_ends_the_handler(channel: grpc.aio.Channel, handlers: Handlers, method: str) -> None:
    await channel.channel_ready()  # or on a slow machine the deadline ends before
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary_unary(channel, method)(b"later", timeout=0.5)
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: handlers.seen == ["begun", "cancelled"])


async def test_the_server_sends_a_deadline_to_a_client_that_does_not_watch_it(addr: str, handlers: Handlers) -> None:
    """The clients of grpcio end a call themselves; a slow one receives the status."""
    async with raw_client(addr, SERVICE) as raw:
        raw.call("Wait", b"", (b"grpc-timeout", b"50m"))
        frames = await raw.until_end()
    assert b"grpc-status\x014" in frames[-1].payload
    assert handlers.seen == ["begun", "cancelled"]


async def test_a_cancelled_call_ends_the_handler(channel: grpc.aio.Channel, handlers: Handlers) -> None:
    call = unary_unary(channel, "Wait")(b"")
    await eventually(lambda: handlers.seen == ["begun"])
    call.cancel()
    await eventually(lambda: handlers.seen == ["begun", "cancelled"])


async def test_a_client_that_disconnects_ends_its_handlers(addr: str, handlers: Handlers) -> None:
    async with grpc.aio.insecure_channel(addr) as channel:
        call = unary_unary(channel, "Wait")(b"")
        await eventually(lambda: handlers.seen == ["begun"])
    await eventually(lambda: handlers.seen == ["begun", "cancelled"])
    assert call.done()


async def test_a_handler_writes_as_fast_as_its_client_reads(channel: grpc.aio.Channel, handlers: Handlers) -> None:
    call = unary_stream(channel, "Flood")(b"")
    assert await call.read() == bytes(16 * 1024)
    written = -1
    while written != len(handlers.seen):
        written = len(handlers.seen)
        await asyncio.sleep(0.1)
    assert written < 64 * MIB // (16 * 1024)
    for _ in range(written):
        await call.read()
    await eventually(lambda: len(handlers.seen) > written)
    call.cancel()
    await eventually(lambda: handlers.seen[-1] == "cancelled")


# --- connections ------------------------------------------------------------------------------------------------


async def test_a_stop_lets_calls_end_and_clients_reconnect(handlers: Handlers) -> None:
    async with serving(handlers) as (server, addr), grpc.aio.insecure_channel(addr) as channel:
        call = unary_unary(channel, "Wait")(b"a")
        await eventually(lambda: handlers.seen == ["begun"])
        stopping = asyncio.ensure_future(server.stop(5))
        await asyncio.sleep(0.1)
        handlers.release.set()
        assert await call == b"a"
        await stopping
        assert server.connection_count == 0
        async with serving(handlers, port=int(addr.rpartition(":")[2])):
            assert await unary_unary(channel, "Echo")(b"b", wait_for_ready=True) == b"b"


async def test_a_stop_ends_calls_that_do_not_end_in_time(handlers: Handlers) -> None:
    async with serving(handlers) as (server, addr), grpc.aio.insecure_channel(addr) as channel:
        call = unary_unary(channel, "Wait")(b"a")
        await eventually(lambda: handlers.seen == ["begun"])
        await server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert handlers.seen == ["begun", "cancelled"]


async def test_connections_beyond_the_limit_are_closed(handlers: Handlers) -> None:
    async with (
        serving(handlers, ("grpc.max_allowed_incoming_connections", 1)) as (server, addr),
        raw_client(addr, SERVICE) as first,
    ):
        first.call("Echo", b"a")
        await first.until_end()
        async with raw_client(addr, SERVICE) as second:
            assert await second.reader.read() == b""
        assert server.connection_count == 1
        assert server.shared.excesses.counts == {Bound.CONNECTIONS: 1}


@pytest.mark.parametrize(
    ("option", "says", "ends"),
    [
        pytest.param("grpc.server_handshake_timeout_ms", b"", b"", id="nothing-is-sent"),
        pytest.param("grpc.max_connection_idle_ms", OPENING, b"GOAWAY", id="idle"),
        pytest.param("grpc.keepalive_time_ms", OPENING, b"PING", id="half-open"),
    ],
)
async def test_a_connection_that_does_nothing_is_closed(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, option: str, says: bytes, ends: bytes
) -> None:
    monkeypatch.setattr(lane_server, "SWEEP_SECONDS", 0.01)
    async with serving(handlers, (option, 50), ("grpc.http2.ping_timeout_ms", 50)) as (_, addr):
        async with raw_client(addr, SERVICE, opening=says) as raw:
            received = await raw.reader.read(-1)
        kinds = {each.kind for each in frames_of(received)}
        assert (FrameType.GOAWAY in kinds) is (ends == b"GOAWAY")
        assert (FrameType.PING in kinds) is (ends != b"")


async def test_a_client_that_answers_pings_stays(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_server, "SWEEP_SECONDS", 0.01)
    options = (("grpc.keepalive_time_ms", 20), ("grpc.http2.ping_timeout_ms", 200))
    async with serving(handlers, *options) as (server, addr), grpc.aio.insecure_channel(addr) as channel:
        call = unary_unary(channel, "Wait")(b"a")
        await asyncio.sleep(0.5)
        handlers.release.set()
        assert await call == b"a"
        assert server.connection_count == 1


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (((b":method", b"GET"),), b"405"),
        (((b"content-type", b"application/json"),), b"415"),
    ],
)
async def test_what_is_not_grpc_is_refused_by_http(
    addr: str, fields: tuple[tuple[bytes, bytes]], status: bytes
) -> None:
    async with raw_client(addr, SERVICE) as raw:
        raw.call("Echo", b"", *fields)
        [refused] = await raw.until_end()
    assert status in refused.payload


async def test_a_path_that_is_not_utf_8_costs_its_call(addr: str) -> None:
    """grpcio's server ends with it."""
    async with raw_client(addr, SERVICE) as raw:
        raw.call("Echo", b"a", (b":path", b"/\xa2/Echo"))
        [refused] = await raw.until_end()
        assert b"grpc-status\x0212" in refused.payload
        raw.call("Echo", b"a")
        assert (await raw.until_end())[1].payload[-1:] == b"a"


@pytest.mark.parametrize(
    ("fields", "content", "status"),
    [
        (((b"grpc-timeout", b"soon"),), b"\0\0\0\0\0", b"13"),
        (((b"grpc-encoding", b"snappy"),), b"\0\0\0\0\0", b"12"),
        (((b"x-octets-bin", b"AAEC,not base64!"),), b"\0\0\0\0\0", b"13"),
        ((), b"", b"13"),
        ((), b"\0\0\0\0\1", b"13"),
        ((), b"\0\0\0\0\0" * 2, b"13"),
        ((), b"\1\0\0\0\0", b"13"),
    ],
)
async def test_a_request_that_is_not_one_message_is_refused(
    addr: str, fields: tuple[tuple[bytes, bytes]], content: bytes, status: bytes
) -> None:
    for method in ("Echo", "Inline"):
        async with raw_client(addr, SERVICE) as raw:
            raw.send(method, content, *fields)
            frames = await raw.until_end()
        assert b"grpc-status" + bytes((len(status),)) + status in frames[-1].payload


async def test_an_upload_that_ends_within_a_message_fails(addr: str) -> None:
    async with raw_client(addr, SERVICE) as raw:
        raw.send("Join", b"\0\0\0\0\1a\0\0\0\0\2b")
        frames = await raw.until_end()
    assert b"grpc-status\x0213" in frames[-1].payload


async def test_a_handler_waits_for_the_socket_where_windows_are_open(addr: str, handlers: Handlers) -> None:
    async with raw_client(addr, SERVICE) as raw:
        raw.write(settings_frame({Setting.INITIAL_WINDOW_SIZE: 1 << 30}), window_update_frame(0, 1 << 30))
        raw.call("Flood", b"")
        written = -1
        while written != len(handlers.seen):
            written = len(handlers.seen)
            await asyncio.sleep(0.1)
        received = 0
        while received < 2 * written:
            received += (await raw.frame()).kind is FrameType.DATA
    await eventually(lambda: handlers.seen[-1] == "cancelled")


async def test_a_stop_asks_clients_to_open_no_calls_and_ends_with_the_last_one(handlers: Handlers) -> None:
    async with serving(handlers) as (server, addr), raw_client(addr, SERVICE) as raw:
        raw.call("Wait", b"a")
        await eventually(lambda: handlers.seen == ["begun"])
        stopping = asyncio.ensure_future(server.stop(5))
        while (first := await raw.frame()).kind is not FrameType.GOAWAY:
            pass
        assert first.payload[:4] == MAX_STREAM_ID.to_bytes(4, "big")
        raw.write(ping_frame((await raw.frame()).payload, ack=True))
        assert (await raw.frame()).payload[:4] == (1).to_bytes(4, "big")
        handlers.release.set()
        assert (await raw.until_end())[1].payload[-1:] == b"a"
        await stopping
        assert await raw.reader.read() == b""


async def test_a_call_that_is_reset_as_it_begins_leaves_nothing(addr: str, handlers: Handlers) -> None:
    async with raw_client(addr, SERVICE) as raw:
        for method in ("Wait", "Inline", "Join", "Talk"):
            stream_id = raw.call(method, b"later")
            raw.write(reset_frame(stream_id, ErrorCode.CANCEL))
        raw.call("Echo", b"a")
        await raw.until_end()
    await eventually(lambda: handlers.seen.count("begun") == handlers.seen.count("cancelled"))


async def test_a_stop_without_time_ends_with_goaway(handlers: Handlers) -> None:
    async with serving(handlers) as (server, addr), raw_client(addr, SERVICE) as raw:
        raw.call("Wait", b"a")
        await eventually(lambda: handlers.seen == ["begun"])
        await server.stop(0)
        *_, last = frames_of(await raw.reader.read())
    assert (last.kind, last.payload[:4]) == (FrameType.GOAWAY, b"\0\0\0\1")


async def test_a_stop_before_the_start_frees_the_port() -> None:
    server = LaneServer(SERVER_OPTIONS, {})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.stop(0)
    socket.create_server(("127.0.0.1", port)).close()


async def test_a_small_write_does_not_wait_for_the_one_before(handlers: Handlers) -> None:
    """asyncio, unlike uvloop, would leave Nagle's algorithm on for a socket without a protocol."""
    async with serving(handlers) as (server, addr), raw_client(addr, SERVICE) as raw:
        raw.call("Echo", b"a")
        await raw.until_end()
        [connection] = server._connections
        assert connection._transport is not None
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_threads_are_not_used(channel: grpc.aio.Channel) -> None:
    before = threading.active_count()
    for _ in range(20):
        await unary_unary(channel, "Echo")(b"")
    assert threading.active_count() == before
