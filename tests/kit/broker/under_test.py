"""Brokers behind a transport, controlled by a test: one interface for real Redis servers and for those in memory."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pointsman.redis_queues import entry_id, stream_key
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.memory import MemoryTransport
from pointsman_client.ports.transport import Reader, Transport
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import RedisProcess

BORN_AT = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE = MessageQueue("orders", "c1", "a", 3)
READER = Reader("billing")


def outgoing(body: str, *, born_at: datetime = BORN_AT, topic: str = "orders", **more: Any) -> OutgoingMessage:
    """A message on its way; its id is made of its body."""
    return OutgoingMessage(Message(topic, body.encode()), f"id-{body}", born_at, **more)


def shared_tests(module: ModuleType, *, without: Collection[str]) -> dict[str, Any]:
    """Return the tests of a module by name, to be run by another one with its own fixtures."""
    found = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    assert found.keys() >= set(without)
    return {name: test for name, test in found.items() if name not in without}


class BrokersUnderTest(Protocol):
    """Brokers of one kind, with one transport to them."""

    def open(self, **settings: Any) -> Transport:
        """The transport; one per test."""
        ...

    async def add(self) -> str:
        """Start another broker and return its address."""
        ...

    async def take_down(self, addr: str) -> None:
        """Kill its process; its data stays on disk."""
        ...

    async def hang(self, addr: str) -> None:
        """Stop its responses."""
        ...

    async def bring_up(self, addr: str) -> None:
        """Start it again, or continue it."""
        ...

    async def lose_messages(self, addr: str) -> None:
        """Drop all its data."""
        ...

    async def replicate(self, master: str, slave: str) -> None:
        """Make one a replica of the other; returns when it is in sync."""
        ...

    async def promote(self, addr: str) -> None:
        """Make a replica a master."""
        ...

    async def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        """Remove the messages before ``first``."""
        ...

    async def close(self) -> None:
        """End all."""
        ...


class MemoryBrokers:
    """Implements :class:`BrokersUnderTest`."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.transport = MemoryTransport()

    def open(self, **settings: Any) -> Transport:
        self.transport = MemoryTransport(**settings)
        return self.transport

    async def add(self) -> str:
        return f"10.0.0.{next(self._numbers)}:6379"

    async def take_down(self, addr: str) -> None:
        self.transport.take_down(addr)

    async def hang(self, addr: str) -> None:
        self.transport.hang(addr)

    async def bring_up(self, addr: str) -> None:
        self.transport.bring_up(addr)

    async def lose_messages(self, addr: str) -> None:
        self.transport.lose_messages(addr)

    async def replicate(self, master: str, slave: str) -> None:
        self.transport.replicate(master, slave)

    async def promote(self, addr: str) -> None:
        self.transport.promote(addr)

    async def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        self.transport.trim(addr, queue, first)

    async def close(self) -> None:
        await self.transport.close()


class RedisBrokers:
    """Implements :class:`BrokersUnderTest`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, RedisProcess] = {}
        self.transport = RedisStreamsTransport()

    def open(self, **settings: Any) -> Transport:
        self.transport = RedisStreamsTransport(**settings)
        return self.transport

    def server(self, addr: str) -> RedisProcess:
        return self._servers[addr]

    async def add(self, *options: str) -> str:
        # Nodes of ten entries: what is trimmed "about" is then seen with few messages.
        small = ("--stream-node-max-entries", "10", "--repl-ping-replica-period", "1")
        server = RedisProcess(self._folder / str(len(self._servers)), options=(*small, *options))
        await server.start()
        self._servers[server.addr] = server
        return server.addr

    async def take_down(self, addr: str) -> None:
        self._servers[addr].kill()

    async def hang(self, addr: str) -> None:
        self._servers[addr].pause()

    async def bring_up(self, addr: str) -> None:
        self._servers[addr].resume()
        if not self._servers[addr].is_running:
            await self._servers[addr].start()

    async def lose_messages(self, addr: str) -> None:
        await self._servers[addr].command("FLUSHALL")

    async def replicate(self, master: str, slave: str) -> None:
        await self._servers[slave].replica_of(self._servers[master])
        await self._servers[slave].until_info("replication", "master_link_status:up")

    async def promote(self, addr: str) -> None:
        await self._servers[addr].replica_of(None)

    async def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        key = stream_key(queue.topic, queue.queue_id)
        await self._servers[addr].command("XTRIM", key, "MINID", entry_id(first))

    async def close(self) -> None:
        await self.transport.close()
        for server in self._servers.values():
            server.kill()
