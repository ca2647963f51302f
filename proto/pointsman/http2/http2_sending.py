"""What a server sends on one connection: responses within the peer's windows, and their order (RFC 9113 section 5.2).

Content that a window holds back waits here, stream by stream. When the connection's window opens, the waiting streams
send one frame each in turn, so that a large response does not delay the small ones behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from typing import Final

from pointsman.http2.frame_codec import (
    DEFAULT_MAX_FRAME,
    DEFAULT_WINDOW,
    END_STREAM,
    FRAME_HEADER,
    MAX_STREAM_ID,
    ErrorCode,
    FrameType,
    goaway_frame,
    header_frames,
    ping_frame,
    reset_frame,
    window_update_frame,
)
from pointsman.http2.header_blocks import EMPTY_TABLE, KnownBlocks, ReadyHeaders
from pointsman.http2.http2_events import ConnectionOver, Event, SendingResumed
from pointsman.http2.http2_stream import Http2Stream, UnsentContents
from pointsman.http2.peer_limits import Excesses, Limits

DRAINING: Final = b"draining"
"""The PING between the two GOAWAY of a graceful end."""
_DATA: Final = FrameType.DATA
_NONE: Final[dict[int, Http2Stream]] = {}
"""Blocked streams of a connection without any; never changed. Most connections of a node are idle."""
_NONE_IGNORED: Final[dict[int, None]] = {}


class Http2Shared:
    """What the connections of a listener have in common."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.excesses = Excesses()
        self.known = KnownBlocks(max_header_bytes=self.limits.max_header_bytes, excesses=self.excesses)
        self.preface = self.limits.preface()
        self.contents = UnsentContents()


