"""A channel on gRPC's own threads behaves as grpc.aio's: each test runs on both."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest
from grpc_status import rpc_status

from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.error_details import build_status, read_status
from pointsman.wire.refusals import FieldViolation
from pointsman_client.errors import ClientClosedError
from pointsman_client.pointsman_grpc.links import OpenChannel, open_channel
from pointsman_client.pointsman_grpc.status import grpc_errors_of
from pointsman_client.pointsman_grpc.thread_channel import open_thread_channel
from tests.kit.waiting import eventually

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
DEADLINE_SECONDS = 10.0


class Echo:
    """A service that responds, refuses or hangs; it counts cancelled calls."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.reached = asyncio.Event()

    async def unary(self, request: bytes, context: Context) -> bytes:
        if request == b"refuse":
            status = build_status(
                grpc.StatusCode.INVALID_ARGUMENT,
                "no such thing",
                code="REASON",
                violations=[FieldViolation("topic", "bad")],
            )
            await context.abort_with_status(rpc_status.to_status(status))
        if request == b"hang":
            await self._hang()
        return request

    async def counted(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield str(number).encode()
        if int(request) == 3:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "three is too many")
        if int(request) == 1:
            await self._hang()

    async def echoed(self, requests: AsyncIterator[bytes], _context: Context) -> AsyncIterator[bytes]:
        async for request in requests:
            yield b"echo of " + request

    async def _hang(self) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@asynccontextmanager
async def echo_server() -> AsyncIterator[tuple[Echo, str]]:
    echo, server = Echo(), grpc.aio.server()
    handlers: dict[str, Any] = {
        "Unary": grpc.unary_unary_rpc_method_handler(echo.unary),
        "Counted": grpc.unary_stream_rpc_method_handler(echo.counted),
        "Echoed": grpc.stream_stream_rpc_method_handler(echo.echoed),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield echo, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@pytest.fixture(params=[open_channel, open_thread_channel], ids=["aio", "threads"])
def opening(request: pytest.FixtureRequest) -> OpenChannel:
    found: OpenChannel = request.param
    return found


@asynccontextmanager
async def echo_channel(opening: OpenChannel) -> AsyncIterator[tuple[Echo, grpc.aio.Channel]]:
    async with echo_server() as (echo, addr), asyncio.timeout(DEADLINE_SECONDS):
        channel = opening(addr, ChannelOpener())
        try:
            yield echo, channel
        finally:
            await channel.close()


def unary(channel: grpc.aio.Channel) -> Callable[..., grpc.aio.UnaryUnaryCall[bytes, bytes]]:
    return channel.unary_unary("/test.Echo/Unary")


def counted(channel: grpc.aio.Channel) -> Callable[..., grpc.aio.UnaryStreamCall[bytes, bytes]]:
    return channel.unary_stream("/test.Echo/Counted")


def echoed(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall[bytes, bytes]:
    stream: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream("/test.Echo/Echoed")
    return stream()


async def test_a_call_returns_its_response(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (_, channel):
        assert await unary(channel)(b"hello", timeout=5) == b"hello"


async def test_a_refusal_carries_code_details_and_what_the_server_attached(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary(channel)(b"refuse", timeout=5)
    assert (raised.value.code(), raised.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "no such thing")
    details = read_status(rpc_status.from_call(raised.value))
    assert (details.code, list(details.violations)) == ("REASON", [FieldViolation("topic", "bad")])


async def test_a_deadline_ends_a_call_here_and_at_the_server(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (echo, channel):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary(channel)(b"hang", timeout=0.2)
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: echo.cancelled == 1)


async def test_a_closed_port_is_unavailable(opening: OpenChannel) -> None:
    async with echo_server() as (_, addr):
        pass
    channel = opening(addr, ChannelOpener())
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await unary(channel)(b"hello", timeout=5)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    await channel.close()


async def test_cancelling_the_caller_cancels_the_call(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (echo, channel):

        async def wait() -> None:
            await unary(channel)(b"hang", timeout=60)

        waiting = asyncio.create_task(wait())
        await echo.reached.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await eventually(lambda: echo.cancelled == 1)


async def test_closing_ends_calls_as_the_client_reads_it(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (echo, channel):

        async def wait() -> None:
            with grpc_errors_of("addr"):
                await unary(channel)(b"hang", timeout=60)

        waiting = asyncio.create_task(wait())
        await echo.reached.wait()
        await channel.close()
        with pytest.raises(ClientClosedError):
            await waiting
        with pytest.raises(ClientClosedError), grpc_errors_of("addr"):
            await unary(channel)(b"hello", timeout=5)


async def test_a_stream_gives_each_message_and_ends(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (_, channel):
        call = counted(channel)(b"1000")
        for number in range(1_000):
            assert await call.read() == str(number).encode()
        assert await call.read() is grpc.aio.EOF
        assert await call.read() is grpc.aio.EOF


async def test_a_stream_that_breaks_yields_what_was_received_and_the_error(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (_, channel):
        call = counted(channel)(b"3")
        assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(grpc.aio.AioRpcError, match="three is too many"):
            await call.read()


@pytest.mark.parametrize("ending", ["reader", "call", "channel"])
async def test_a_stream_that_waits_is_cancelled_here_and_at_the_server(opening: OpenChannel, ending: str) -> None:
    async with echo_channel(opening) as (echo, channel):
        call = counted(channel)(b"1")
        assert await call.read() == b"0"
        waiting = asyncio.ensure_future(call.read())
        await echo.reached.wait()
        await asyncio.sleep(0)  # it must have begun to read
        if ending == "channel":
            await channel.close()
        else:
            (waiting if ending == "reader" else call).cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await eventually(lambda: echo.cancelled == 1)


async def test_both_sides_of_a_stream_speak_in_turns(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (_, channel):
        call = echoed(channel)
        for word in (b"one", b"two"):
            await call.write(word)
            assert await call.read() == b"echo of " + word
        call.cancel()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"three")


async def test_a_stream_that_is_refused_gives_the_reason(opening: OpenChannel) -> None:
    async with echo_channel(opening) as (_, channel):
        stream: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream("/test.Echo/NoSuchMethod")
        call = stream()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_that_was_dropped_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    async with echo_channel(open_thread_channel) as (_, channel):
        call = counted(channel)(b"1")
        assert await call.read() == b"0"
        both = echoed(channel)
        await both.write(b"one")
        del call, both
    gc.collect()
    # The poller is the server's, which is of grpc.aio; gRPC's own threads for the channel are to end with it.
    await eventually(
        lambda: not [each for each in set(threading.enumerate()) - before if "_poll_wrapper" not in each.name]
    )
