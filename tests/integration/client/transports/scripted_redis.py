"""A server with Redis' protocol and a test's responses to each command, on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

Answer = Callable[[Sequence[bytes]], bytes]
"""From the words of a command to the bytes of its answer."""


@asynccontextmanager
async def scripted_redis(answer: Answer) -> AsyncIterator[str]:
    """Run it for the length of the block; gives its address."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        try:
            async for words in _commands(reader):
                writer.write(answer(words))
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for writer in open_connections:
            writer.transport.abort()
        await asyncio.sleep(0)


async def _commands(reader: asyncio.StreamReader) -> AsyncIterator[Sequence[bytes]]:
    while line := await reader.readline():
        words = []
        for _ in range(int(line[1:])):
            length = int((await reader.readline())[1:])
            words.append((await reader.readexactly(length + 2))[:-2])
        yield words


class EndlessRedis:
    """What :func:`endless_redis` has sent."""

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.bytes_sent = 0
        """Handed to the sockets, with what the buffers of both sides hold."""


@asynccontextmanager
async def endless_redis(begin: bytes, again: bytes) -> AsyncIterator[EndlessRedis]:
    """Run a server whose reply to every command but CLIENT has this beginning and no end."""
    found = EndlessRedis("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            async for words in _commands(reader):
                if words[0] == b"CLIENT":
                    writer.write(b"+OK\r\n")
                    continue
                writer.write(begin)
                while not writer.transport.is_closing():
                    writer.write(again)
                    await writer.drain()
                    await asyncio.sleep(0)  # the buffers of the machine may take all of it without a wait
                    found.bytes_sent += len(again)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    found.addr = f"{host}:{port}"
    try:
        yield found
    finally:
        server.close()
        await asyncio.sleep(0)
