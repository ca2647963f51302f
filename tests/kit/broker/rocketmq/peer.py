"""One connection to RocketMQ's wire of a name server, and its answers."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from pointsman.names import split_addr
from pointsman.rocketmq.frames import Command, FrameReader, read_header
from tests.kit.broker.rocketmq.frames import ask

SECONDS = 20.0


class Answer(NamedTuple):
    """What came back."""

    command: Command
    body: bytes

    @property
    def code(self) -> int:
        return self.command.code

    def json(self) -> Any:
        return json.loads(self.body)


class Closed(Exception):
    """The server closed the connection."""


class RemotingPeer:
    """A broker, client or mqadmin: it sends a request and waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._frames = FrameReader()
        self._opaque = 0

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **how: Any) -> Answer:
        """Send one request and wait for its answer. Raises Closed."""
        self._opaque += 1
        self.send(ask(code, ext, body, opaque=self._opaque, **how))
        answer = await self.answer()
        assert answer.command.opaque == self._opaque
        return answer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        """The next answer. Raises Closed."""
        async with asyncio.timeout(SECONDS):
            while (frame := self._frames.next()) is None:
                try:
                    data = await self._reader.read(65_536)
                except ConnectionError:
                    data = b""
                if not data:
                    raise Closed
                self._frames.feed(data)
        command = read_header(frame.form, frame.header)
        assert command.is_answer
        return Answer(command, frame.body)

    async def until_closed(self) -> None:
        """Wait until the server closes, without an answer before."""
        try:
            answer = await self.answer()
        except Closed:
            return
        raise AssertionError(f"answered {answer}")

    async def drain_to_end(self) -> None:
        """Read and discard until the server closes."""
        async with asyncio.timeout(SECONDS):
            try:
                while await self._reader.read(65_536):
                    pass
            except ConnectionError:
                return

    async def is_answered(self) -> bool:
        """Whether the connection still serves: it sends a harmless request."""
        try:
            return (await self.ask(999)).code == 3
        except Closed:
            return False

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


@asynccontextmanager
async def remoting_peer(addr: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[RemotingPeer]:
    """Connect for the length of the block."""
    host, port = split_addr(addr)
    peer = RemotingPeer(*await asyncio.open_connection(host, port, ssl=tls))
    try:
        yield peer
    finally:
        await peer.close()
