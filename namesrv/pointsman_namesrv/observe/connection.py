"""A client's connection to a RocketMQ name server: one request at a time, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from pointsman.remoting.codes import RequestCode, ResponseCode
from pointsman.remoting.frames import BadFrame, Command, FrameReader, encode, read_header
from pointsman.wire.names import split_addr
from pointsman_namesrv.observe.fleet_view import BadAnswer

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 3.0
"""As RocketMQ's own clients have it (``mqClientApiTimeout``)."""
CLOSE_SECONDS = 1.0
_CHUNK = 256 * 1024


class NoAnswer(Exception):
    """The name server cannot be asked; the text says why. The connection is no longer usable."""


class Refused(Exception):
    """The name server answered with another code than success; the text says which."""


class NameServerConnection:
    """What :func:`connected` gives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._opaque = 0

    async def ask(self, code: RequestCode, ext: Mapping[str, str] | None = None) -> bytes | None:
        """Return the body of the answer; None where the topic asked for does not exist.

        Raises NoAnswer and Refused.
        """
        self._opaque += 1
        self._writer.write(encode(Command(code=code, opaque=self._opaque, ext=ext or {})))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._writer.drain()
                answer, body = await self._answer()
        except TimeoutError:
            raise NoAnswer(f"no answer to request {code} within {ANSWER_SECONDS:g} s") from None
        except (OSError, BadFrame) as error:
            raise NoAnswer(f"the answer to request {code} cannot be read: {error}") from error
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(f"request {code} was answered with code {answer.code}: {(answer.remark or '')[:200]}")
        return body

    async def _answer(self) -> tuple[Command, bytes]:
        while True:
            while (frame := self._frames.next()) is not None:
                command = read_header(frame.form, frame.header)
                # A name server may send a one-way request (905).
                if command.is_answer and command.opaque == self._opaque:
                    return command, frame.body
            data = await self._reader.read(_CHUNK)
            if not data:
                raise NoAnswer("the name server closed the connection")
            self._frames.feed(data)


@asynccontextmanager
async def connected(addr: str) -> AsyncIterator[NameServerConnection]:
    """Connect for the length of the block. Raises NoAnswer."""
    host, port = split_addr(addr)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=_CHUNK)
    except TimeoutError:
        raise NoAnswer(f"no connection within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        raise NoAnswer(f"cannot connect: {error}") from error
    try:
        yield NameServerConnection(reader, writer)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()


def body_of(body: bytes | None) -> bytes:
    """The body of an answer that cannot be about a topic. Raises BadAnswer."""
    if body is None:
        raise BadAnswer("the answer is about a topic, which was not asked for")
    return body
