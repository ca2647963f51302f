"""A client of gRPC in bytes, over a socket: for requests that no client library sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pointsman.http2.frame_codec import ACK, END_STREAM, HEADER_OCTETS, PREFACE, FrameType, frame, settings_frame
from pointsman.http2.grpc_framing import message_prefix
from pointsman.http2.header_blocks import EMPTY_TABLE, encode_block
from pointsman.names import split_addr
from tests.kit.http2.client_frames import REQUEST, Frame, data, frames_of, headers

OPENING = PREFACE + settings_frame({}) + frame(FrameType.SETTINGS, ACK, 0)


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, service: str) -> None:
        self.reader = reader
        self._writer = writer
        self._service = service
        self._next_stream = 1

    def send(self, method: str, content: bytes, *fields: tuple[bytes, bytes], is_end: bool = True) -> int:
        """Send a request with this content, and these fields in addition or in place of the usual ones."""
        stream_id = self.begin(method, *fields)
        self.write(data(stream_id, content, is_end=is_end))
        return stream_id

    def begin(self, method: str, *fields: tuple[bytes, bytes]) -> int:
        """Send the headers of a request."""
        stream_id = self._next_stream
        self._next_stream += 2
        named = dict(REQUEST) | {b":path": f"/{self._service}/{method}".encode()} | dict(fields)
        block = encode_block(named.items())
        first = EMPTY_TABLE if stream_id == 1 else b""
        self.write(headers(stream_id, first + block))
        return stream_id

    def call(self, method: str, message: bytes, *fields: tuple[bytes, bytes], is_end: bool = True) -> int:
        """Send a request with one message."""
        return self.send(method, message_prefix(len(message)) + message, *fields, is_end=is_end)

    def write(self, *frames: bytes) -> None:
        """Send frames."""
        self._writer.write(b"".join(frames))

    async def frame(self) -> Frame:
        """Read one frame."""
        head = await self.reader.readexactly(HEADER_OCTETS)
        [found] = frames_of(head + await self.reader.readexactly(int.from_bytes(head[:3], "big")))
        return found

    async def until_end(self) -> list[Frame]:
        """Read the HEADERS and DATA frames up to the end of a stream."""
        found: list[Frame] = []
        while not (found and found[-1].flags & END_STREAM):
            each = await self.frame()
            if each.kind in {FrameType.HEADERS, FrameType.DATA}:
                found.append(each)
        return found


@asynccontextmanager
async def raw_client(addr: str, service: str, *, opening: bytes = OPENING) -> AsyncIterator[RawClient]:
    """Connect for the length of the block."""
    reader, writer = await asyncio.open_connection(*split_addr(addr))
    try:
        writer.write(opening)
        async with asyncio.timeout(30):
            yield RawClient(reader, writer, service)
    finally:
        writer.close()
