"""A connection to a port of two wires, until its first bytes show which one it uses.

Under TLS it is what ALPN chose, because RocketMQ's clients send no ALPN: h2, else the other wire. In plaintext it is
the preface of HTTP/2, which cannot begin a frame of RocketMQ: as a length it would be above 1 GB. A PROXY header of
version 1 or 2 may come before either, as HAProxy sends it; the addresses in it are not used.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from pointsman.daemon.lane.lane_connection import ALPN, LaneConnection, LaneOwner
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.tls_connection import SecuredConnection
from pointsman.http2.frame_codec import PREFACE
from pointsman.http2.peer_limits import Bound
from pointsman.names import join_addr
from pointsman.rocketmq.frames import BadFrame, proxy_header_size

_HTTP2: Final = PREFACE[:3]

log = logging.getLogger(__name__)


class OtherWire(Protocol):
    """The server of the other wire."""

    is_permissive: bool
    """Whether it serves plaintext where the port has TLS."""

    def connection(self) -> SecuredConnection:
        """Return a new connection of that wire, not opened yet."""

    def count_closed(self, cause: str, peer: str, problem: str = "") -> None:
        """Count and log why a connection was closed."""


class UndecidedOwner(LaneOwner, Protocol):
    """What it takes of its server."""

    def begun(self, connection: UndecidedConnection) -> bool:
        """Register a connection; return False if there are too many."""

    def decided(self, connection: UndecidedConnection) -> None:
        """Unregister a connection."""


class UndecidedConnection(asyncio.Protocol):
    """A protocol of asyncio, above the socket or above a ``TlsConnection``."""

    __slots__ = ("_other", "_received", "_server", "_transport", "opened_at", "peer")

    def __init__(self, server: UndecidedOwner, other: OtherWire) -> None:
        self._server = server
        self._other = other
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self.opened_at = server.monotonic()
        self.peer = ""

    # --- asyncio.Protocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open."""
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = join_addr(peer[0], peer[1]) if peer else ""
        if not self._server.begun(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle bytes in plaintext."""
        self._received = received = self._received + data
        try:
            size = proxy_header_size(received)
        except BadFrame:
            size = 0  # the other wire counts and closes it
        if size is None or received[size:] in {b"", *(_HTTP2[:n] for n in range(1, len(_HTTP2)))}:
            return
        if not received.startswith(_HTTP2, size):
            self._become(self._other.connection(), received)
        elif self._server.is_secured:
            self.close("plaintext")
        else:
            self._become(LaneConnection(self._server), received[size:])

    def connection_lost(self, _: Exception | None) -> None:
        """Handle the end, caused by either side."""
        self._transport = None
        self._server.decided(self)

    # --- SecuredConnection ------------------------------------------------------------------------------------

    def use(self, transport: asyncio.Transport) -> None:
        """Continue in plaintext, on a port with TLS."""
        self._transport = transport

    def identify(self, certificate: ClientCertificate | None, encoded: bytes | None, protocol: str | None) -> bool:
        """Choose the wire by ALPN."""
        wire = LaneConnection(self._server) if protocol == ALPN else self._other.connection()
        self._become(wire)
        return wire.identify(certificate, encoded, protocol)

    def close(self, cause: str, problem: str = "") -> None:
        """Close a connection that neither wire serves."""
        self._other.count_closed(cause, self.peer, problem)
        if self._transport is not None:
            self._transport.close()

    def fail(self, error: Exception) -> None:
        """Close it after an internal error, which is logged."""
        log.error("internal error on a connection", exc_info=error, extra={"facts": {"peer": self.peer}})
        self.abort("error")

    def abort(self, cause: str) -> None:
        """Close immediately, for a bound of this server."""
        log.debug("connection closed", extra={"facts": {"peer": self.peer, "cause": cause}})
        if cause == "handshake":
            self._server.shared.excesses.note(Bound.HANDSHAKES)
        self._server.decided(self)
        if self._transport is not None:
            self._transport.abort()

    # --- the decision -----------------------------------------------------------------------------------------

    def _become(self, wire: SecuredConnection, received: bytes = b"") -> None:
        transport, self._transport = self._transport, None
        assert transport is not None  # noqa: S101  # bytes come only while it is open
        self._server.decided(self)
        transport.set_protocol(cast("asyncio.BaseProtocol", wire))
        wire.connection_made(transport)
        if received and not transport.is_closing():
            wire.data_received(received)
