"""A server with Redis' protocol and a test's responses to each command, on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

Answer = Callable[[Sequence[bytes]], bytes]
"""From the words of a command to the bytes of its answer."""


@asynccontextmanager
async def scripted_redis(answer: Answer) -> AsyncIterator[str]:
    """Run it for the length of the block; gives its address."""
    open_connections: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.add(writer)
        try:
            while line := await reader.readline():
                words = []
                for _ in range(int(line[1:])):
                    length = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(length + 2))[:-2])
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
