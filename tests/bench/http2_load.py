"""Unary calls as ready bytes over plain sockets: a client that costs less than the servers that it measures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

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
from tests.kit.http2.client_frames import REQUEST, data, headers

WINDOW = 1 << 30


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
        self._writer.write(PREFACE + settings_frame({4: WINDOW}) + window_update_frame(0, WINDOW))
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


@asynccontextmanager
async def raw_channels(addr: str, count: int, *, method: str, message: bytes) -> AsyncIterator[list[RawChannel]]:
    """Open connections for the length of the block."""
    host, port = split_addr(addr)
    pairs = [await asyncio.open_connection(host, port, limit=1 << 18) for _ in range(count)]
    channels = [RawChannel(reader, writer, method.encode(), message) for reader, writer in pairs]
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
