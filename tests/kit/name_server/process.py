"""The installed name server as a process that can be stopped, continued, killed, and queried."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from pointsman.names import split_addr
from tests.kit.history.rows import rows_in
from tests.kit.waiting import eventually

COMMAND = Path(sys.executable).with_name("pointsman-namesrv")
START_SECONDS = 90.0
POLL_SECONDS = 0.05


class RealNameServer:
    """One process with its files in ``folder``; ``settings`` maps ``section.key`` to a value. It does not warm up."""

    def __init__(
        self, folder: Path, *arguments: str, node: str = "node-1", settings: Mapping[str, object] | None = None
    ) -> None:
        self.addr = ""
        self.remoting_addr = ""
        """Address of RocketMQ's protocol, if ``remoting.listen`` is set."""
        self.folder = folder
        self._monitoring = ""
        self._log = folder / "log"
        own = {
            "server.listen": "127.0.0.1:0",
            "server.node": node,
            "server.warm_up_seconds": 0,
            "monitoring.listen": "127.0.0.1:0",
            "history.directory": folder / "history",
        }
        self._environment = os.environ | {
            f"NAMESRV_{name.replace('.', '__').upper()}": str(value)
            for name, value in (own | dict(settings or {})).items()
        }
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it serves."""
        lives = len(self._serving())
        await self._spawn()
        async with asyncio.timeout(START_SECONDS):
            while len(serving := self._serving()) == lives:
                assert self.is_alive, self._log.read_text()
                await asyncio.sleep(POLL_SECONDS)
        self.addr = serving[-1]["addr"]
        self.remoting_addr = serving[-1]["remoting"]
        self._monitoring = f"127.0.0.1:{serving[-1]['metrics']}"

    async def fail_to_start(self) -> int:
        """Start it where it cannot serve; return the exit code."""
        await self._spawn()
        try:
            return await self.ended()
        finally:
            await self.kill()

    async def _spawn(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                COMMAND, *self._arguments, env=self._environment, cwd=self.folder, stderr=output
            )

    def _serving(self) -> list[dict[str, Any]]:
        return [line for line in self.said() if line["message"] == "serving"]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def monitoring_addr(self) -> str:
        """The address of metrics and health."""
        return self._monitoring

    def pause(self) -> None:
        """SIGSTOP."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """SIGTERM; return the exit code. :meth:`start` starts it again."""
        self.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its exit code."""
        assert self._process is not None
        async with asyncio.timeout(START_SECONDS):
            return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, whether it is stopped or not."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def said(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    async def logged(self, message: str) -> dict[str, Any]:
        """Wait for a line of its log with that message, and return it."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.said() if line["message"] == message), None)

        await eventually(found, seconds=START_SECONDS, what=f"the log line {message!r}")
        return found() or {}

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
        connection = http.client.HTTPConnection(*split_addr(self._monitoring), timeout=60)
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