class SendingSide:
    """The half of a connection that sends.

    Its methods ignore a stream that has ended: the owner may not have handled that event yet. After each, the owner
    writes :meth:`take_output`, and then closes the connection if it is :attr:`over`.
    """

    __slots__ = (
        "_blocked",
        "_frames_sent",
        "_ignored",
        "_last_accepted",
        "_last_stream_id",
        "_must_empty_table",
        "_output",
        "_peer_initial_window",
        "_peer_max_frame",
        "_receive_window",
        "_send_window",
        "_shared",
        "_streams",
        "_unacknowledged",
        "_unsent_bytes",
        "over",
        "unsent_streams",
    )

    def __init__(self, shared: Http2Shared) -> None:
        self.over: ConnectionOver | None = None
        """Set when nothing more is received, or sent apart from the output. Open streams have ended, without events."""
        self._shared = shared
        self._output: list[bytes] = [shared.preface]
        self._streams: dict[int, Http2Stream] = {}
        self._last_stream_id = 0
        """The highest that the peer has used."""
        self._last_accepted = MAX_STREAM_ID
        """The highest that is served; lower after the final GOAWAY (section 6.8)."""
        self._ignored = _NONE_IGNORED
        """Streams that ended on this side alone: their frames may still be on the way (section 5.1)."""
        self._must_empty_table = False
        """Whether the next block sent must state that it uses no dynamic table."""
        self._send_window = DEFAULT_WINDOW
        self._peer_initial_window = DEFAULT_WINDOW
        self._peer_max_frame = DEFAULT_MAX_FRAME
        self._receive_window = shared.limits.connection_window
        self._unacknowledged = 0
        """Octets that the application has used and that are not in a WINDOW_UPDATE yet."""
        self._blocked = _NONE
        """Streams with content that only the connection's window holds back, in turn."""
        self._unsent_bytes = 0
        self.unsent_streams = 0
        """Streams with content that waits for the peer's windows."""
        self._frames_sent = 0
        """HEADERS and DATA."""

    @property
    def open_streams(self) -> int:
        """Return the number of requests that are not responded to completely."""
        return len(self._streams)

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes of content that wait for the peer's windows."""
        return self._unsent_bytes

    def unsent_of(self, stream_id: int) -> int:
        """Return those of one stream; when they are sent there is a :class:`SendingResumed`."""
        stream = self._streams.get(stream_id)
        return stream.unsent_bytes if stream is not None else 0

    def unsent_heads(self) -> Iterator[tuple[int, memoryview]]:
        """Return the streams whose content waits, each with its next part: the same object until some of it is sent."""
        for stream_id, stream in self._streams.items():
            if stream.unsent:
                yield stream_id, stream.unsent[0]

    def take_output(self) -> bytes:
        """Return what must be written now, and remove it here."""
        output = self._output
        if not output:
            return b""
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        return data

    # --- responses ------------------------------------------------------------------------------------------------

    def respond(self, stream_id: int, head: ReadyHeaders, prefix: bytes, content: bytes, tail: ReadyHeaders) -> None:
        """Send a complete response: headers, content in two parts, trailers.

        The hot path is a response that fits into one frame and the windows.
        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.has_ended:
            return
        size = len(prefix) + len(content)
        if (
            stream.send_window < size
            or self._send_window < size
            or self._peer_max_frame < size
            or self._must_empty_table
            or stream.unsent_bytes
            or not stream.is_request_over
        ):
            self.send_headers(stream_id, head.block)
            self.send_data(stream_id, prefix, content)
            self.send_headers(stream_id, tail.block, is_end=True)
            return
        self._send_window -= size
        self._frames_sent += 3
        on_stream = stream_id.to_bytes(4, "big")
        self._output += (
            head.opening,
            on_stream,
            head.block,
            FRAME_HEADER.pack(size >> 8, size & 0xFF, _DATA, 0, stream_id),
            prefix,
            content,
            tail.ending,
            on_stream,
            tail.block,
        )
        del self._streams[stream_id]
        if self._last_accepted != MAX_STREAM_ID:
            self._end_if_drained()

    def send_headers(self, stream_id: int, block: bytes, *, is_end: bool = False) -> None:
        """Send the headers of a response; with ``is_end`` its trailers, after the content that still waits."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.has_ended:
            return
        stream.has_ended = is_end
        if is_end and stream.unsent_bytes:
            stream.ending = block
        else:
            self._write_headers(stream, block, is_end=is_end)

    def send_message(self, stream_id: int, prefix: bytes, content: bytes) -> bool:
        """Send content in two parts, as :meth:`send_data`. Return whether all content of the stream is sent.

        The hot path of a change that many streams receive.
        """
        stream = self._streams.get(stream_id)
        if stream is None or stream.has_ended:
            return False
        size = len(prefix) + len(content)
        if stream.unsent_bytes or stream.send_window < size or self._send_window < size or self._peer_max_frame < size:
            self.send_data(stream_id, prefix, content)
            return not stream.unsent_bytes
        stream.send_window -= size
        self._send_window -= size
        self._frames_sent += 1
        self._output += (FRAME_HEADER.pack(size >> 8, size & 0xFF, _DATA, 0, stream_id), prefix, content)
        return True

    def send_data(self, stream_id: int, *parts: bytes, is_end: bool = False) -> None:
        """Send content, as far as the windows of the peer reach; the rest waits for them."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.has_ended:
            return
        stream.has_ended = is_end
        size = sum(map(len, parts))
        # A frame without content needs no window (section 6.9.1).
        if not stream.unsent_bytes and size <= max(0, min(stream.send_window, self._send_window, self._peer_max_frame)):
            self._write_data(stream, size, parts, is_end=is_end)
            return
        if is_end:
            stream.ending = b""
        self.unsent_streams += not stream.unsent_bytes
        stream.keep(parts, size, self._shared.contents)
        self._unsent_bytes += size
        if stream.send_window > 0:
            self._block(stream)
            self._flush([])

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """End a stream without a response (section 6.4)."""
        if self.over is not None or stream_id in self._ignored:
            return
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._drop(stream)
        self._ignore(stream_id)
        self._output.append(reset_frame(stream_id, code))
        self._end_if_drained()

    # --- flow control ---------------------------------------------------------------------------------------------

    def acknowledge(self, stream_id: int, octets: int) -> None:
        """Note that the application has used received octets: the peer may send as many more (section 6.9).

        Needed for all octets of each :class:`DataReceived`, also after its stream has ended.
        """
        if self.over is not None:
            return
        self._acknowledge_connection(octets)
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.is_request_over:
            stream.unacknowledged += octets
            # Not for each frame: for half a window.
            if stream.unacknowledged * 2 >= self._shared.limits.stream_window:
                self._output.append(window_update_frame(stream_id, stream.unacknowledged))
                stream.receive_window += stream.unacknowledged
                stream.unacknowledged = 0

    @property
    def unended(self) -> KeysView[int]:
        """Return the streams whose response ended before their request, which the peer has not ended or reset since."""
        return self._ignored.keys()

    def is_request_open(self, stream_id: int) -> bool:
        """Return whether the peer has not ended this request."""
        stream = self._streams.get(stream_id)
        return stream is not None and not stream.is_request_over

    def is_held_back(self, stream_id: int) -> bool:
        """Return whether the windows of this server keep the peer from sending more of a request."""
        stream = self._streams.get(stream_id)
        return stream is not None and (stream.receive_window <= 0 or self._receive_window <= 0)

    def _acknowledge_connection(self, octets: int) -> None:
        self._unacknowledged += octets
        if self._unacknowledged * 2 >= self._shared.limits.connection_window:
            self._output.append(window_update_frame(0, self._unacknowledged))
            self._receive_window += self._unacknowledged
            self._unacknowledged = 0

    def _block(self, stream: Http2Stream) -> None:
        if self._blocked is _NONE:
            self._blocked = {}
        self._blocked[stream.stream_id] = stream

    def _flush(self, events: list[Event]) -> None:
        """Send waiting content, one frame of each stream in turn."""
        while self._blocked and self._send_window > 0:
            stream_id = next(iter(self._blocked))
            stream = self._blocked.pop(stream_id)
            room = min(stream.send_window, self._send_window, self._peer_max_frame)
            if room <= 0:
                continue  # until a WINDOW_UPDATE or SETTINGS opens the window of this stream
            content = stream.take(room, self._shared.contents)
            self._unsent_bytes -= len(content)
            is_last = not stream.unsent_bytes
            self.unsent_streams -= is_last
            ending = stream.ending if is_last else None
            self._write_data(stream, len(content), (content,), is_end=ending == b"")
            if ending:
                self._write_headers(stream, ending, is_end=True)
            elif not is_last:
                self._blocked[stream_id] = stream
            elif not stream.has_ended:
                events.append(SendingResumed(stream_id))

    # --- the end of the connection --------------------------------------------------------------------------------

    def ping(self, opaque: bytes) -> None:
        """Send PING with eight octets; the peer's acknowledgement is :class:`PingAnswered`."""
        if self.over is None:
            self._output.append(ping_frame(opaque))

    def drain(self) -> None:
        """Accept no further streams, and end when those that are open have ended (section 6.8).

        The first GOAWAY only asks the peer to stop opening them; after its PING, a second one has the last that is
        served.
        """
        if self.over is None and self._last_accepted == MAX_STREAM_ID:
            self._output += (goaway_frame(MAX_STREAM_ID, ErrorCode.NO_ERROR), ping_frame(DRAINING))

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR, text: str = "") -> None:
        """End immediately, with GOAWAY; open streams end without a response (section 5.4.1)."""
        if self.over is None:
            last_stream_id = min(self._last_stream_id, self._last_accepted)
            self._output.append(goaway_frame(last_stream_id, code, text.encode()))
            self._end(code, text)

    def abandon(self) -> None:
        """Release everything: the connection is lost."""
        if self.over is None:
            self._end(ErrorCode.NO_ERROR, "the connection is lost")

    def _end(self, code: ErrorCode, text: str) -> None:
        self.over = ConnectionOver(code, text)
        if self.unsent_streams:
            for stream in self._streams.values():
                stream.discard(self._shared.contents)
        self._streams.clear()
        self._blocked, self._ignored = _NONE, _NONE_IGNORED
        self._unsent_bytes = self.unsent_streams = 0

    def _end_if_drained(self) -> None:
        if self._last_accepted != MAX_STREAM_ID and not self._streams and self.over is None:
            self._end(ErrorCode.NO_ERROR, "drained")

    # --- frames of one stream -------------------------------------------------------------------------------------

    def _write_data(self, stream: Http2Stream, size: int, parts: tuple[bytes, ...], *, is_end: bool) -> None:
        stream.send_window -= size
        self._send_window -= size
        self._frames_sent += 1
        flags = END_STREAM if is_end else 0
        self._output += (FRAME_HEADER.pack(size >> 8, size & 0xFF, _DATA, flags, stream.stream_id), *parts)
        if is_end:
            self._finish(stream)

    def _write_headers(self, stream: Http2Stream, block: bytes, *, is_end: bool) -> None:
        if self._must_empty_table:
            self._must_empty_table, block = False, EMPTY_TABLE + block
        self._frames_sent += 1
        self._output += header_frames(stream.stream_id, block, end_stream=is_end, max_frame=self._peer_max_frame)
        if is_end:
            self._finish(stream)

    def _finish(self, stream: Http2Stream) -> None:
        """Close a stream whose response is sent. What is left of its request is not needed, and ignored (section 8.1).

        RST_STREAM could ask the client to stop sending. But a client of gRPC does that when it reads the status; and
        grpcio, if both arrive together while it waits for a window, reports an error itself in place of the status.
        """
        self._drop(stream)
        if not stream.is_request_over:
            self._ignore(stream.stream_id)
        self._end_if_drained()

    def _drop(self, stream: Http2Stream) -> None:
        """Remove a stream and what it has not sent."""
        del self._streams[stream.stream_id]
        if stream.unsent_bytes:
            self._blocked.pop(stream.stream_id, None)
            self._unsent_bytes -= stream.unsent_bytes
            self.unsent_streams -= 1
            stream.discard(self._shared.contents)

    def _ignore(self, stream_id: int) -> None:
        if self._ignored is _NONE_IGNORED:
            self._ignored = {}
        if len(self._ignored) >= self._shared.limits.max_concurrent_streams:
            del self._ignored[next(iter(self._ignored))]
        self._ignored[stream_id] = None
