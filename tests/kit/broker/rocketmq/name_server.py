"""A RocketMQ name server inside the test's event loop, which responds, or misbehaves, as the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from pointsman.rocketmq.frames import ANSWER_FLAG, Command, FrameReader, encode, read_header

Respond = Callable[[Command], bytes | None]
"""From a request to the bytes of the response; empty: none, None: close the connection."""


class RocketmqNameServer:
    """``routes`` by topic, as bodies of 105; ``respond`` replaces the response to every request."""

    def __init__(self) -> None:
        self.addr = ""
        self.routes: dict[str, Mapping[str, object]] = {}
        self.respond: Respond = self.usual
        self.requests: list[tuple[int, Mapping[str, str]]] = []
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def is_used(self) -> bool:
        """Whether a connection is open."""
        return bool(self._open)

    def usual(self, request: Command) -> bytes:
        """Respond to 105 as RocketMQ 5.3.3."""
        route = self.routes.get(request.ext.get("topic", ""))
        if request.code != 105:
            return reply(request, code=3, remark=f" request type {request.code} not supported")
        if route is None:
            return reply(request, code=17, remark="No topic route info in name server for the topic")
        return reply(request, json.dumps(route).encode())

    def close_connections(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        frames = FrameReader()
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    request = read_header(frame.form, frame.header)
                    self.requests.append((request.code, request.ext))
                    response = self.respond(request)
                    if response is None:
                        writer.close()
                        break
                    writer.write(response)
        writer.close()
        self._open.discard(writer)
        self._serving.discard(task)

    async def stop(self) -> None:
        self.close_connections()
        if self._serving:
            await asyncio.wait(self._serving)


def reply(request: Command, body: bytes = b"", *, code: int = 0, remark: str | None = None) -> bytes:
    """Return the frame of a response."""
    return encode(Command(code=code, opaque=request.opaque, flag=ANSWER_FLAG, language="JAVA", remark=remark), body)


def route_body(*names: str, perm: int = 6) -> dict[str, object]:
    """Return the body of 105 for a topic with four queues on each of these brokers."""
    return {
        "brokerDatas": [
            {"brokerName": name, "cluster": "c1", "brokerAddrs": {"0": f"{name}.test:10911"}} for name in names
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": name, "perm": perm, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
            for name in names
        ],
    }


@asynccontextmanager
async def rocketmq_name_server() -> AsyncIterator[RocketmqNameServer]:
    """Serve for the length of the block; ``addr`` is ``rocketmq://host:port``."""
    running = RocketmqNameServer()
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    running.addr = f"rocketmq://{host}:{port}"
    try:
        yield running
    finally:
        server.close()
        await running.stop()
