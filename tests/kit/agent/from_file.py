"""An agent inside the test's event loop that was built from its file, as its command does: it may change the file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.config import to_toml
from pointsman_agent.app import Agent
from pointsman_agent.config import AgentConfig, load
from pointsman_agent.start import build_agent
from tests.kit.agent.in_process import on_chosen_listener
from tests.kit.waiting import eventually


@dataclass(frozen=True)
class AgentFromFile:
    """A running agent."""

    agent: Agent
    file: Path

    @property
    def addr(self) -> str:
        """Where it serves."""
        return self.agent.parts.agent_addr


@asynccontextmanager
async def agent_from_file(
    folder: Path, config: AgentConfig, *, text: str = "", name: str = "agent.toml"
) -> AsyncIterator[AgentFromFile]:
    """Run one for the length of the block. ``text``: its file; by default the configuration as TOML."""
    file = folder / name
    file.write_text(text or to_toml(on_chosen_listener(config)), encoding="utf-8")
    agent = build_agent(load(file, {}), file=file, flags={})
    task = asyncio.create_task(agent.run(asyncio.Event()))
    try:
        await eventually(lambda: agent.is_serving or task.done())
        services = agent.parts.services
        await eventually(lambda: services is None or services._is_loaded())
        yield AgentFromFile(agent, file)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
