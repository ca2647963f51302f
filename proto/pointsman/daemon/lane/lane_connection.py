"""A connection of the lane: bytes to calls, one write for what one read caused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from pointsman.daemon.lane.lane_call import LaneCall
from pointsman.daemon.lane.lane_methods import Method, Methods, Refusal
from pointsman.daemon.lane.lane_pushes import Pushes
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.http2.frame_codec import ErrorCode
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import DataReceived, Event, PingAnswered, RequestReceived, SendingResumed, StreamEnded
from pointsman.http2.http2_sending import Http2Shared

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

    @property
    def is_secured(self) -> bool:
        """Whether connections are above TLS."""

    def opened(self, connection: LaneConnection) -> bool:
        """Register a connection; return False if there are too many."""

    def closed(self, connection: LaneConnection) -> None:
        """Unregister a connection."""

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""


class LaneConnection(asyncio.Protocol):
    """A protocol of asyncio."""

    __slots__ = (
        "_calls",
        "_due",
        "_flush_is_due",
        "_is_receiving",
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
    )

    def __init__(self, server: LaneOwner) -> None:
        self._server = server
        self.loop = server.loop
        self.http2 = Http2Connection(server.shared)
        self.auth = _NO_AUTH
        self.is_writable = True
        self.opened_at = self.received_at = self.used_at = self.loop.time()
        """``used_at``: when it had a call last."""
        self.pinged_at: float | None = None
        """When a PING was sent that is not acknowledged."""
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, LaneCall] = {}
        self._due: list[LaneCall] | None = None
        """Calls with responses to push."""
        self._is_receiving = False
        self._flush_is_due = False
        self._unflushed = 0
        """Bytes that handlers have added since the last write."""

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
        self.received_at = now = self.loop.time()
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
        self._is_receiving = False
        self.flush()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self.is_writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self.is_writable = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        for call in list(self._calls.values()):
            call.resume()

    def connection_lost(self, _: Exception | None) -> None:
        """Handle the end, caused by either side."""
        self._transport = None
        self._server.closed(self)
        self._cancel_calls()

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
            ended = self._calls.pop(event.stream_id, None)
            if ended is not None:
                ended.cancel()
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
        del self._calls[stream_id]

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
        if self._transport is None:
            return
        data = self.http2.take_output()
        if data:
            self._transport.write(data)
        if self.http2.over is not None:
            self._cancel_calls()
            self._transport.close()

    def ping(self) -> None:
        """Ask whether the client is there."""
        self.pinged_at = self.loop.time()
        self.http2.ping(_PING)
        self.flush()

    def drain(self) -> None:
        """Let the client open no further calls; close when those in progress have ended."""
        self.pinged_at = self.loop.time()
        self.http2.drain()
        self.flush()

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
        if self._transport is not None:
            self._transport.abort()

    def _cancel_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()
