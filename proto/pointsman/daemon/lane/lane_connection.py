"""A connection of the lane: bytes to calls, one write for what one read caused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from pointsman.daemon.lane.lane_call import LaneCall
from pointsman.daemon.lane.lane_methods import Method, Methods, Refusal
from pointsman.daemon.lane.lane_pushes import Pushes
from pointsman.daemon.lane.lane_waiting import LaneWaiting
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.waiting_bytes import ComingIn, Unsent
from pointsman.http2.frame_codec import ErrorCode
from pointsman.http2.grpc_framing import GrpcStatus
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import DataReceived, Event, PingAnswered, RequestReceived, SendingResumed, StreamEnded
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Bound

UNSENT_BYTES = 64 * 1024
"""Unread output of one connection from which it is not read, and handlers that stream wait."""
ALPN = "h2"
_PING = b"pointsmn"
_NO_AUTH: Mapping[str, Sequence[bytes]] = {}

log = logging.getLogger(__name__)


class LaneOwner(Protocol):
    """What a connection takes of its server."""

    shared: Http2Shared
    methods: Methods
    pushes: Pushes
    loop: asyncio.AbstractEventLoop
    monotonic: Callable[[], float]
    coming_in: ComingIn
    unsent: Unsent

    @property
    def is_secured(self) -> bool:
        """Whether connections are above TLS."""

    def opened(self, connection: LaneConnection) -> bool:
        """Register a connection; return False if there are too many."""

    def ended(self, connection: LaneConnection) -> None:
        """Note that a connection serves nothing from now on, and is closed when its client closes it."""

    def closed(self, connection: LaneConnection) -> None:
        """Unregister a connection."""

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""


class LaneConnection(asyncio.Protocol):
    """A protocol of asyncio."""

    __slots__ = (
        "_calls",
        "_dropped",
        "_due",
        "_flush_is_due",
        "_is_receiving",
        "_noted_stream",
        "_server",
        "_transport",
        "_unflushed",
        "auth",
        "http2",
        "is_writable",
        "loop",
        "opened_at",
        "pinged_at",
        "received_at",
        "used_at",
        "waiting",
    )

    def __init__(self, server: LaneOwner) -> None:
        self._server = server
        self.loop = server.loop
        self.http2 = Http2Connection(server.shared)
        self.auth = _NO_AUTH
        self.is_writable = True
        self.opened_at = self.received_at = self.used_at = server.monotonic()
        """``used_at``: when it had a call last."""
        self.pinged_at: float | None = None
        """When a PING was sent that is not acknowledged."""
        self.waiting: LaneWaiting | None = None
        """What waits, while there is something."""
        self._noted_stream = 0
        """The last stream that it knows of."""
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, LaneCall] = {}
        self._due: list[LaneCall] | None = None
        """Calls with responses to push."""
        self._is_receiving = False
        self._flush_is_due = False
        self._unflushed = 0
        """Bytes that handlers have added since the last write."""
        self._dropped: int | None = None
        """Bytes received since the end of HTTP/2, while the client may be reading that."""

    # --- asyncio.Protocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open."""
        # A server's transports read and write; uvloop's have no asyncio class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        if not self._server.opened(self):
            transport.abort()
        elif not self._server.is_secured:
            self.flush()

    def use(self, transport: asyncio.Transport) -> None:
        """Do nothing: the lane has TLS, or it has not (``TlsConnection``)."""

    def identify(self, certificate: ClientCertificate | None, encoded: bytes | None, protocol: str | None) -> bool:
        """Note the client's certificate, and begin; without ALPN for HTTP/2 close (RFC 9113 section 3.3)."""
        if protocol != ALPN:
            self.abort("alpn")
            return False
        if certificate is not None and encoded is not None:
            self.auth = {"x509_pem_cert": (encoded,)}
        self.flush()
        return True

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        if self._dropped is not None:
            self._drop(len(data))
            return
        self.received_at = now = self._server.monotonic()
        self._is_receiving = True
        try:
            for event in self.http2.receive(data, now=now):
                # The two events of every unary call; not `match`, which takes longer.
                if type(event) is DataReceived:
                    stream_id, content, octets, is_end = event
                    call = self._calls.get(stream_id)
                    if call is None:
                        self.http2.acknowledge(stream_id, octets)
                    else:
                        call.receive(content, octets, is_end=is_end)
                elif type(event) is RequestReceived:
                    self._begin(event)
                else:
                    self._handle(event)
        except Exception as error:  # noqa: BLE001  # of one connection: the others go on
            self.fail(error)
        if self._calls:
            self._note_begun()
        if self.waiting is not None or self.http2.incomplete_since is not None:
            self._waiting().note_frame(now)
        self._is_receiving = False
        self.flush()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self.is_writable = False
        self._waiting().note_unsent(self._server.monotonic())
        self.read_or_pause()

    def resume_writing(self) -> None:
        """Go on."""
        self.is_writable = True
        self._waiting().note_unsent(self._server.monotonic())
        self.read_or_pause()
        for call in list(self._calls.values()):
            call.resume()

    def connection_lost(self, _: Exception | None) -> None:
        """Handle the end, caused by either side."""
        self._transport = None
        self._server.closed(self)
        self._cancel_calls()
        self._release()

    # --- events -----------------------------------------------------------------------------------------------

    def _begin(self, request: RequestReceived) -> None:
        stream_id, headers, is_end = request
        method = headers.derived
        if not isinstance(method, Method):
            found = self._server.methods.find(headers)
            if isinstance(found, Refusal):
                self.http2.send_headers(stream_id, found.block, is_end=True)
                return
            method = found
        self._calls[stream_id] = call = LaneCall(self, stream_id, method)
        if is_end or method.takes_stream:
            call.begin(is_end=is_end)

    def _handle(self, event: Event) -> None:
        if isinstance(event, StreamEnded):
            if event.stream_id in self._calls:
                self._cancel(event.stream_id)
        elif isinstance(event, SendingResumed):
            waiting = self._calls.get(event.stream_id)
            if waiting is not None:
                waiting.resume()
        elif isinstance(event, PingAnswered):
            self.pinged_at = None

    @property
    def peer(self) -> str:
        """Return the address of the client: ``ipv4:`` or ``ipv6:``, then host:port, as in gRPC; empty at the end."""
        # Not kept: few calls need it, and there are many connections.
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        if not peer:
            return ""
        return f"ipv6:[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"ipv4:{peer[0]}:{peer[1]}"

    # --- for calls and the server -----------------------------------------------------------------------------

    @property
    def has_calls(self) -> bool:
        """Return whether calls are in progress."""
        return self.http2.open_streams > 0

    def forget(self, stream_id: int) -> None:
        """Remove an ended call."""
        call = self._calls.pop(stream_id)
        if call.noted:
            self.note_request(call, -call.noted, 0, is_another=False)

    def _cancel(self, stream_id: int) -> None:
        call = self._calls[stream_id]
        self.forget(stream_id)
        call.cancel()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""
        self._server.keep(task)

    def flush_soon(self, size: int = 0) -> bool:
        """Write the output in this turn of the loop, or immediately (:meth:`CallOwner.flush_soon`)."""
        if self._is_receiving:
            return False
        self._unflushed += size
        if self._unflushed >= UNSENT_BYTES:
            self.flush()
            return True
        if not self._flush_is_due:
            self._flush_is_due = True
            self.loop.call_soon(self.flush)
        return False

    def push_soon(self, call: LaneCall) -> None:
        """Let a call push responses soon, with others."""
        if self._due is None:
            self._due = [call]
            self._server.pushes.add(self, self.loop)
        elif self._due[-1] is not call:
            self._due.append(call)

    def push(self) -> None:
        """Push what is due, in one write, or in more where it is much."""
        due, self._due = self._due, None
        room = UNSENT_BYTES if self.is_writable else 0
        try:
            for call in due or ():
                room = call.push(room)
                while room <= 0 and self.is_writable:
                    self.flush()
                    room = call.push(UNSENT_BYTES)
        except Exception as error:  # noqa: BLE001  # of one connection, as above
            self.fail(error)
        self.flush()

    def flush(self) -> None:
        """Write the output; after the end of HTTP/2 close."""
        self._flush_is_due, self._unflushed = False, 0
        if self._transport is None or self._dropped is not None:
            return
        data = self.http2.take_output()
        if data:
            self._transport.write(data)
        if self.http2.over is not None:
            self._linger()
        elif self.http2.unsent_streams or self.waiting is not None:
            self._waiting().note_unsent(self._server.monotonic(), has_written=True)

    # --- what waits -------------------------------------------------------------------------------------------

    def _waiting(self) -> LaneWaiting:
        if self.waiting is None:
            self.waiting = LaneWaiting(self, self._server.coming_in, self._server.unsent)
        return self.waiting

    @property
    def buffered(self) -> int:
        """Return the bytes that the transport has not written."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def note_request(self, call: LaneCall, by: int, incomplete: int, *, is_another: bool) -> None:
        """Count bytes of a request (:meth:`CallOwner.note_request`)."""
        now = self.received_at
        self._waiting().note_request(call.stream_id, by, incomplete, now, is_another=is_another)

    def _note_begun(self) -> None:
        """Count the requests that began with the last read and are not complete."""
        newest = self._noted_stream
        self._noted_stream = next(reversed(self._calls))
        for stream_id, call in reversed(self._calls.items()):
            if stream_id <= newest:
                break
            call.note()

    def read_or_pause(self) -> None:
        """Read, or read nothing while the bounds or the socket hold the client back."""
        waiting = self._waiting()
        reads = self.is_writable and not waiting.is_held
        waiting.note_reading(self._server.monotonic(), reads=reads)
        if self._transport is None or self._transport.is_closing() or self.http2.over is not None:
            return
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def check_waiting(self, now: float, interval: float, *, late: float) -> None:
        """End what takes too long. ``interval``: seconds since the last check; ``late``: those of a pause in it."""
        waiting = self._waiting()
        waiting.note_unsent(now)
        if late:
            waiting.credit(late)
        waiting.check(now, interval)
        if waiting.is_over and self.waiting is waiting:
            self.waiting = None

    def end_slow(self, stream_id: int) -> None:
        """End a call whose request takes too long."""
        self._server.shared.excesses.note(Bound.SLOW_REQUESTS)
        self._calls[stream_id].fail(GrpcStatus.DEADLINE_EXCEEDED, "the request took too long to arrive")

    def end_unread(self, stream_id: int) -> None:
        """Reset a stream of whose response the client takes nothing."""
        self._server.shared.excesses.note(Bound.UNREAD_RESPONSES)
        self.http2.reset(stream_id, ErrorCode.ENHANCE_YOUR_CALM)
        if stream_id in self._calls:
            self._cancel(stream_id)
        self.flush_soon()

    def give_up(self, text: str, bound: Bound | None = None) -> None:
        """Close the connection, with a reason for its client, and count the bound."""
        if bound is not None:
            self._server.shared.excesses.note(bound)
        log.debug("connection closed", extra={"facts": {"peer": self.peer, "cause": text}})
        self.http2.close(ErrorCode.ENHANCE_YOUR_CALM, text)
        if self.is_writable:
            self.flush()
        elif self._transport is not None:
            self._transport.abort()  # it would wait for what the client does not read
        self._release()

    def _release(self) -> None:
        """Keep nothing that waits."""
        self.http2.abandon()
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.release()

    # --- the end ----------------------------------------------------------------------------------------------

    def ping(self) -> None:
        """Ask whether the client is there."""
        self.pinged_at = self._server.monotonic()
        self.http2.ping(_PING)
        self.flush()

    def drain(self) -> None:
        """Let the client open no further calls; close when those in progress have ended."""
        self.pinged_at = self._server.monotonic()
        self.http2.drain()
        self.flush()

    def _linger(self) -> None:
        """Close as soon as the client does, at the latest after ``CLOSING_SECONDS``.

        Closed while bytes of a client are unread, a socket is reset, and the client may lose what was sent last: the
        reason in GOAWAY, or a response (RFC 1122 section 4.2.2.13).
        """
        assert self._transport is not None  # noqa: S101  # checked by the caller
        self._dropped = 0
        self.received_at = self._server.monotonic()
        self._server.ended(self)
        self._cancel_calls()
        self._release()
        if not self._transport.is_closing():  # aborted in this turn
            self._transport.write_eof()
            self._transport.resume_reading()

    def _drop(self, size: int) -> None:
        """Ignore received bytes; as many as the windows allow may have been on the way."""
        assert self._dropped is not None  # noqa: S101  # checked by the caller
        self._dropped += size
        if self._dropped > self._server.shared.limits.connection_window:
            self.abort()

    def close(self, cause: str, problem: str = "") -> None:
        """Close a connection whose handshake failed."""
        log.debug("connection closed", extra={"facts": {"peer": self.peer, "cause": cause, "problem": problem}})
        if self._transport is not None:
            self._transport.close()

    def fail(self, error: Exception) -> None:
        """Close it after an internal error, which is logged."""
        log.error("internal error on a connection", exc_info=error, extra={"facts": {"peer": self.peer}})
        self.http2.close(ErrorCode.INTERNAL_ERROR)
        self.flush()

    def abort(self, cause: str = "") -> None:
        """Close immediately."""
        if cause:
            log.debug("connection closed", extra={"facts": {"peer": self.peer, "cause": cause}})
        if cause == "handshake":
            self._server.shared.excesses.note(Bound.HANDSHAKES)
        if self._transport is not None:
            self._transport.abort()

    def _cancel_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()
