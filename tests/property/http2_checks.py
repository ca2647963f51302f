"""Invariants of HTTP/2, gRPC's framing and the lane's calls for any bytes of a client, and bytes to begin with."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpack import Encoder

from pointsman.clock import SystemClock
from pointsman.daemon.lane.lane_connection import LaneConnection
from pointsman.daemon.lane.lane_methods import Methods
from pointsman.daemon.lane.lane_pushes import Pushes
from pointsman.daemon.waiting_bytes import ComingIn, Unsent
from pointsman.http2 import grpc_framing
from pointsman.http2.frame_codec import (
    ACK,
    DEFAULT_MAX_FRAME,
    END_HEADERS,
    END_STREAM,
    MAX_WINDOW,
    PADDED,
    PREFACE,
    ErrorCode,
    FrameType,
    StreamFailed,
    frame,
    ping_frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.header_blocks import EMPTY_TABLE, KnownBlocks, check_request, encode_block
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import DataReceived, Event, RequestReceived
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Excesses, Limits
from tests.kit.http2.client_frames import BLOCK, OK, REQUEST, TRAILERS, data, frames_of, headers
from tests.kit.http2.methods_of_each_kind import METHODS, SERVICE, MethodsOfEachKind

FOUND = Path(__file__).parents[1] / "fixtures" / "http2_corpus.txt"
"""Inputs that a search found to reach branches that others do not; base64, one in a line."""
OPENING = PREFACE + settings_frame({}) + frame(FrameType.SETTINGS, ACK, 0)
RESPONSE_BYTES = 100_000
"""More than a window: a response waits for its client."""
TURNS = 20
"""Of the event loop, after which the handlers that can end have ended."""


def shown(each: Event) -> object:
    return (each.stream_id, each.headers.fields, each.is_end) if isinstance(each, RequestReceived) else each


def outcome(parts: Iterable[bytes]) -> tuple[list[object], bytes, object]:
    """Return what a connection makes of these bytes; it uses the content of requests, and responds to none."""
    connection = Http2Connection(Http2Shared())
    seen: list[object] = []
    for part in parts:
        seen += map(shown, connection.receive(part, now=0.0))
        check_sums(connection)
    return seen, connection.take_output(), connection.over


def check_sums(connection: Http2Connection) -> None:
    """What waits is the sum of what waits on each stream, and nothing waits on a connection that has ended."""
    assert connection.unsent_bytes == sum(stream.unsent_bytes for stream in connection._streams.values())
    assert connection.waiting_bytes <= 2 * DEFAULT_MAX_FRAME + connection._shared.limits.max_header_bytes
    if connection.over is not None:
        assert (connection.open_streams, connection.unsent_bytes, connection.waiting_bytes) == (0, 0, 0)


def check_frames_sent(output: bytes, connection: Http2Connection) -> None:
    """The output is complete frames; GOAWAY is the last of a connection that has ended."""
    sent = list(frames_of(output))
    assert all(len(each.payload) <= connection._peer_max_frame for each in sent)
    if connection.over is not None and connection.over.code is not ErrorCode.NO_ERROR:
        assert sent[-1].kind is FrameType.GOAWAY


# --- the checks; each takes any bytes -----------------------------------------------------------------------------


def check_division(content: bytes) -> None:
    """Events and output do not depend on how the bytes are divided."""
    if not content:
        return
    size, received = content[0] or 256, OPENING + content[1:]
    whole = outcome([received])
    assert outcome(received[at : at + size] for at in range(0, len(received), size)) == whole


def check_serving(content: bytes) -> None:
    """Nothing raises while requests are served, in any order of windows, and a drain always comes to an end."""
    connection = Http2Connection(Http2Shared(Limits(max_concurrent_streams=10)))
    for part in (OPENING, *_frames(content)):
        for each in connection.receive(part, now=0.0):
            if isinstance(each, DataReceived):
                connection.acknowledge(each.stream_id, each.octets)
            if isinstance(each, RequestReceived | DataReceived) and each.is_end:
                connection.send_headers(each.stream_id, OK)
                connection.send_data(each.stream_id, bytes(RESPONSE_BYTES))
                connection.send_headers(each.stream_id, TRAILERS, is_end=True)
        check_sums(connection)
        check_frames_sent(connection.take_output(), connection)
        if connection.over is not None:
            return
    for stream_id in list(connection._streams):
        connection.receive(reset_frame(stream_id, ErrorCode.CANCEL), now=1e6)
    connection.drain()
    connection.receive(ping_frame(b"draining", ack=True), now=1e6)
    assert connection.over is not None


def check_headers(block: bytes) -> None:
    """A block is read as HPACK's own decoder does, and what was read and encoded again is the same request."""
    excesses = Excesses()
    known = KnownBlocks(max_header_bytes=16_384, excesses=excesses)
    try:
        fields = known.read(block)
    except Exception as error:
        if not isinstance(error, StreamFailed) and type(error).__name__ != "ConnectionFailed":
            raise
        return
    assert known.read(encode_block(fields)) == fields
    with contextlib.suppress(StreamFailed):
        headers_read = check_request(fields)
        assert check_request(known.read(encode_block(fields))).path == headers_read.path


