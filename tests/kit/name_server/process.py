"""The installed name server as a process that can be stopped, continued, killed, and queried."""

from __future__ import annotations

import asyncio
import http.client
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from pointsman.names import split_addr
from tests.kit.chosen_listener import chosen_listener
from tests.kit.daemon_process import PATIENCE_SECONDS, DaemonProcess
from tests.kit.history.rows import rows_in

POLL_SECONDS = 0.05


class RealNameServer(DaemonProcess):
    """One process with its files in ``folder``; ``settings`` maps ``section.key`` to a value. It does not warm up."""

    command = "pointsman-namesrv"

    def __init__(
        self, folder: Path, *arguments: str, node: str = "node-1", settings: Mapping[str, object] | None = None
    ) -> None:
        self.addr = ""
        self.remoting_addr = ""
        """Address of RocketMQ's protocol, if ``remoting.listen`` is set."""
        self.monitoring_addr = ""
        """The address of metrics and health."""
        own = {
            "server.listen": "127.0.0.1:0",
            "server.node": node,
            "server.listener": chosen_listener(),
            "server.warm_up_seconds": 0,
            "monitoring.listen": "127.0.0.1:0",
            "history.directory": folder / "history",
        }
        named = own | dict(settings or {})
        environment = {f"NAMESRV_{name.replace('.', '__').upper()}": str(value) for name, value in named.items()}
        super().__init__(folder, *arguments, environment=environment)

    def use_listener(self, listener: str) -> None:
        """Serve by this one from the next start on."""
        self._environment["NAMESRV_SERVER__LISTENER"] = listener

    async def start(self) -> None:
        """Start it and wait until it serves."""
        lives = len(self.said("serving"))
        await super().start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(serving := self.said("serving")) == lives:
                assert self.is_alive, self._log.read_text()
                await asyncio.sleep(POLL_SECONDS)
        self.addr = serving[-1]["addr"]
        self.remoting_addr = serving[-1]["remoting"]
        self.monitoring_addr = f"127.0.0.1:{serving[-1]['metrics']}"

    async def fail_to_start(self) -> int:
        """Start it where it cannot serve; return the exit code."""
        await super().start()
        try:
            return await self.ended()
        finally:
            await self.kill()

    def rss_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Rows of its history so far, in order; a row may reach the disk a second later."""
        return [row for row in rows_in(self.folder / "history") if not kinds or row["event"] in kinds]

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of that name with these labels; 0 without one."""
        text = await asyncio.to_thread(self.metrics_text)
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(
            sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
        )

    def metrics_text(self) -> str:
        """The content of ``/metrics``; blocks."""
        connection = http.client.HTTPConnection(*split_addr(self.monitoring_addr), timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@asynccontextmanager
async def real_name_server(
    folder: Path, *arguments: str, node: str = "node-1", settings: Mapping[str, object] | None = None
) -> AsyncIterator[RealNameServer]:
    """Run one for the length of the block; killed at its end."""
    server = RealNameServer(folder, *arguments, node=node, settings=settings)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
