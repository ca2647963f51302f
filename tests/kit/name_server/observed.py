"""RocketMQ name servers as an observer sees them: scripted ones, and observers of them with short waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pointsman.clock import SystemClock
from pointsman.rocketmq.frames import Command
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe import __main__ as command
from pointsman_namesrv.observe.observed_servers import ObservedServers
from pointsman_namesrv.observe.observer_config import ObservedConfig, ObserverConfig, RecordedConfig
from tests.kit.broker.rocketmq.name_server import RocketmqNameServer, reply, rocketmq_name_server, route_body


class ScriptedFleet:
    """A name server that lists the brokers of its routes. A test changes ``routes`` and ``addrs``."""

    def __init__(self, server: RocketmqNameServer) -> None:
        self.addr = server.addr.removeprefix("rocketmq://")
        self.server = server
        self.routes: dict[str, dict[str, Any]] = {}
        self.addrs: dict[str, str] = {}
        """By broker name: an address other than its own."""
        self.asked: list[tuple[float, int, Mapping[str, str]]] = []
        """Time, code and fields of each request."""
        server.respond = self.respond

    def holds(self, topic: str, *names: str, perm: int = 6) -> None:
        """Give a topic four queues on each of these brokers; none: remove it."""
        if names:
            self.routes[topic] = route_body(*names, perm=perm)
        else:
            del self.routes[topic]

    def topics_asked(self) -> list[str]:
        """Return the topics of all requests for a route."""
        return [ext["topic"] for _, code, ext in self.asked if code == 105]

    def respond(self, request: Command) -> bytes:
        """Respond as RocketMQ 5.3.3."""
        self.asked.append((time.monotonic(), request.code, request.ext))
        if request.code == 106:
            table = {
                data["brokerName"]: {**data, "brokerAddrs": self._addrs(data)}
                for route in self.routes.values()
                for data in route["brokerDatas"]
            }
            return reply(request, json.dumps({"brokerAddrTable": table, "clusterAddrTable": {}}).encode())
        if request.code == 206:
            return reply(request, json.dumps({"topicList": list(self.routes)}).encode())
        route = self.routes.get(request.ext.get("topic", ""))
        if route is None:
            return reply(request, code=17, remark="No topic route info in name server for the topic")
        brokers = [{**data, "brokerAddrs": self._addrs(data)} for data in route["brokerDatas"]]
        return reply(request, json.dumps({**route, "brokerDatas": brokers}).encode())

    def _addrs(self, data: Mapping[str, Any]) -> Mapping[str, str]:
        own = self.addrs.get(data["brokerName"])
        return data["brokerAddrs"] if own is None else {"0": own}


@asynccontextmanager
async def scripted_fleet(*topics: str) -> AsyncIterator[ScriptedFleet]:
    """A name server with these topics on broker ``a``."""
    async with rocketmq_name_server() as server:
        fleet = ScriptedFleet(server)
        for topic in topics:
            fleet.holds(topic, "a")
        yield fleet


def polled(*addrs: str, **settings: Any) -> ObservedConfig:
    """Return settings that poll often, and collect no topics by default."""
    return ObservedConfig(
        addrs, **{"poll_seconds": 0.02, "topics_seconds": 0.0, "topic_requests_per_second": 1_000.0} | settings
    )


def observed_servers(folder: Path, settings: ObservedConfig) -> ObservedServers:
    """Return what observes these; the history is in ``folder``."""
    history = HistoryConfig(directory=str(folder))
    return ObservedServers(settings, history, version="0", clock=SystemClock(), metrics=Metrics())


async def observe(servers: ObservedServers, folder: Path, stop: asyncio.Event, **sections: Any) -> int:
    """Run the command's coroutine with these sections of its configuration; return the exit code."""
    config = ObserverConfig(history=RecordedConfig(directory=str(folder)), **sections)
    return await command.observe(servers, config, stop, metrics=Metrics())


@asynccontextmanager
async def observing(folder: Path, settings: ObservedConfig) -> AsyncIterator[ObservedServers]:
    """Observe for the length of the block."""
    servers, stop = observed_servers(folder, settings), asyncio.Event()
    running = asyncio.create_task(servers.run(stop))
    try:
        yield servers
    finally:
        stop.set()
        await running


def sample(servers: ObservedServers, name: str, addr: str) -> float | None:
    """Return a metric of a name server; None: there is none."""
    return servers.observed.registry.get_sample_value(f"pointsman_observe_{name}", {"name_server": addr})