def check_messages(content: bytes) -> None:
    """Messages do not depend on how their bytes are divided, and none is above the limit."""
    if len(content) < 2:
        return
    size, is_packed, content = content[0] or 256, content[1] % 2, content[2:]
    compression = b"gzip" if is_packed else b"identity"
    found = _messages([content], compression)
    assert found == _messages((content[at : at + size] for at in range(0, len(content), size)), compression)
    assert all(len(each) <= 1_000 for each in found if isinstance(each, bytes))
    packed = gzip.compress(content)
    if len(content) <= 1_000:
        assert grpc_framing.decompress(packed, max_bytes=1_000) == content
    else:
        with contextlib.suppress(grpc_framing.BadMessage):
            grpc_framing.decompress(packed, max_bytes=1_000)
            raise AssertionError("a message above the limit was decompressed")


def _messages(parts: Iterable[bytes], compression: bytes) -> list[object]:
    reader = grpc_framing.MessageReader(max_bytes=1_000, compression=compression)
    found: list[object] = []
    try:
        for part in parts:
            found += reader.feed(part)
            assert reader.waiting <= 1_000 + grpc_framing.PREFIX.size + len(part)
    except grpc_framing.BadMessage as bad:
        # The messages of the same part that were complete before it are not served either.
        return [bad.status]
    return found


def check_values(value: bytes) -> None:
    """Values of gRPC's fields are read or refused; what was encoded is read again."""
    with contextlib.suppress(ValueError):
        assert grpc_framing.timeout_seconds(value) >= 0
    text = value.decode("utf-8", "replace")
    assert grpc_framing.decode_text(grpc_framing.encode_text(text)) == text
    grpc_framing.decode_text(value)
    assert grpc_framing.decode_binary(grpc_framing.encode_binary(value)) == value
    with contextlib.suppress(ValueError):
        grpc_framing.decode_binary(value)
    grpc_framing.is_grpc(value)


def check_calls(content: bytes) -> None:
    """The lane serves methods of each kind: nothing raises, and no call or task is left when the client is gone."""
    asyncio.run(_serve(_frames(content)))


class _Sink(asyncio.Transport):
    """A socket whose client reads as it wants."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False
        self.has_ended = False
        self.written = bytearray()

    def write(self, content: Any) -> None:
        assert not self.is_closed
        assert not self.has_ended
        self.written += content

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write_eof(self) -> None:
        self.has_ended = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class _Server:
    """What a connection takes of its server."""

    is_secured = False

    def __init__(self) -> None:
        self.shared = Http2Shared(Limits(max_concurrent_streams=10))
        self.loop = asyncio.get_running_loop()
        clock = SystemClock()
        self.monotonic = clock.monotonic
        self.pushes = Pushes()
        self.coming_in = ComingIn(clock, lambda: None)
        self.unsent = Unsent(clock, lambda: None, contents=self.shared.contents)
        self.tasks: set[asyncio.Task[None]] = set()
        served = MethodsOfEachKind()
        self.methods = Methods({f"/{SERVICE}/Inline": served.inline})
        self.methods.add(served.table())

    def opened(self, _: LaneConnection) -> bool:
        return True

    def ended(self, _: LaneConnection) -> None:
        pass

    def closed(self, _: LaneConnection) -> None:
        pass

    def keep(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class _Errors(logging.Handler):
    """Collects what is logged as an error, apart from those of the handlers that raise one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not (record.exc_info and record.exc_info[0] is ValueError):
            self.records.append(record)


