"""An idle agent wakes up only for what is configured."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pointsman_agent.config import OffsetsSection, RpcSection
from pointsman_agent.core.probe_verdict import ProbeResult
from tests.kit.agent.beat_clock import BeatClock
from tests.kit.agent.in_process import ScriptedProbe, agent_config, running_agent
from tests.kit.name_server.scripted_registration import scripted_registration_server

BY_DEFAULT = {5.0: 24, 10.0: 6, 30.0: 4}
"""Wake-ups per minute, by what causes them: probe and topics, silent consumers, heartbeats and queue measurements."""


class CountingClock(BeatClock):
    """Counts the sleeps that ran to their end: each is a wake-up."""

    def __init__(self) -> None:
        super().__init__()
        self.wakings: Counter[float] = Counter()

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if seconds > 0:
            self.wakings[seconds] += 1


async def test_an_idle_agent_wakes_up_only_for_what_is_configured(tmp_path: Path) -> None:
    clock = CountingClock()

    async def pass_a_minute() -> None:
        for _ in range(60):
            await clock.advance_and_answer(1.0)
            await asyncio.sleep(0.005)  # for threads

    async with scripted_registration_server() as server:
        config = replace(
            agent_config([server.addr]),
            rpc=RpcSection(listen="127.0.0.1:0"),
            offsets=OffsetsSection(path=str(tmp_path / "offsets.db")),
        )
        async with running_agent(config, clock=clock, probe=ScriptedProbe(ProbeResult(True, "answers"))) as agent:
            await agent.counts_beats(server.addr, 1)
            await pass_a_minute()
            await pass_a_minute()
            clock.wakings.clear()
            await pass_a_minute()

    assert clock.wakings == BY_DEFAULT
