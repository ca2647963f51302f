"""One connection, from the server's side: what each frame of a peer does, and the frames that go back (RFC 9113).

The owner passes received bytes to :meth:`Http2Connection.receive`, handles the events that it returns, calls the
methods that send, and writes ``take_output()`` once for all of that. Bytes of a peer never raise: an error of one
request is RST_STREAM and an event, an error of the connection is GOAWAY and the attribute ``over``. Time is an
argument, in seconds of any monotonic clock; it matters to limits on rates alone.

What only time shows is left to the owner: a peer that sends nothing, that never acknowledges SETTINGS, that does not
read, or that keeps its windows closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hpack import Decoder

from pointsman.http2.frame_codec import (
    ACK,
    DEFAULT_MAX_FRAME,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_OCTETS,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PADDED,
    PING_OCTETS,
    PREFACE,
    PRIORITY,
    SETTINGS_ACK,
    STREAM_ID_MASK,
    ConnectionFailed,
    ErrorCode,
    FrameType,
    Setting,
    StreamFailed,
    fixed_payload,
    goaway_frame,
    ping_frame,
    read_settings,
    without_padding,
)
from pointsman.http2.header_blocks import (
    EMPTY_TABLE,
    MAX_BLOCKS_OF_ONE,
    Fields,
    RequestHeaders,
    check_request,
    check_trailers,
    read_with_table,
)
from pointsman.http2.http2_events import DataReceived, Event, PeerLeaving, PingAnswered, RequestReceived, StreamEnded
from pointsman.http2.http2_sending import DRAINING, Http2Shared, SendingSide
from pointsman.http2.http2_stream import Http2Stream
from pointsman.http2.peer_limits import TOO_MANY_PINGS, Allowances, Bound, Rate

_UPDATES_PER_FRAME: Final = 4
"""WINDOW_UPDATE frames that a peer may send for one HEADERS or DATA: for stream and connection, in two parts each."""

_NO_EVENTS: Final[list[Event]] = []
"""Those of a connection that is not receiving; never changed."""
_new = tuple.__new__
"""Like the constructor of a named tuple in half the time: for the two events of every request."""


class _PartialBlock:
    """A header block whose end was not received (section 4.3)."""

    __slots__ = ("frames", "is_end", "parts", "since", "size", "stream_id")

    def __init__(self, stream_id: int, fragment: bytes, *, is_end: bool, since: float) -> None:
        self.stream_id = stream_id
        self.since = since
        self.is_end = is_end
        self.parts = [fragment]
        self.size = len(fragment)
        self.frames = 0


class Http2Connection(SendingSide):
    """State of a connection."""

    __slots__ = (
        "_allowances",
        "_blocks_added",
        "_decoder",
        "_events",
        "_expects",
        "_frames_at_ping",
        "_frames_at_update",
        "_has_preface",
        "_is_stateless",
        "_now",
        "_partial",
        "_rest",
        "_skipped",
        "incomplete_since",
        "is_acknowledged",
    )

    def __init__(self, shared: Http2Shared | None = None) -> None:
        super().__init__(shared or Http2Shared())
        self.is_acknowledged = False
        """Whether the peer has acknowledged the settings of this server (section 6.5.3)."""
        self.incomplete_since: float | None = None
        """When the frame or header block began whose end was not received; None: there is none."""
        self._events = _NO_EVENTS
        self._now = 0.0
        self._allowances: Allowances | None = None
        """Of what the peer has sent lately that has a rate."""
        self._rest = b""
        """Received bytes that are not a complete frame."""
        self._has_preface = False
        self._expects: int | None = FrameType.SETTINGS
        """The only frame type that may come next. SETTINGS is the first frame of a client (section 3.4), and nothing is
        sent between HEADERS and its last CONTINUATION (section 6.10)."""
        self._partial: _PartialBlock | None = None
        self._skipped = (0, 0)
        """From, to: stream identifiers that the peer skipped last, which closed them unused (section 5.1.1)."""
        self._decoder: Decoder | None = None
        """While the peer may use a dynamic table."""
        self._is_stateless = False
        """Whether equal bytes mean equal headers from now on."""
        self._blocks_added = 0
        # What a peer sends because of a frame of this server is not a flood.
        self._frames_at_ping = self._frames_at_update = 0

    @property
    def waiting_bytes(self) -> int:
        """Return the received bytes that are kept for a frame or a header block that is not complete."""
        return len(self._rest) + (sum(map(len, self._partial.parts)) if self._partial is not None else 0)

    # --- receiving ------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, *, now: float) -> list[Event]:
        """Handle the next bytes of the peer, however they are divided, and return what they mean."""
        if self.over is not None:
            return []
        self._now = now
        events: list[Event] = []
        self._events = events
        if self._rest:
            data = self._rest + data
        try:
            self._rest = self._read(data)
        except ConnectionFailed as error:
            self.close(error.code, str(error))
        if self.over is not None:
            self._rest, self._partial, self._decoder = b"", None, None
        self._events = _NO_EVENTS
        if self._partial is not None:
            self.incomplete_since = self._partial.since
        elif not self._rest:
            self.incomplete_since = None
        elif self.incomplete_since is None or len(self._rest) < len(data):
            self.incomplete_since = now  # a frame was complete: this is another one
        return events

    def forget_rates(self, now: float) -> None:
        """Release what is kept for limits on rates, if all of it is refilled. To be called now and then."""
        if self._allowances is not None and self._allowances.are_full(now=now):
            self._allowances = None

    def _read(self, data: bytes) -> bytes:
        """Handle complete frames and return the bytes after them. Raises ConnectionFailed."""
        at, size, handlers = 0, len(data), self._handlers
        if not self._has_preface:
            if not (PREFACE.startswith(data) or data.startswith(PREFACE)):
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "the connection preface is not that of HTTP/2")
            if size < len(PREFACE):
                return data
            self._has_preface, at = True, len(PREFACE)
        while size - at >= HEADER_OCTETS:
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(data, at)
            octets = high << 8 | low
            if octets > DEFAULT_MAX_FRAME:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"a frame has {octets} octets")  # section 4.2
            end = at + HEADER_OCTETS + octets
            if end > size:
                break
            if self._expects is not None and kind != self._expects:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"received frame type {kind}, not {self._expects}")
            payload = data[at + HEADER_OCTETS : end]
            at = end
            stream_id &= STREAM_ID_MASK
            try:
                if kind < len(handlers):
                    handlers[kind](self, flags, stream_id, payload)
                else:
                    # Frames of unknown types are ignored (section 4.1).
                    self._spend(Bound.IGNORED_FRAMES, self._shared.limits.ignored_frames)
            except StreamFailed as error:
                self._fail_stream(stream_id, error)
            if self.over is not None:
                return b""
        return data[at:] if at < size else b""

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """DATA, section 6.1."""
        octets = len(payload)
        # All of it counts for flow control, padding included, also on a stream that has ended (section 6.9.1).
        self._receive_window -= octets
        if self._receive_window < 0:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "DATA is beyond the window of the connection")
        if flags & PADDED:
            payload = without_padding(flags, payload)
        is_end = bool(flags & END_STREAM)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_closed(stream_id, FrameType.DATA, is_end=is_end)
            self._acknowledge_connection(octets)
            return
        try:
            stream.count_data(octets, len(payload), is_end=is_end)
        except StreamFailed:
            self._acknowledge_connection(octets)
            raise
        if not payload and not is_end:
            self._spend(Bound.EMPTY_FRAMES, self._shared.limits.empty_frames)
        self._events.append(_new(DataReceived, (stream_id, payload, octets, is_end)))

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """HEADERS, section 6.2."""
        if not stream_id & 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")  # section 5.1.1
        if flags & (PADDED | PRIORITY):
            payload = without_padding(flags, payload)
            if flags & PRIORITY:
                # Dependency and weight are deprecated and have no effect (section 5.3.2).
                if len(payload) < 5:
                    raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "HEADERS is shorter than its priority")
                payload = payload[5:]
        if not self._is_stateless and self.is_acknowledged and not self._shared.limits.header_table_size:
            # The first block after the acknowledgement begins by emptying the table (section 4.3.1).
            if payload[:1] != EMPTY_TABLE:
                raise ConnectionFailed(ErrorCode.COMPRESSION_ERROR, "the dynamic table is not made smaller")
            self._is_stateless, self._decoder = True, None
        is_end = flags & END_STREAM != 0
        if flags & END_HEADERS:
            self._on_block(stream_id, payload, is_end=is_end)
        else:
            self._partial = _PartialBlock(stream_id, payload, is_end=is_end, since=self._now)
            self._expects = FrameType.CONTINUATION

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        """CONTINUATION, section 6.10. Fragments are kept, so their number and size have a limit (section 10.5.1).

        A block that is too large costs only its stream, if no later one can depend on it; it is not kept.
        """
        partial, limits = self._partial, self._shared.limits
        if partial is None or stream_id != partial.stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS of the same stream")
        partial.frames += 1
        partial.size += len(payload)
        if partial.frames > limits.max_continuations:
            raise self._shared.excesses.fail(Bound.CONTINUATIONS, "too many CONTINUATION frames")
        if partial.size > limits.max_header_bytes:
            if not self._is_stateless:
                raise self._shared.excesses.fail(Bound.HEADER_BYTES, "a header block is too large")
            partial.parts.clear()
        else:
            partial.parts.append(payload)
        if not payload and not flags & END_HEADERS:
            self._spend(Bound.EMPTY_FRAMES, limits.empty_frames)
        if flags & END_HEADERS:
            self._partial = self._expects = None
            if not partial.parts:
                self._last_stream_id = max(stream_id, self._last_stream_id)
                raise self._shared.excesses.refuse(
                    Bound.HEADER_BYTES, ErrorCode.ENHANCE_YOUR_CALM, "a header block is too large"
                )
            self._on_block(stream_id, b"".join(partial.parts), is_end=partial.is_end)

    def _on_block(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        """Handle a complete header block: a request, its trailers, or one that comes too late."""
        if stream_id <= self._last_stream_id:
            self._on_late_block(stream_id, block, is_end=is_end)
            return
        # A block must be decoded in any case: it may change the dynamic table (section 4.3).
        headers = self._shared.known.get(block) if self._is_stateless else None
        if stream_id - self._last_stream_id > 2:
            self._skipped = (self._last_stream_id + 1, stream_id)
        self._last_stream_id = stream_id
        if headers is None:
            headers = self._read_request(block)
        if stream_id > self._last_accepted:
            # After the final GOAWAY: the peer repeats it on another connection (section 6.8).
            self._ignore(stream_id)
            return
        shared = self._shared
        if len(self._streams) >= shared.limits.max_concurrent_streams:
            raise shared.excesses.refuse(Bound.STREAMS, ErrorCode.REFUSED_STREAM, "too many streams")  # section 5.1.2
        if self._unsent_bytes > shared.limits.max_unsent_bytes:
            raise shared.excesses.refuse(Bound.UNSENT, ErrorCode.REFUSED_STREAM, "too much waits for the peer's window")
        if is_end and headers.content_length:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "content-length of a request without content")
        self._streams[stream_id] = stream = Http2Stream(
            stream_id, self._peer_initial_window, shared.limits.stream_window, headers.content_length
        )
        stream.is_request_over = is_end
        self._events.append(_new(RequestReceived, (stream_id, headers, is_end)))

    def _on_late_block(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        """Handle a header block on a stream that is not new: trailers (section 8.1), or an error."""
        fields = self._read_fields(block)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_closed(stream_id, FrameType.HEADERS, is_end=is_end)
            return
        stream.count_data(0, 0, is_end=is_end)
        if not is_end:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "trailers do not end the request")
        check_trailers(fields)
        self._events.append(DataReceived(stream_id, b"", 0, is_end=True))

    def _read_request(self, block: bytes) -> RequestHeaders:
        """Decode and check a block that is not known."""
        headers = check_request(self._read_fields(block))
        if self._is_stateless and self._blocks_added < MAX_BLOCKS_OF_ONE:
            self._blocks_added += 1
            self._shared.known.add(block, headers)
        return headers

    def _read_fields(self, block: bytes) -> Fields:
        """Decode a block: with this connection's dynamic table, until the peer has emptied it."""
        if self._is_stateless:
            return self._shared.known.read(block)
        if self._decoder is None:
            self._decoder = Decoder(self._shared.limits.max_header_bytes)
        return read_with_table(self._decoder, block, self._shared.excesses)

    def _on_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """PRIORITY, section 6.3: deprecated, and without effect."""
        if not stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            kind = StreamFailed if stream_id <= self._last_stream_id else ConnectionFailed
            raise kind(ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY has {len(payload)} octets, must be 5")
        self._spend(Bound.IGNORED_FRAMES, self._shared.limits.ignored_frames)

    def _on_reset(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """RST_STREAM, section 6.4."""
        fixed_payload(FrameType.RST_STREAM, payload, 4)
        self._check_not_idle(stream_id, FrameType.RST_STREAM)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._spend(Bound.RESETS, self._shared.limits.resets)
            self._drop(stream)
            self._events.append(StreamEnded(stream_id, int.from_bytes(payload, "big"), by_peer=True))
            self._end_if_drained()
        elif stream_id in self._ignored:
            del self._ignored[stream_id]
        else:
            self._spend(Bound.IGNORED_FRAMES, self._shared.limits.ignored_frames)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        """SETTINGS, section 6.5."""
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"SETTINGS on stream {stream_id}")
        self._spend(Bound.SETTINGS, self._shared.limits.settings)
        if flags & ACK:
            fixed_payload(FrameType.SETTINGS, payload, 0)
            if self._expects is not None:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "the first frame acknowledges settings")
            self.is_acknowledged = True
            if not self._shared.limits.header_table_size:
                self._decoder = None  # the next block begins by emptying the table
            return
        self._expects = None
        for setting, value in read_settings(payload):
            if setting == Setting.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
            elif setting == Setting.MAX_FRAME_SIZE:
                self._peer_max_frame = value
            elif setting == Setting.HEADER_TABLE_SIZE:
                # Responses use no table. A smaller one must be confirmed all the same (RFC 7541 section 4.2).
                self._must_empty_table = True
        self._output.append(SETTINGS_ACK)
        self._flush(self._events)

    def _resize_windows(self, initial_window: int) -> None:
        """Change the windows of all streams by as much as their initial size has changed (section 6.9.2)."""
        change = initial_window - self._peer_initial_window
        self._peer_initial_window = initial_window
        for stream in self._streams.values():
            stream.send_window += change
            if stream.send_window > MAX_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window is above 2^31-1")
            if stream.unsent_bytes and stream.send_window > 0:
                self._block(stream)

    def _on_push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        """PUSH_PROMISE, section 6.6: clients must not push (section 8.4)."""
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a client sent PUSH_PROMISE")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        """PING, section 6.7."""
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"PING on stream {stream_id}")
        fixed_payload(FrameType.PING, payload, PING_OCTETS)
        credit, self._frames_at_ping = self._frames_sent - self._frames_at_ping, self._frames_sent
        self._spend(Bound.PINGS, self._shared.limits.pings, credit=credit, text=TOO_MANY_PINGS)
        if not flags & ACK:
            self._output.append(ping_frame(payload, ack=True))
            return
        self._events.append(PingAnswered(payload))
        if payload == DRAINING and self._last_accepted == MAX_STREAM_ID:
            # The peer has read the first GOAWAY: whatever it opened before is received (section 6.8).
            self._last_accepted = self._last_stream_id
            self._output.append(goaway_frame(self._last_accepted, ErrorCode.NO_ERROR))
            self._end_if_drained()

    def _on_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """GOAWAY, section 6.8."""
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"GOAWAY on stream {stream_id}")
        if len(payload) < 8:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY has {len(payload)} octets, must be at least 8")
        self._spend(Bound.IGNORED_FRAMES, self._shared.limits.ignored_frames)
        self._events.append(PeerLeaving(int.from_bytes(payload[4:8], "big"), payload[8:]))

    def _on_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """WINDOW_UPDATE, section 6.9."""
        fixed_payload(FrameType.WINDOW_UPDATE, payload, 4)
        credit, self._frames_at_update = self._frames_sent - self._frames_at_update, self._frames_sent
        self._spend(Bound.WINDOW_UPDATES, self._shared.limits.window_updates, credit=_UPDATES_PER_FRAME * credit)
        increment = int.from_bytes(payload, "big") & MAX_WINDOW
        if not stream_id:
            if not increment:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            self._send_window += increment
            if self._send_window > MAX_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "the window of the connection is above 2^31-1")
            self._flush(self._events)
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_not_idle(stream_id, FrameType.WINDOW_UPDATE)
            return  # it may come after the end of the response (section 5.1)
        if not increment:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR, "the window of the stream is above 2^31-1")
        if stream.unsent_bytes:
            self._block(stream)
            self._flush(self._events)

    # --- rules that several frames share --------------------------------------------------------------------------

    def _spend(self, bound: Bound, rate: Rate, *, credit: int = 0, text: str = "") -> None:
        """Count a frame whose rate has a limit. Raises ConnectionFailed."""
        if self._allowances is None:
            self._allowances = Allowances()
        if not self._allowances.take(bound, rate, now=self._now, credit=credit):
            raise self._shared.excesses.fail(bound, text or f"too many {bound.replace('_', ' ')}")

    def _check_not_idle(self, stream_id: int, kind: FrameType) -> None:
        """Refuse a frame on a stream that was never opened (section 5.1); stream 0 is none."""
        if stream_id > self._last_stream_id or not stream_id & 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"{kind.name} on stream {stream_id}, which is idle")

    def _check_closed(self, stream_id: int, kind: FrameType, *, is_end: bool) -> None:
        """Refuse DATA or HEADERS on a closed stream, unless the peer may not know that it is (section 5.1)."""
        self._check_not_idle(stream_id, kind)
        if self._skipped[0] <= stream_id < self._skipped[1]:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} was skipped")  # section 5.1.1
        if stream_id not in self._ignored:
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, f"{kind.name} on stream {stream_id}, which is closed")
        if is_end:
            del self._ignored[stream_id]

    def _fail_stream(self, stream_id: int, error: StreamFailed) -> None:
        """Reset a stream for an error of the peer (section 5.4.2).

        A peer that makes this server reset streams causes the same work as one that resets them itself.
        """
        self._spend(Bound.RESETS, self._shared.limits.resets)
        is_open = stream_id in self._streams
        self.reset(stream_id, error.code)
        if is_open:
            self._events.append(StreamEnded(stream_id, error.code, by_peer=False))

    _handlers: Final[tuple[Callable[[Http2Connection, int, int, bytes], None], ...]] = (
        _on_data,
        _on_headers,
        _on_priority,
        _on_reset,
        _on_settings,
        _on_push_promise,
        _on_ping,
        _on_goaway,
        _on_window_update,
        _on_continuation,
    )
    """By frame type."""
