"""Unary calls and watches as ready bytes over plain sockets: clients that cost less than the servers they measure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from pointsman.http2.frame_codec import (
    ACK,
    END_STREAM,
    FRAME_HEADER,
    HEADER_OCTETS,
    PREFACE,
    SETTINGS_ACK,
    FrameType,
    ping_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.grpc_framing import message_prefix
from pointsman.http2.header_blocks import EMPTY_TABLE, encode_block
from pointsman.names import split_addr
from tests.bench.worker import serve_commands
from tests.kit.http2.client_frames import REQUEST, data, headers
from tests.kit.tls_peers import context

WINDOW = 1 << 30
OPENING = PREFACE + settings_frame({4: WINDOW}) + window_update_frame(0, WINDOW)
"""Windows that never close."""
CONCURRENT_CONNECTS = 200


class RawChannel:
    """One connection that calls one method with one message."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: bytes, message: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._block = encode_block([(name, method if name == b":path" else value) for name, value in REQUEST])
        self._message = message_prefix(len(message)) + message
        self._next_stream = 1
        self._rest = b""
        self._unread = 0

    async def open(self) -> None:
        """Exchange settings, with windows that never close."""
        self._writer.write(OPENING)
        while not await self._settings():
            pass

    async def call(self, count: int) -> None:
        """Make ``count`` calls in one write, and read until all have ended."""
        requests: list[bytes] = []
        for _ in range(count):
            first = EMPTY_TABLE if self._next_stream == 1 else b""
            requests += (
                headers(self._next_stream, first + self._block),
                data(self._next_stream, self._message, is_end=True),
            )
            self._next_stream += 2
        self._writer.write(b"".join(requests))
        while count > 0:
            count -= await self._ended()

    async def _settings(self) -> bool:
        return FrameType.SETTINGS in {kind for kind, _ in await self._frames()}

    async def _ended(self) -> int:
        return sum(
            flags & END_STREAM != 0
            for kind, flags in await self._frames()
            if kind in {FrameType.HEADERS, FrameType.DATA}
        )

    async def _frames(self) -> list[tuple[int, int]]:
        """Read once, respond to what needs a response, and return types and flags of the frames."""
        received = await self._reader.read(1 << 18)
        if not received:
            raise ConnectionResetError("the server closed the connection")
        received = self._rest + received
        found, at = [], 0
        while len(received) - at >= HEADER_OCTETS:
            high, low, kind, flags, _ = FRAME_HEADER.unpack_from(received, at)
            end = at + HEADER_OCTETS + (high << 8 | low)
            if end > len(received):
                break
            if kind == FrameType.DATA:
                self._unread += end - at - HEADER_OCTETS
            elif kind == FrameType.PING and not flags & ACK:
                self._writer.write(ping_frame(received[at + HEADER_OCTETS : end], ack=True))
            elif kind == FrameType.SETTINGS and not flags & ACK:
                self._writer.write(SETTINGS_ACK)
            elif kind == FrameType.GOAWAY:
                raise ConnectionResetError(received[at + HEADER_OCTETS : end])
            found.append((kind, flags))
            at = end
        self._rest = received[at:]
        if self._unread > WINDOW // 2:
            self._writer.write(window_update_frame(0, self._unread))
            self._unread = 0
        return found


class RawStream(RawChannel):
    """One connection with one stream, on which each message has one response."""

    async def call(self, count: int) -> None:
        """Send ``count`` messages in one write, and read as many responses."""
        first = b""
        if self._next_stream == 1:
            self._next_stream += 2
            first = headers(1, EMPTY_TABLE + self._block)
        self._writer.write(first + data(1, self._message) * count)
        while count > 0:
            count -= sum(kind == FrameType.DATA for kind, _ in await self._frames())


@asynccontextmanager
async def raw_channels(
    addr: str, messages: Sequence[bytes], *, method: str, kind: type[RawChannel] = RawChannel
) -> AsyncIterator[list[RawChannel]]:
    """Open a connection for each message, for the length of the block."""
    host, port = split_addr(addr)
    pairs = [await asyncio.open_connection(host, port, limit=1 << 18) for _ in messages]
    channels = [
        kind(reader, writer, method.encode(), message)
        for (reader, writer), message in zip(pairs, messages, strict=True)
    ]
    try:
        await asyncio.gather(*(channel.open() for channel in channels))
        yield channels
    finally:
        for _, writer in pairs:
            writer.close()


