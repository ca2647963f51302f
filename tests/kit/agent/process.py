"""The installed agent as a process that can be stopped, continued and killed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from pointsman.config import to_toml
from pointsman_agent.config import AgentConfig
from tests.kit.agent.in_process import on_chosen_listener
from tests.kit.daemon_process import DaemonProcess
from tests.kit.waiting import eventually


class AgentProcess(DaemonProcess):
    """One process; its log has a line for each heartbeat."""

    command = "pointsman-agent"

    def __init__(self, folder: Path, config: AgentConfig) -> None:
        self._file = folder / "agent.toml"
        self._config = on_chosen_listener(replace(config, log=replace(config.log, level="DEBUG")))
        super().__init__(folder, "--config", str(self._file))

    async def start(self) -> None:
        """Start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(to_toml(self._config), encoding="utf-8")
        await super().start()

    async def start_again(self) -> None:
        """Start it with the file as it is, which it may have changed itself."""
        await super().start()

    @property
    def file(self) -> Path:
        """Its configuration."""
        return self._file

    def use_listener(self, listener: str) -> None:
        """Serve by this one from the next start on."""
        self._config = replace(self._config, rpc=replace(self._config.rpc, listener=listener))

    def reconfigure(self, config: AgentConfig) -> None:
        """Write another configuration and have it read (SIGHUP)."""
        self._file.write_text(to_toml(on_chosen_listener(config)), encoding="utf-8")
        self.send_signal(signal.SIGHUP)

    async def beats(self, count: int, *, patience: float) -> None:
        """Wait until ``count`` heartbeats were answered."""
        await eventually(lambda: len(self.said("heartbeat response received")) >= count, seconds=patience)

    def check_end(self) -> None:
        """Fail if it exited with an error, such as a port in use."""
        code = self._process.returncode if self._process is not None else None
        assert code is None or code <= 0, f"the agent ended with {code}:\n{self._log.read_text(encoding='utf-8')}"


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