async def _serve(parts: Iterable[bytes]) -> None:
    server, sink, errors = _Server(), _Sink(), _Errors()
    lane_log = logging.getLogger("pointsman.daemon.lane")
    lane_log.addHandler(errors)
    lane_log.propagate = False
    try:
        connection = LaneConnection(server)
        connection.connection_made(sink)
        for part in (OPENING, *parts):
            if sink.is_closed:
                break
            connection.data_received(part)
            check_sums(connection.http2)
            if part[3:4] == bytes((FrameType.PING,)):
                await asyncio.sleep(0)  # a client that waits for a response
        for _ in range(TURNS):
            await asyncio.sleep(0)
        check_sums(connection.http2)
        assert connection._calls.keys() <= connection.http2._streams.keys(), "a call is kept after its stream"
        list(frames_of(bytes(sink.written)))
        sink.is_closed = True
        connection.connection_lost(None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not connection._calls
        assert not server.tasks
        assert (server.coming_in.total, server.unsent.total) == (0, 0)
        assert not errors.records, [(each.getMessage(), each.exc_info) for each in errors.records]
    finally:
        lane_log.removeHandler(errors)
        lane_log.propagate = True
        for task in server.tasks:
            task.cancel()


FIELDS = ((b"te", b"trailers"), (b"grpc-timeout", b"1n"), (b"grpc-encoding", b"gzip"), (b"content-length", b"5"))
"""Of requests, in addition to the usual ones or in their place."""


def _frames(content: bytes) -> Iterator[bytes]:
    """Return the frames that these bytes describe, since a search finds frames with a length rarely.

    Each is a byte for type and flags, a byte for the stream, one for the length, and that much of content.
    """
    at = 0
    while at + 3 <= len(content):
        kind, stream, size = content[at : at + 3]
        payload = content[at + 3 : at + 3 + size]
        at += 3 + size
        stream_id = stream % 16
        match kind % 12:
            case 0 | 1:  # a usual request
                method = METHODS[payload[0] % len(METHODS)] if payload else "Unknown"
                named = dict([*REQUEST, (b":path", f"/{SERVICE}/{method}".encode())])
                named |= dict(FIELDS[each % len(FIELDS)] for each in payload[1:3])
                block = EMPTY_TABLE + encode_block(named.items())
                yield headers(stream_id | 1, block, is_end=kind % 12 == 1)
            case 2 | 3 | 4:  # a usual message
                message = payload[1:]
                packed = gzip.compress(message) if payload[:1] == b"\1" else message
                prefix = grpc_framing.message_prefix(len(packed), compressed=payload[:1] == b"\1")
                yield data(stream_id | 1, prefix + packed, is_end=kind % 12 == 3)
            case 5:
                yield window_update_frame(stream_id, int.from_bytes(payload[:4] or b"\1", "big") & MAX_WINDOW)
            case 6:
                value = int.from_bytes(payload[1:5], "big")
                yield settings_frame({(payload[0] if payload else 0) % 8: value})
            case 7:
                yield reset_frame(stream_id | 1, ErrorCode.CANCEL)
            case 8:
                yield ping_frame(payload[:8].ljust(8, b"\0"), ack=bool(stream & 1))
            case 9:  # content as it is
                yield frame(FrameType.DATA, stream >> 4 & (PADDED | END_STREAM), stream_id | 1, payload)
            case 10:  # a block as it is, perhaps in two frames
                flags = END_HEADERS if stream & 0x80 else 0
                yield headers(stream_id | 1, payload, flags=flags | (stream >> 4 & END_STREAM))
                if not flags:
                    yield frame(FrameType.CONTINUATION, END_HEADERS if stream & 0x40 else 0, stream_id | 1, payload)
            case _:  # anything
                yield frame(stream >> 4, kind, stream_id, payload)


CHECKS = (check_division, check_serving, check_headers, check_messages, check_values, check_calls)


def check(content: bytes) -> None:
    """Run the check named by the first byte with the remaining bytes."""
    if content:
        CHECKS[content[0] % len(CHECKS)](content[1:])


def seeds() -> list[bytes]:
    """Return usual requests as inputs, and those that a search has found: the number of a check, and its bytes."""
    call = headers(1, EMPTY_TABLE + BLOCK) + data(1, b"\0\0\0\0\1a", is_end=True)
    found = [bytes((0, 7)) + call + headers(3, BLOCK) + window_update_frame(3, 9)]
    described = [bytes((0, 1, 1, number, 2, 1, 2, 0, 97, 3, 1, 2, 0, 98)) for number in range(len(METHODS))]
    described.append(bytes((0, 3, 2, 0, 2, 2, 3, 3, 1, 97, 98, 5, 3, 1, 9, 6, 0, 5, 4, 0, 0, 0, 9, 7, 3, 0, 8, 0, 0)))
    found += [bytes((check,)) + each for check in (1, 5) for each in described]
    found += [b"\2" + BLOCK, b"\2" + Encoder().encode(list(REQUEST)), b"\2" + TRAILERS]
    packed = gzip.compress(b"a message", mtime=0)
    found += [
        b"\3\3\0" + b"\0\0\0\0\1a" * 3,
        b"\3\0\1" + grpc_framing.message_prefix(len(packed), compressed=True) + packed,
    ]
    found += [b"\4" + each for each in (b"100m", b"%C3%A9", b"YWJj", b"application/grpc+proto")]
    kept = FOUND.read_text(encoding="ascii").split() if FOUND.exists() else []
    return found + [base64.b64decode(each) for each in kept]
