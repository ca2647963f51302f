"""A client's connection to a RocketMQ name server: one request at a time, each with a deadline."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from pointsman.names import split_addr
from pointsman.rocketmq.account import Account
from pointsman.rocketmq.bodies import BadBodyError
from pointsman.rocketmq.codes import RequestCode, ResponseCode
from pointsman.rocketmq.frames import BadFrame, Command, FrameReader, encode, read_header

CONNECT_SECONDS = 3.0
RESPONSE_SECONDS = 3.0
"""Same value as in RocketMQ's own clients (``mqClientApiTimeout``)."""
CLOSE_SECONDS = 1.0
MAX_OTHER_FRAMES = 1_000
"""Frames between a request and its response; a name server sends one rarely (905)."""
_CHUNK = 256 * 1024


class NoResponse(Exception):
    """The name server did not respond; the message says why. The connection is no longer usable."""


class Refused(Exception):
    """The name server responded with another code than success; the message names it."""


class Access:
    """How to connect to the name servers. New values apply to the next connection, a new account to the next
    request."""

    def __init__(self, tls: ssl.SSLContext | None = None, account: Account | None = None) -> None:
        """``tls``: None: plaintext; ``account`` signs all requests."""
        self.tls = tls
        self.account = account


class NameServerConnection:
    """The connection that :func:`connected` opens."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, access: Access) -> None:
        self._reader = reader
        self._writer = writer
        self._access = access
        self._frames = FrameReader()
        self._opaque = 0
        self._has_received = False

    async def ask(self, code: RequestCode, ext: Mapping[str, str] | None = None) -> bytes | None:
        """Return the body of the response; None: the requested topic does not exist.

        Raises NoResponse and Refused.
        """
        self._opaque += 1
        ext = ext or {}
        if self._access.account is not None:
            ext = self._access.account.signed(ext, b"")
        self._writer.write(encode(Command(code=code, opaque=self._opaque, ext=ext)))
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                await self._writer.drain()
                response, body = await self._respond()
        except TimeoutError:
            raise NoResponse(f"no response to request {code} within {RESPONSE_SECONDS:g} s") from None
        except (OSError, BadFrame) as error:
            raise NoResponse(f"the response to request {code} cannot be read: {error}") from error
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise Refused(f"request {code} failed with code {response.code}: {response.reason}")
        return body

    async def _respond(self) -> tuple[Command, bytes]:
        others = 0
        while True:
            while (frame := self._frames.next()) is not None:
                command = read_header(frame.form, frame.header)
                # A name server may send a one-way request (905).
                if command.is_answer and command.opaque == self._opaque:
                    return command, frame.body
                others += 1
                if others > MAX_OTHER_FRAMES:
                    raise NoResponse(f"the name server sent {others} frames and no response to the request")
            data = await self._reader.read(_CHUNK)
            if not data:
                raise NoResponse(f"the name server closed the connection{self._place()}")
            self._has_received = True
            self._frames.feed(data)

    def _place(self) -> str:
        """Say where a response ended."""
        if self._frames.waiting:
            return " in the middle of a frame"
        if self._has_received:
            return ""
        missing = "TLS, set observed.tls" if self._access.tls is None else "a certificate, set observed.certificate"
        return f" before any response; if it requires {missing}"


@asynccontextmanager
async def connected(addr: str, access: Access) -> AsyncIterator[NameServerConnection]:
    """Connect for the duration of the block. Raises NoResponse."""
    host, port = split_addr(addr)
    tls = access.tls
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=_CHUNK, ssl=tls)
    except TimeoutError:
        raise NoResponse(f"no connection within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        raise NoResponse(f"cannot connect: {error}") from error
    try:
        yield NameServerConnection(reader, writer, access)
    finally:
        writer.close()
        if tls is not None:
            # With TLS asyncio waits for a close_notify, which Java does not send. Nothing is unwritten.
            writer.transport.abort()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()


def body_of(body: bytes | None) -> bytes:
    """Return the body of a response that does not depend on a topic. Raises BadBodyError."""
    if body is None:
        raise BadBodyError("unexpected code TOPIC_NOT_EXIST: the request named no topic")
    return body
