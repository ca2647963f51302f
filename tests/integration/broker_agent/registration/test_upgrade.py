"""Agents upgraded one after another beside running brokers: clients see no change."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import grpc

from pointsman.v1.admin_service_pb2 import ListBrokersRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman_agent.config import AgentConfig, HeartbeatSection
from pointsman_agent.core.probe_verdict import ProbeResult
from pointsman_namesrv.config import LivenessConfig
from tests.kit.agent.in_process import RunningAgent, ScriptedProbe, agent_config, running_agent, with_probe
from tests.kit.history.rows import rows_in
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.route_diary import route_diary
from tests.kit.waiting import eventually

ANSWERS = ProbeResult(True, "answers", incarnation="run-1")
GRACE_SECONDS = 0.2


async def test_agents_upgraded_one_after_the_other_change_no_route(tmp_path: Path, full: bool) -> None:
    count = 50 if full else 20
    # A broken stream counts as a crash almost immediately here, so an agent that only disconnected is noticed.
    liveness = LivenessConfig(stream_grace_seconds=GRACE_SECONDS)
    async with running_name_server(history=tmp_path, liveness=liveness) as name_server, AsyncExitStack() as running:
        configs = [separate(agent_config([name_server.addr]), number) for number in range(count)]
        olds = [
            await running.enter_async_context(running_agent(config, probe=ScriptedProbe(ANSWERS))) for config in configs
        ]
        for old in olds:
            await beats(old, name_server.addr)
        before = await generations(name_server.addr)
        async with route_diary(name_server.addr, "orders") as diary:
            assert [len(entry) for entry in diary.groups] == [count]
            for old, config in zip(olds, configs, strict=True):
                await old.stopped()
                if old is olds[0]:
                    await asyncio.sleep(3 * GRACE_SECONDS)
                new = await running.enter_async_context(running_agent(config, probe=ScriptedProbe(ANSWERS)))
                await beats(new, name_server.addr)
            # Its second heartbeat comes five seconds later: the grace is over and all events are recorded.
            await beats(new, name_server.addr, 2)

            assert [len(entry) for entry in diary.groups] == [count]
        after = await generations(name_server.addr)
        events = {row["event"] for row in rows_in(tmp_path) if row.get("broker_name")}

    assert before.keys() == after.keys()
    assert all(after[name] != before[name] for name in before), "an agent was never replaced"
    assert "REGISTERED" in events
    # A heartbeat may be late on a busy machine, which changes no route.
    assert events <= {"REGISTERED", "TOPICS", "HEARTBEATS", "LATE_HEARTBEAT"}


def separate(config: AgentConfig, number: int) -> AgentConfig:
    """A separate broker, which only a broken stream can make suspect while the test runs, not a busy machine."""
    broker = replace(config.broker, name=f"broker-{number}", addr=f"10.0.0.{number}:10911")
    heartbeat = HeartbeatSection(interval_seconds=5.0, expiry_seconds=60.0)
    return with_probe(replace(config, broker=broker, heartbeat=heartbeat), kind="tcp", interval_seconds=60.0)


async def beats(agent: RunningAgent, name_server: str, count: int = 1) -> None:
    """Wait for its answered beats; with the first its stream is open."""
    await eventually(lambda: agent.beats(name_server) >= count)


async def generations(name_server: str) -> dict[str, int]:
    async with grpc.aio.insecure_channel(name_server) as channel:
        answer = await AdminServiceStub(channel).ListBrokers(ListBrokersRequest(page_size=1_000))
    return {broker.identity.broker_name: broker.generation for broker in answer.brokers}