def raw_load(channels: list[RawChannel], in_flight: int) -> Callable[[float], Awaitable[int]]:
    """Return a load: on each connection ``in_flight`` calls at a time."""

    async def run(channel: RawChannel, until: float) -> int:
        calls = 0
        while time.monotonic() < until:
            await channel.call(in_flight)
            calls += in_flight
        return calls

    async def load(seconds: float) -> int:
        until = time.monotonic() + seconds
        return sum(await asyncio.gather(*(run(channel, until) for channel in channels)))

    return load


class _Arrivals:
    """Messages that all connections together have received, and when there were enough."""

    def __init__(self) -> None:
        self.count = 0
        self._awaited = 0
        self._at: asyncio.Future[float] | None = None

    def add(self, messages: int) -> None:
        """Count."""
        self.count += messages
        if self._at is not None and self.count >= self._awaited and not self._at.done():
            self._at.set_result(time.monotonic())

    async def reach(self, count: int) -> float:
        """Wait until there are ``count``; return the time, in monotonic seconds."""
        self._awaited, self._at = count, asyncio.get_running_loop().create_future()
        self.add(0)
        return await self._at


class RawWatching(asyncio.Protocol):
    """One connection with streams that only receive."""

    __slots__ = ("_arrivals", "_block", "_has_begun", "_requests", "_rest", "_transport")

    def __init__(self, arrivals: _Arrivals, block: bytes, requests: Sequence[bytes]) -> None:
        """``requests``: of the streams, one message each; ``block``: their headers."""
        self._arrivals = arrivals
        self._block = block
        self._requests = requests
        self._has_begun = False
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(OPENING)

    def data_received(self, received: bytes) -> None:
        """Count messages. Each is in one DATA frame: it is small, and the windows are large."""
        if self._rest:
            received = self._rest + received
        at, size, messages = 0, len(received), 0
        unpack = FRAME_HEADER.unpack_from
        while size - at >= HEADER_OCTETS:
            high, low, kind, flags, _ = unpack(received, at)
            end = at + HEADER_OCTETS + (high << 8 | low)
            if end > size:
                break
            if kind == FrameType.DATA:
                messages += 1
            elif kind == FrameType.SETTINGS and not flags & ACK:
                self._begin()
            elif kind == FrameType.PING and not flags & ACK:
                self._transport.write(ping_frame(received[at + HEADER_OCTETS : end], ack=True))
            elif flags & END_STREAM and kind == FrameType.HEADERS:
                raise ConnectionResetError(f"the server ended a watch: {received[at:end]!r}")
            at = end
        self._rest = received[at:]
        if messages:
            self._arrivals.add(messages)

    def _begin(self) -> None:
        """Acknowledge the settings, and open the streams."""
        if self._has_begun:
            return
        self._has_begun = True
        frames = [SETTINGS_ACK]
        for number, request in enumerate(self._requests):
            stream_id = 2 * number + 1
            frames += (
                headers(stream_id, (b"" if number else EMPTY_TABLE) + self._block),
                data(stream_id, message_prefix(len(request)) + request, is_end=True),
            )
        self._transport.write(b"".join(frames))


async def raw_watchers(
    pipe: Connection,
    addr: str,
    connections: int,
    *,
    method: str,
    requests: Sequence[bytes],
    authority: Path | None = None,
) -> None:
    """Open ``connections``, each with one stream for each request; over TLS, if there is an authority.

    Commands: "open" (until the server has sent ``messages`` on them), "reach" (until a total has arrived;
    returns when), "count".
    """
    host, port = split_addr(addr)
    loop, arrivals = asyncio.get_running_loop(), _Arrivals()
    block = encode_block([(name, method.encode() if name == b":path" else value) for name, value in REQUEST])
    transports: list[asyncio.BaseTransport] = []
    made = None
    if authority is not None:
        made = context(authority)
        made.set_alpn_protocols(["h2"])

    async def open_all(messages: int) -> float:
        waiting = iter(range(connections))

        async def some() -> None:
            for _ in waiting:
                transport, _ = await loop.create_connection(
                    lambda: RawWatching(arrivals, block, requests), host, port, ssl=made
                )
                transports.append(transport)

        await asyncio.gather(*(some() for _ in range(CONCURRENT_CONNECTS)))
        return await arrivals.reach(messages)

    await serve_commands(pipe, {"open": open_all, "reach": arrivals.reach, "count": lambda: arrivals.count})
    for transport in transports:
        transport.close()
