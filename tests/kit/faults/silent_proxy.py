"""A TCP proxy whose open connections can fall silent, as those of a machine that lost its power: no FIN, no RST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SilentProxy:
    """Forwards to a port of this machine."""

    def __init__(self, port: int, tasks: asyncio.TaskGroup) -> None:
        self.connections = 0
        self.addr = ""
        self._port = port
        self._tasks = tasks
        self._silenced: list[asyncio.Event] = []

    def swallow_what_is_open(self) -> None:
        """Forward nothing more on the connections there are; new ones work."""
        for silenced in self._silenced:
            silenced.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        silenced = asyncio.Event()
        self._silenced.append(silenced)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._tasks.create_task(_forward(reader, far_writer, silenced))
        self._tasks.create_task(_forward(far_reader, writer, silenced))


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silenced: asyncio.Event) -> None:
    try:
        while data := await reader.read(65_536):
            if not silenced.is_set():
                writer.write(data)
                await writer.drain()
    except OSError:
        return
    finally:
        writer.close()


@asynccontextmanager
async def silent_proxy(port: int) -> AsyncIterator[SilentProxy]:
    """Forward to ``port`` for the length of the block."""
    async with asyncio.TaskGroup() as tasks:
        proxy = SilentProxy(port, tasks)
        server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
        host, listening = server.sockets[0].getsockname()
        proxy.addr = f"{host}:{listening}"
        try:
            yield proxy
        finally:
            server.close()
            for task in tasks._tasks:  # no public way to end a group's tasks
                task.cancel()
