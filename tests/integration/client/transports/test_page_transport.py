"""The transport of docs/writing-a-transport.md does what every transport must do."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.ports.transport import Transport
from tests.integration.client.transports import test_transport_contract
from tests.kit.broker.under_test import BrokersUnderTest, shared_tests

PAGE = Path(__file__).parents[4] / "docs" / "writing-a-transport.md"
WITHOUT = {
    # The example has no replicas, and brokers trim as they like.
    "test_a_queue_keeps_about_its_maximum_length",
    "test_a_replica_serves_reads_and_accepts_no_messages",
    "test_a_promoted_replica_continues_where_its_master_ended",
    "test_the_status_shows_whether_enough_replicas_have_the_message",
}
globals().update(shared_tests(test_transport_contract, without=WITHOUT))


def page_transport() -> Transport:
    """Return what the code of the page defines."""
    code = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    defined: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), defined)
    transport: Transport = defined["JsonLinesTransport"]()
    return transport


class Log:
    """One queue; its first message is number ``first``."""

    def __init__(self) -> None:
        self.first = 0
        self.messages: list[dict[str, Any]] = []

    @property
    def end(self) -> int:
        return self.first + len(self.messages)


class JsonLinesBroker:
    """The broker of the page."""

    def __init__(self) -> None:
        self.logs: defaultdict[tuple[str, int], Log] = defaultdict(Log)
        self.changed = asyncio.Condition()
        self.responds = asyncio.Event()
        self.responds.set()
        self._port = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def addr(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        self.responds.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, backlog=300)
            self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            request = json.loads(await reader.readline() or "null")
            if request is not None:
                response = await self._respond(request)
                await self.responds.wait()
                writer.write(json.dumps(response).encode() + b"\n")
        except asyncio.CancelledError:
            pass  # asyncio would log it
        finally:
            self._serving.discard(task)
            writer.close()

    async def _respond(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.responds.wait()
        key = (request["topic"], request["queue"])
        log = self.logs[key]
        match request["method"]:
            case "append":
                offset = log.end
                log.messages += request["messages"]
                async with self.changed:
                    self.changed.notify_all()
                return {"offset": offset}
            case "read":
                return await self._read(key, request["offset"], request["most"], request["wait_seconds"])
            case "bounds":
                return {"first": log.first, "end": log.end}
            case method:
                assert method == "find"
                at = datetime.fromisoformat(request["born_at"])
                born = (datetime.fromisoformat(message["born_at"]) for message in log.messages)
                return {"offset": next((n for n, each in enumerate(born, log.first) if each >= at), log.end)}

    async def _read(self, key: tuple[str, int], offset: int, most: int, wait_seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(wait_seconds), self.changed:
                await self.changed.wait_for(lambda: self.logs[key].end != offset)
        except TimeoutError:
            pass
        log = self.logs[key]
        first = max(offset, log.first)
        return {"offset": first, "messages": log.messages[first - log.first :][:most], "end": log.end}


class PageBrokers:
    """Implements :class:`BrokersUnderTest`."""

    def __init__(self) -> None:
        self._brokers: dict[str, JsonLinesBroker] = {}
        self.transport = page_transport()

    def open(self, **settings: Any) -> Transport:
        assert not settings
        return self.transport

    async def add(self) -> str:
        broker = JsonLinesBroker()
        await broker.start()
        self._brokers[broker.addr] = broker
        return broker.addr

    async def take_down(self, addr: str) -> None:
        await self._brokers[addr].stop()

    async def hang(self, addr: str) -> None:
        self._brokers[addr].responds.clear()

    async def bring_up(self, addr: str) -> None:
        await self._brokers[addr].start()

    async def lose_messages(self, addr: str) -> None:
        self._brokers[addr].logs.clear()

    async def replicate(self, master: str, slave: str) -> None:
        raise NotImplementedError

    async def promote(self, addr: str) -> None:
        raise NotImplementedError

    async def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        log = self._brokers[addr].logs[queue.topic, queue.queue_id]
        del log.messages[: first - log.first]
        log.first = first

    async def close(self) -> None:
        await self.transport.close()
        for broker in self._brokers.values():
            await broker.stop()


@pytest.fixture
async def brokers() -> AsyncIterator[BrokersUnderTest]:
    found = PageBrokers()
    yield found
    await found.close()
