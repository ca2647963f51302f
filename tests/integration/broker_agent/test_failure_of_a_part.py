"""An agent of which one part fails ends, and keeps what its consumers had committed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from pointsman.clock import SystemClock
from pointsman_agent.app import Agent
from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    MonitoringSection,
    NameServersSection,
    OffsetsSection,
    RpcSection,
    TopicRow,
    TopicsSection,
)
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.queue_stats.collector import QueueStatsCollector
from pointsman_agent.rpc.agent_server import AgentServer
from tests.kit.agent.in_process import on_chosen_listener, running_agent
from tests.kit.broker.redis.process import free_port
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually


def config(name_server: str, offsets: Path) -> AgentConfig:
    found = AgentConfig(
        broker=BrokerSection(cluster="c1", name="a", addr="10.0.0.1:1"),
        name_servers=NameServersSection(addrs=(name_server,)),
        topics=TopicsSection(topic=(TopicRow(name="orders", read_queues=1, write_queues=1),)),
        rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=0.1),
        offsets=OffsetsSection(store="file", path=str(offsets), flush_interval_seconds=300.0),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )
    return on_chosen_listener(found)


@pytest.mark.parametrize("part", ["collector", "stop of the server"])
async def test_offsets_reach_their_store_when_a_part_of_the_agent_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    may_fail, stop, stopped = asyncio.Event(), asyncio.Event(), AgentServer.stop

    async def fail(_: QueueStatsCollector) -> None:
        await may_fail.wait()
        raise ValueError("a part fails")

    async def fail_to_stop(server: AgentServer, grace: float) -> None:
        await stopped(server, grace)
        raise ValueError("a part fails")

    if part == "collector":
        monkeypatch.setattr(QueueStatsCollector, "run", fail)
    else:
        monkeypatch.setattr(AgentServer, "stop", fail_to_stop)
    path = tmp_path / "offsets.db"
    async with running_name_server() as server:
        agent = Agent(config(server.addr, path), probe=None, clock=SystemClock(), version="test")
        running = asyncio.create_task(agent.run(stop))
        await eventually(lambda: agent.is_serving)
        services = agent.parts.services
        assert services is not None
        await eventually(lambda: services.flusher.is_loaded)
        services.offsets.commit("billing", {QueueKey("orders", 0): 7}, reset=False)
        (may_fail if part == "collector" else stop).set()
        with pytest.raises(ExceptionGroup) as failed:
            await running
    assert failed.group_contains(ValueError, match="a part fails", depth=1)
    store = FileStore(path, clock=SystemClock())
    assert (await store.load())[OffsetKey("billing", "orders", 0)] == 7
    await store.close()


async def test_an_agent_that_is_cancelled_while_it_starts_leaves_nothing_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After any number of turns of the event loop; the test's own check finds tasks, threads, sockets and files."""
    addr = f"127.0.0.1:{free_port()}"
    for turns in range(100):
        async with running_agent(config(addr, tmp_path / "offsets.db")) as running:
            for _ in range(turns):
                await asyncio.sleep(0)
        if running.registration_state(addr) is RegistrationState.UNREACHABLE:
            break
    assert running.registration_state(addr) is RegistrationState.UNREACHABLE
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []
