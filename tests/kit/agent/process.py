"""The installed agent as a process that can be stopped, continued and killed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from pointsman.config import to_toml
from pointsman_agent.config import AgentConfig
from tests.kit.waiting import eventually

COMMAND = Path(sys.executable).with_name("pointsman-agent")


class AgentProcess:
    """One process; its log has a line for each heartbeat."""

    def __init__(self, folder: Path, config: AgentConfig) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._config = replace(config, log=replace(config.log, level="DEBUG"))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "agent.toml"
        file.write_text(to_toml(self._config), encoding="utf-8")
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                COMMAND, "--config", str(file), stderr=output, cwd=self._folder
            )

    def said(self, message: str) -> list[dict[str, object]]:
        """The lines of its log with that message."""
        text = self._log.read_text(encoding="utf-8")
        lines = (json.loads(line) for line in text.splitlines() if line.endswith("}"))
        return [line for line in lines if line["message"] == message]

    async def beats(self, count: int, *, patience: float) -> None:
        """Wait until ``count`` heartbeats were answered."""
        await eventually(lambda: len(self.said("heartbeat response received")) >= count, seconds=patience)

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """SIGTERM, and wait until it has handed over or unregistered."""
        self._signal(signal.SIGTERM)
        assert self._process is not None
        await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, whether it is stopped or not."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def check_end(self) -> None:
        """Fail if it exited with an error, such as a port in use."""
        code = self._process.returncode if self._process is not None else None
        assert code is None or code <= 0, f"the agent ended with {code}:\n{self._log.read_text(encoding='utf-8')}"

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@asynccontextmanager
async def agent_process(folder: Path, config: AgentConfig) -> AsyncIterator[AgentProcess]:
    """Run one for the length of the block; killed at its end."""
    agent = AgentProcess(folder, config)
    try:
        await agent.start()
        yield agent
    finally:
        agent.check_end()
        await agent.kill()
