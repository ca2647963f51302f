"""A client's connection to a RocketMQ name server: one request at a time, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from pointsman.names import split_addr
from pointsman.rocketmq.bodies import BadBodyError
from pointsman.rocketmq.codes import RequestCode, ResponseCode
from pointsman.rocketmq.frames import BadFrame, Command, FrameReader, encode, read_header

CONNECT_SECONDS = 3.0
RESPONSE_SECONDS = 3.0
"""Same value as in RocketMQ's own clients (``mqClientApiTimeout``)."""
CLOSE_SECONDS = 1.0
_CHUNK = 256 * 1024


class NoResponse(Exception):
    """The name server did not respond; the message says why. The connection is no longer usable."""


class Refused(Exception):
    """The name server responded with another code than success; the message names it."""


class NameServerConnection:
    """The connection that :func:`connected` opens."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._opaque = 0

    async def ask(self, code: RequestCode, ext: Mapping[str, str] | None = None) -> bytes | None:
        """Return the body of the response; None: the requested topic does not exist.

        Raises NoResponse and Refused.
        """
        self._opaque += 1
        self._writer.write(encode(Command(code=code, opaque=self._opaque, ext=ext or {})))
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
            raise Refused(f"request {code} failed with code {response.code}: {(response.remark or '')[:200]}")
        return body

    async def _respond(self) -> tuple[Command, bytes]:
        while True:
            while (frame := self._frames.next()) is not None:
                command = read_header(frame.form, frame.header)
                # A name server may send a one-way request (905).
                if command.is_answer and command.opaque == self._opaque:
                    return command, frame.body
            data = await self._reader.read(_CHUNK)
            if not data:
                raise NoResponse("the name server closed the connection")
            self._frames.feed(data)


@asynccontextmanager
async def connected(addr: str) -> AsyncIterator[NameServerConnection]:
    """Connect for the duration of the block. Raises NoResponse."""
    host, port = split_addr(addr)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=_CHUNK)
    except TimeoutError:
        raise NoResponse(f"no connection within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        raise NoResponse(f"cannot connect: {error}") from error
    try:
        yield NameServerConnection(reader, writer)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()


def body_of(body: bytes | None) -> bytes:
    """Return the body of a response that does not depend on a topic. Raises BadBodyError."""
    if body is None:
        raise BadBodyError("unexpected code TOPIC_NOT_EXIST: the request named no topic")
    return body
