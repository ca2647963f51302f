"""An installed daemon as a process that can be stopped, continued and killed, with its log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kit.waiting import eventually, pause

INSTALLED = Path(sys.executable).parent
PATIENCE_SECONDS = 90.0


class DaemonProcess:
    """One process, which may be started again; ``folder`` is its working directory and has its log."""

    command = ""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._log = folder / "log"
        self._arguments = arguments
        self._programs, self._inherited = INSTALLED, dict(os.environ)
        self._environment = dict(environment or {})
        self._process: asyncio.subprocess.Process | None = None

    def install(self, programs: Path, inherited: Mapping[str, str]) -> None:
        """Its next start is of another version: the folder of its programs, and the environment that they inherit."""
        self._programs, self._inherited = programs, dict(inherited)

    async def start(self) -> None:
        """Start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                self._programs / self.command,
                *self._arguments,
                env=self._inherited | self._environment,
                cwd=self.folder,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP."""
        assert self._process is not None
        pause(self._process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """SIGTERM, and wait until it has stopped; return the exit code. :meth:`start` starts it again."""
        self.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its exit code."""
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, whether it is stopped or not."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def said(self, message: str = "") -> list[dict[str, Any]]:
        """The lines of its log, or those with that message."""
        lines = self._log.read_text(encoding="utf-8").splitlines() if self._log.exists() else []
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in said if message in {"", line["message"]}]

    async def logged(self, message: str) -> dict[str, Any]:
        """Wait for a line of its log with that message, and return it."""
        await eventually(lambda: self.said(message), seconds=PATIENCE_SECONDS, what=f"the log line {message!r}")
        return self.said(message)[0]
