"""An agent of which one part fails ends, and keeps what its consumers had committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pointsman.wire.clock import SystemClock
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
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.queue_stats.collector import QueueStatsCollector
from tests.fakes.name_server import running_name_server
from tests.fakes.running_agent import until


async def test_offsets_reach_their_store_when_a_part_of_the_agent_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fail = asyncio.Event()

    async def fail(_: QueueStatsCollector) -> None:
        await may_fail.wait()
        raise ValueError("a part fails")

    monkeypatch.setattr(QueueStatsCollector, "run", fail)
    path = tmp_path / "offsets.db"
    async with running_name_server() as server:
        config = AgentConfig(
            broker=BrokerSection(cluster="c1", name="a", addr="10.0.0.1:1"),
            name_servers=NameServersSection(addrs=(server.addr,)),
            topics=TopicsSection(topic=(TopicRow(name="orders", read_queues=1, write_queues=1),)),
            rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=0.1),
            offsets=OffsetsSection(store="file", path=str(path), flush_interval_seconds=300.0),
            monitoring=MonitoringSection(listen="127.0.0.1:0"),
        )
        agent = Agent(config, probe=None, clock=SystemClock(), version="test")
        running = asyncio.create_task(agent.run(asyncio.Event()))
        await until(lambda: agent._services is not None and agent._services.flusher.is_loaded)
        assert agent._services is not None
        agent._services.offsets.commit("billing", {QueueKey("orders", 0): 7}, reset=False)
        may_fail.set()
        with pytest.raises(ExceptionGroup) as failed:
            await running
    assert failed.group_contains(ValueError, match="a part fails", depth=1)
    store = FileStore(path, clock=SystemClock())
    assert (await store.load())[OffsetKey("billing", "orders", 0)] == 7
    await store.close()
