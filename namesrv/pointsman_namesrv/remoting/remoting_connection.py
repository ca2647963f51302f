"""One connection of RocketMQ's wire: frames in order, one write per read, and no reading while responses are unread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterator
from typing import Protocol, cast

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access, Caller, Denied
from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.waiting_bytes import ComingIn, ReadingTime, Unsent
from pointsman.names import join_addr, split_addr
from pointsman.rocketmq.frames import BadFrame, Frame, FrameReader, ReadyResponse, read_header
from pointsman_namesrv.core.model import BrokerIdentity
from pointsman_namesrv.remoting.broker_codes import Steps
from pointsman_namesrv.remoting.requests import LARGE_BYTES, Connection, GoElsewhere, Requests

UNSENT_A_CONNECTION = 64 * 1024
"""Unread responses of one connection from which it is not read."""
PART_BYTES = 16 * 1024
"""A large response is given to the transport in parts of this size."""
STEPS_INLINE = 3
"""Steps of a registration that run when it arrives; a larger one waits for its turn."""
INLINE_BYTES = 48 * 1024
LONGEST_LANGUAGE = 16
NO_ROLE = "\0"
"""Group of all callers without a role."""

log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """What a connection takes of its server."""

    requests: Requests
    access: Access
    clock: Clock
    coming_in: ComingIn
    unsent: Unsent

    def opened(self, connection: RemotingConnection) -> int:
        """Register a connection and return its number."""

    def regroup(self, connection: RemotingConnection, before: str, group: str) -> None:
        """Count a connection for an identity; empty: for itself."""

    def closed(self, connection: RemotingConnection, *, by_us: bool) -> None:
        """Unregister a connection."""

    def count_closed(self, cause: str, peer: str, problem: str = "") -> None:
        """Count why a connection was closed."""

    def queue(self, connection: RemotingConnection, steps: Steps, opaque: bytes | None) -> None:
        """Queue work, whose response goes to :meth:`RemotingConnection.finish`."""

    def wait_for(self, connection: RemotingConnection, change: Awaitable[ReadyResponse], opaque: bytes | None) -> None:
        """Respond after a change was saved."""


class RemotingConnection(asyncio.Protocol, Connection):
    """A protocol of asyncio, above the socket or above a ``TlsConnection``."""

    def __init__(self, server: ConnectionOwner) -> None:
        self.stream = 0
        self.held: dict[BrokerIdentity, None] = {}
        self.is_brokers = False
        self.peer = ""
        self.certificate: ClientCertificate | None = None
        """That of the peer, verified."""
        self.caller: Caller | None = None
        self.group = ""
        self.active_at = server.clock.monotonic()
        """Time of its last request or response."""
        self.coming_in = 0
        self.reading = ReadingTime()
        self.unread_since = 0.0
        self.unsent = 0
        """Unread bytes, while reading is paused for them."""
        self.is_closing = False
        self._server = server
        self._serve = server.requests.serve
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._at_work = 0
        """Bytes of the request whose work is queued, or whose large response is being sent."""
        self._is_held = False
        self._sending: ReadyResponse | None = None
        self._rest = memoryview(b"")
        """What is left of it."""
        self._has_asked = False
        self.client: tuple[str, int] | None = None
        """Language and version of its first request."""
        self._by_us = False

    @property
    def is_busy(self) -> bool:
        """Return whether work is in progress."""
        return bool(self.coming_in or self.unsent)

    @property
    def waiting(self) -> int:
        """Return the bytes of its incomplete frame, and of complete ones that wait for their turn."""
        return self._reader.waiting

    def worth(self) -> tuple[bool, float]:
        """Return a sort key: how much would be lost if this connection, which holds no broker, were closed."""
        return self._has_asked, self.active_at

    def _note_first(self, frame: Frame) -> None:
        self._has_asked = True
        with contextlib.suppress(BadFrame):  # its handler reports it
            command = read_header(frame.form, frame.header)
            self.client = command.language[:LONGEST_LANGUAGE], command.version

    # --- asyncio.Protocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open."""
        # A server's transports read and write; uvloop's have no asyncio class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_A_CONNECTION)
        peer = transport.get_extra_info("peername")
        self.peer = join_addr(peer[0], peer[1]) if peer else ""
        self.identify(None)
        self.stream = self._server.opened(self)

    def use(self, transport: asyncio.Transport) -> None:
        """Continue with another transport to the same peer."""
        self._transport = transport

    def identify(
        self,
        certificate: ClientCertificate | None,
        encoded: bytes | None = None,  # noqa: ARG002  # the shape of a connection above TLS
        protocol: str | None = None,  # noqa: ARG002  # as above: RocketMQ's clients send no ALPN
    ) -> bool:
        """Set the peer's identity from its verified certificate, if it has one. Return False after it was closed."""
        if certificate is not None and certificate.problem:
            self.close("handshake", f"the certificate {certificate.problem}")
            return False
        self.certificate = certificate
        host = split_addr(self.peer)[0] if self.peer else ""
        try:
            self.caller = self._server.access.connection(certificate, host)
        except Denied as denied:
            self._server.access.note(denied, "remoting handshake", self.peer)
            self.close("denied", str(denied))
            return False
        has_role = self.caller is None or bool(self.caller.roles)
        before, self.group = self.group, ""
        if self.caller is not None and (not has_role or self.caller.proof == "certificate"):
            self.group = self.caller.identity if has_role else NO_ROLE
        self._server.regroup(self, before, self.group)
        self._serve = self._server.requests.serve if has_role else self._server.requests.refuse
        return True

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        self.active_at = self._server.clock.monotonic()
        self._reader.feed(data)
        if self._reader.waiting <= INLINE_BYTES:
            self._continue()
        else:
            # All received parts of a large frame are read in one turn of the loop; handling the frame takes another.
            self._note_waiting()
            asyncio.get_running_loop().call_soon(self._continue)

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read."""
        if self._transport is not None:
            self._pause_reading()
            self.unread_since = self._server.clock.monotonic()
            self.unsent = max(1, self._transport.get_write_buffer_size())
            self._server.unsent.note(self, self.unsent)

    def resume_writing(self) -> None:
        """Go on."""
        self.active_at = self._server.clock.monotonic()
        self._note_read()
        if self._sending is not None:
            self._send_on()
        self._read_on()

    def connection_lost(self, _: Exception | None) -> None:
        """Handle the end, caused by either side."""
        self.is_closing = True
        self._transport = None
        self._drop_all()
        self._server.closed(self, by_us=self._by_us)

    # --- work -------------------------------------------------------------------------------------------------

    def _continue(self) -> None:
        """Respond to complete frames while possible, and write the responses together."""
        written: list[bytes] = []
        size, cause = 0, ""
        next_frame, serve, reading = self._reader.next, self._serve, self.reading
        try:
            while not (self._at_work or self.unsent or self.is_closing):
                frame = next_frame()
                if frame is None:
                    break
                if not self._has_asked:
                    self._note_first(frame)
                reading.since = None
                response = serve(self, frame)
                if isinstance(response, tuple):
                    response = self._start(*response, size=len(frame.body))
                    if self._sending is not None and response is not None:
                        self._write([*written, response])
                        written.clear()
                        size, response = 0, None
                        self._send_on()
                if response is not None:
                    written.append(response)
                    size += len(response)
                    if size >= UNSENT_A_CONNECTION:
                        self._write(written)
                        size = 0
        except BadFrame as error:
            cause = error.cause
        except GoElsewhere:
            cause = "not_serving"
        except Exception as error:  # noqa: BLE001  # of one connection: the caller may serve others too
            self.fail(error)
            return
        self._write(written)
        if cause:
            self.close(cause)
        self._note_waiting()

    def _start(
        self, work: ReadyResponse | Steps | Awaitable[ReadyResponse], opaque: bytes | None, *, size: int
    ) -> bytes | None:
        """Do small work; queue larger work, and pause this connection until it is done.

        Of a large response return the beginning: the rest follows as the peer reads.
        """
        if isinstance(work, ReadyResponse):
            return None if opaque is None else self._begin_to_send(work, opaque)
        if isinstance(work, Iterator) and size <= INLINE_BYTES:
            for _ in range(STEPS_INLINE):
                response = next(work, None)
                if response is not None:
                    return None if opaque is None else response.to(opaque)
        self._at_work = size or 1
        self._pause_reading()
        if isinstance(work, Iterator):
            self._server.queue(self, work, opaque)
        else:
            self._server.wait_for(self, work, opaque)
        return None

    def finish(self, response: ReadyResponse, opaque: bytes | None) -> None:
        """Send the response of queued work."""
        self._at_work = 0
        self._note_waiting()
        if opaque is not None and not self.is_closing:
            if len(response) <= LARGE_BYTES:
                self._write([response.to(opaque)])
            else:
                self._write([self._begin_to_send(response, opaque)])
                self._send_on()
        self._read_on()

    def _begin_to_send(self, response: ReadyResponse, opaque: bytes) -> bytes:
        """Return the beginning of a response; :meth:`_send_on` sends the rest."""
        head, self._rest = response.parts(opaque)
        self._sending, self._at_work = response, 1
        self._server.unsent.keep(self, response)
        return head

    def _send_on(self) -> None:
        """Send further parts of a large response, until its peer must read."""
        while self._rest and not self.unsent and self._transport is not None:
            part, self._rest = self._rest[:PART_BYTES], self._rest[PART_BYTES:]
            self._transport.write(part)
        if not self._rest and self._sending is not None:
            self._server.unsent.drop(self._sending)
            self._sending, self._at_work = None, 0

    def _pause_reading(self) -> None:
        if self._transport is not None and not self.is_closing:
            self._transport.pause_reading()
            self.reading.pause(self._server.clock.monotonic())

    def _read_on(self) -> None:
        """Read again and handle what has arrived, if nothing else keeps this connection from it."""
        if self._transport is not None and not (self._at_work or self.unsent or self._is_held or self.is_closing):
            self.reading.go_on(self._server.clock.monotonic())
            self._transport.resume_reading()
            self._continue()

    def hold(self) -> None:
        """Stop reading: the frames of all connections together need too much memory."""
        self._is_held = True
        self._pause_reading()

    def go_on(self) -> None:
        """Read again."""
        self._is_held = False
        self._read_on()

    def _write(self, frames: list[bytes]) -> None:
        if frames and self._transport is not None and not self.is_closing:
            self._transport.write(b"".join(frames))
        frames.clear()

    def _note_waiting(self) -> None:
        before, waiting = self.coming_in, self._reader.waiting
        self.coming_in = waiting + self._at_work
        if waiting and self.reading.since is None:
            self.reading.since = self._server.clock.monotonic()
        if self.coming_in != before:
            self._server.coming_in.note(self, self.coming_in - before)

    def _note_read(self) -> None:
        unsent, self.unsent = self.unsent, 0
        self._server.unsent.note(self, -unsent)

    def _drop_all(self) -> None:
        """Give up everything that waits."""
        self._reader, self._at_work, self._rest = FrameReader(), 0, memoryview(b"")
        self.reading.since = None
        if self._sending is not None:
            self._server.unsent.drop(self._sending)
            self._sending = None
        self._note_read()
        self._note_waiting()

    def close(self, cause: str, problem: str = "") -> None:
        """Close after the last write. This does not count against the brokers on it.

        ``problem``: the peer's error, for the log.
        """
        if not self.is_closing and self._transport is not None:
            self.is_closing = self._by_us = True
            self._server.count_closed(cause, self.peer, problem)
            self._transport.close()

    def fail(self, error: Exception) -> None:
        """Close it after an internal error, which is logged; other connections go on."""
        log.error("internal error on a remoting connection", exc_info=error, extra={"facts": {"peer": self.peer}})
        self.abort("error")

    def abort(self, cause: str) -> None:
        """Close immediately, for a bound of this server."""
        if self._transport is not None:
            if not self.is_closing:
                self._server.count_closed(cause, self.peer)
            self.is_closing = self._by_us = True
            transport, self._transport = self._transport, None
            self._drop_all()
            transport.abort()
