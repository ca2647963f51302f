"""A client's side of HTTP/2 in bytes, and the connection of the server that it talks to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pointsman.http2.frame_codec import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_OCTETS,
    PREFACE,
    ErrorCode,
    FrameType,
    frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.header_blocks import EMPTY_TABLE, encode_block
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import Event
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Limits

METHOD = b"/pointsman.v1.RouteService/GetTopicRoute"
REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", METHOD),
    (b":authority", b"ns1:9876"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)
BLOCK = encode_block(REQUEST)
OK = encode_block([(b":status", b"200")])
TRAILERS = encode_block([(b"grpc-status", b"0")])


class Frame(NamedTuple):
    """One frame that a server sent."""

    kind: FrameType
    flags: int
    stream_id: int
    payload: bytes


def frames_of(data: bytes) -> Iterator[Frame]:
    """Split the bytes of a server; they are complete frames."""
    at = 0
    while at < len(data):
        high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(data, at)
        end = at + HEADER_OCTETS + (high << 8 | low)
        assert end <= len(data)
        yield Frame(FrameType(kind), flags, stream_id, data[at + HEADER_OCTETS : end])
        at = end


def headers(stream_id: int, block: bytes = BLOCK, *, is_end: bool = False, flags: int = END_HEADERS) -> bytes:
    """Return HEADERS."""
    return frame(FrameType.HEADERS, flags | (END_STREAM if is_end else 0), stream_id, block)


def data(stream_id: int, content: bytes = b"", *, is_end: bool = False) -> bytes:
    """Return DATA."""
    return frame(FrameType.DATA, END_STREAM if is_end else 0, stream_id, content)


class Client:
    """A client of one connection, which is established."""

    def __init__(self, limits: Limits | None = None, *, shared: Http2Shared | None = None, opens: bool = True) -> None:
        self.shared = shared or Http2Shared(limits)
        self.connection = Http2Connection(self.shared)
        self._next_stream = 1
        if opens:
            self.send(PREFACE, settings_frame({}), frame(FrameType.SETTINGS, ACK, 0))
            self.received()

    def send(self, *frames: bytes, now: float = 0.0) -> list[Event]:
        """Send frames and return the server's events."""
        return self.connection.receive(b"".join(frames), now=now)

    def open(self, *, is_end: bool = False, block: bytes = BLOCK) -> int:
        """Open a stream and return its identifier. The first block confirms that there is no dynamic table."""
        stream_id = self._next_stream
        self._next_stream += 2
        self.send(headers(stream_id, block if stream_id > 1 else EMPTY_TABLE + block, is_end=is_end))
        return stream_id

    def received(self) -> list[Frame]:
        """Return what the server has sent since the last call."""
        return list(frames_of(self.connection.take_output()))

    def content(self) -> dict[int, bytes]:
        """Return the content of the DATA frames that the server has sent since the last call, by stream."""
        found: dict[int, bytes] = {}
        for each in self.received():
            if each.kind is FrameType.DATA:
                found[each.stream_id] = found.get(each.stream_id, b"") + each.payload
        return found

    def reset(self, stream_id: int, *, now: float = 0.0) -> list[Event]:
        """Reset a stream."""
        return self.send(reset_frame(stream_id, ErrorCode.CANCEL), now=now)

    def widen(self, stream_id: int, octets: int, *, now: float = 0.0) -> list[Event]:
        """Open a window of the server; stream 0: that of the connection."""
        return self.send(window_update_frame(stream_id, octets), now=now)

    def resets(self) -> list[tuple[int, ErrorCode]]:
        """Return the streams that the server has reset since the last call."""
        return [
            (each.stream_id, ErrorCode(int.from_bytes(each.payload, "big")))
            for each in self.received()
            if each.kind is FrameType.RST_STREAM
        ]

    def failure(self) -> ErrorCode | None:
        """Return the connection error; the last frame is then its GOAWAY."""
        if self.connection.over is None:
            return None
        last = self.received()[-1]
        assert last.kind is FrameType.GOAWAY
        assert int.from_bytes(last.payload[4:8], "big") == self.connection.over.code
        return self.connection.over.code
