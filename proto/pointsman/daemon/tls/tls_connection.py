"""TLS below a connection of either wire: first byte, handshake, then decrypted bytes.

The event loop's own TLS takes 256 KiB per connection. Without TLS this module is not used: the server then creates the
connections itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.tls import client_certificate

HANDSHAKE_SECONDS = 10.0
"""Limit from the opening of a connection, as for gRPC (``pointsman.wire.channel_options``)."""
READ_BYTES = 64 * 1024
_HANDSHAKE_RECORD = 0x16


class SecuredConnection(Protocol):
    """A connection above TLS: a protocol of asyncio, and what it has to do for the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open; there is no decrypted byte before :meth:`identify` or :meth:`use`."""

    def data_received(self, data: bytes) -> None:
        """Handle decrypted bytes."""

    def pause_writing(self) -> None:
        """As in asyncio."""

    def resume_writing(self) -> None:
        """As in asyncio."""

    def connection_lost(self, error: Exception | None) -> None:
        """As in asyncio."""

    def use(self, transport: asyncio.Transport) -> None:
        """Continue in plaintext, with this transport to the same peer."""

    def identify(self, certificate: ClientCertificate | None, encoded: bytes | None, protocol: str | None) -> bool:
        """Set what the handshake showed: the peer's certificate, and what ALPN chose. Return False after it was
        closed."""

    def close(self, cause: str, problem: str = "") -> None:
        """Close after the last write."""

    def fail(self, error: Exception) -> None:
        """Close after an internal error, which is logged."""

    def abort(self, cause: str) -> None:
        """Close immediately, for a bound of this server."""


class Handshakes:
    """Handshakes of all connections. A step takes about a millisecond of CPU, so each runs in its own turn of the
    loop."""

    def __init__(
        self, context: Callable[[], ssl.SSLContext], *, permissive: bool, monotonic: Callable[[], float]
    ) -> None:
        """``context``: used for the next handshake. ``permissive``: plaintext is served too."""
        self.context = context
        self.permissive = permissive
        self._monotonic = monotonic
        self._open: dict[TlsConnection, float] = {}
        self._ready = asyncio.Queue[TlsConnection]()

    def begin(self, connection: TlsConnection) -> None:
        """Add an opened connection."""
        self._open[connection] = self._monotonic()

    def end(self, connection: TlsConnection) -> None:
        """Remove a connection after its handshake or its end."""
        self._open.pop(connection, None)

    def queue(self, connection: TlsConnection) -> None:
        """Queue a connection that received bytes."""
        self._ready.put_nowait(connection)

    async def run(self) -> None:
        """Run the steps until cancelled."""
        while True:
            connection = await self._ready.get()
            try:
                connection.shake_hands()
            except Exception as error:  # noqa: BLE001  # of one connection: the others go on
                connection.fail(error)
            await asyncio.sleep(0)

    def close_overdue(self) -> None:
        """Close connections that did not finish in time."""
        since = self._monotonic() - HANDSHAKE_SECONDS
        for connection in [each for each, opened_at in self._open.items() if opened_at < since]:
            connection.overdue()


class TlsConnection(asyncio.Protocol):
    """Adapter between a socket and a connection: protocol of the first, transport of the second."""

    def __init__(self, connection: SecuredConnection, handshakes: Handshakes) -> None:
        self._connection = connection
        self._handshakes = handshakes
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_open = False
        """Whether the handshake is over."""
        self._has_ended = False
        """Whether nothing more is sent, or decrypted."""

    # --- asyncio.Protocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open; the handshake's time limit starts now."""
        self._transport = cast("asyncio.Transport", transport)
        self._handshakes.begin(self)
        self._connection.connection_made(cast("asyncio.Transport", self))

    def data_received(self, data: bytes) -> None:
        """Handle bytes as they are on the wire."""
        if self._has_ended:
            self._connection.data_received(data)
            return
        if self._tls is None:
            if data[0] != _HANDSHAKE_RECORD:
                self._take_plaintext(data)
                return
            self._tls = self._handshakes.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        if self._is_open:
            self._read()
        else:
            self._transport.pause_reading()
            self._handshakes.queue(self)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Its end."""
        self._handshakes.end(self)
        self._tls = None
        self._connection.connection_lost(error)

    # --- handshake --------------------------------------------------------------------------------------------

    def _take_plaintext(self, data: bytes) -> None:
        self._handshakes.end(self)
        if not self._handshakes.permissive:
            self._connection.close("plaintext")
            return
        self._transport.set_protocol(cast("asyncio.Protocol", self._connection))
        self._connection.use(self._transport)
        self._connection.data_received(data)

    def shake_hands(self) -> None:
        """Run the next step of the handshake, after more bytes arrived."""
        if self._tls is None or self._transport.is_closing():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._transport.resume_reading()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert with the reason
            self._connection.close("handshake", str(getattr(error, "verify_message", "") or error.reason))
            return
        self._is_open = True
        self._handshakes.end(self)
        encoded = self._tls.getpeercert(binary_form=True)
        certificate = client_certificate(encoded) if encoded else None
        self._flush()
        if not self._connection.identify(certificate, encoded, self._tls.selected_alpn_protocol()):
            return
        self._transport.resume_reading()
        self._read()  # bytes that arrived with the last message of the handshake

    def fail(self, error: Exception) -> None:
        """Close it after an internal error, which is logged."""
        self._connection.fail(error)

    def overdue(self) -> None:
        """Close it: the handshake took too long."""
        self._connection.abort("handshake")

    def _read(self) -> None:
        """Pass on the decrypted bytes."""
        assert self._tls is not None  # noqa: S101  # checked by the callers
        tls, incoming = self._tls, self._incoming
        parts: list[bytes] = []
        has_ended = False
        try:
            # Reading beyond the last byte costs an exception, which takes longer than the rest.
            while incoming.pending or tls.pending():
                part = tls.read(READ_BYTES)
                if not part:
                    has_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._transport.abort()
            return
        self._flush()
        if parts:
            self._connection.data_received(b"".join(parts))
        if has_ended:
            self._transport.close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # --- transport interface ----------------------------------------------------------------------------------

    def set_protocol(self, connection: SecuredConnection) -> None:
        """Continue with another connection to the same peer."""
        self._connection = connection

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if self._tls is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:
            self._transport.abort()
            return
        self._flush()

    def close(self) -> None:
        """Close after the last write."""
        self._notify_of_end()
        self._transport.close()

    def write_eof(self) -> None:
        """Send nothing after the last write. What the peer still sends is passed on as it is, to be dropped."""
        self._notify_of_end()
        self._has_ended = True
        self._transport.write_eof()

    def _notify_of_end(self) -> None:
        if self._is_open and self._tls is not None:
            with contextlib.suppress(ssl.SSLError):  # it does not wait for the peer's close_notify
                self._tls.unwrap()
            self._flush()

    def abort(self) -> None:
        """Close immediately."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Pass it on."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Pass it on."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Pass it on."""
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int) -> None:
        """Pass it on."""
        self._transport.set_write_buffer_limits(high=high)

    def get_write_buffer_size(self) -> int:
        """Pass it on."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str) -> Any:  # noqa: ANN401  # as asyncio has it
        """Pass it on."""
        return self._transport.get_extra_info(name)
