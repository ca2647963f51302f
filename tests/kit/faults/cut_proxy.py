"""A TCP proxy whose traffic can be cut, both ways and for a time, as by a failed switch: no FIN, no RST."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pointsman.names import split_addr


class CutProxy:
    """Forwards to one address. What a cut connection carried is lost; later connections work after the repair."""

    def __init__(self, target: str, tasks: asyncio.TaskGroup) -> None:
        self.addr = ""
        self.connections = 0
        """How many it has accepted."""
        self._target = split_addr(target)
        self._tasks = tasks
        self._is_cut = asyncio.Event()
        self._is_deaf = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._is_ended = False

    @property
    def is_used(self) -> bool:
        """Whether a connection is open."""
        return bool(self._open)

    def cut(self) -> None:
        """From now on nothing passes, not even the end of a connection."""
        self._is_cut.set()

    def deafen(self) -> None:
        """From now on nothing passes from the target to its clients."""
        self._is_deaf.set()

    def repair(self) -> None:
        """New connections pass again; those that were open stay silent."""
        self._is_cut = asyncio.Event()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        if self._is_ended:
            writer.transport.abort()
        elif not self._is_cut.is_set():  # else the connection is open and nothing answers
            self._serving.add(self._tasks.create_task(self._serve(reader, writer, self._is_cut)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_cut: asyncio.Event) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._open.add(far_writer)
        await asyncio.gather(
            self._forward(reader, far_writer, is_cut), self._forward(far_reader, writer, is_cut, self._is_deaf)
        )

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_cut: asyncio.Event, *more: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if not any(stopped.is_set() for stopped in (is_cut, *more)):
                    writer.write(data)
                    await writer.drain()
        if not is_cut.is_set():
            self._open.discard(writer)
            writer.close()

    def end(self) -> None:
        """Drop every connection, for good."""
        self._is_ended = True
        for writer in self._open:
            writer.transport.abort()
        for task in self._serving:
            task.cancel()


@asynccontextmanager
async def cut_proxy(target: str) -> AsyncIterator[CutProxy]:
    """Forward to ``target`` (host:port) for the length of the block."""
    async with asyncio.TaskGroup() as tasks:
        proxy = CutProxy(target, tasks)
        server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        proxy.addr = f"{host}:{port}"
        try:
            yield proxy
        finally:
            server.close()
            proxy.end()
