"""A broker as users run one: a real redis-server with the installed agent beside it, each a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    GroupsSection,
    HeartbeatSection,
    MonitoringSection,
    NameServersSection,
    OffsetsSection,
    ProbeSection,
    RpcSection,
    TopicRow,
    TopicsSection,
)
from tests.kit.agent.process import AgentProcess, agent_process
from tests.kit.broker.redis.process import RedisProcess, redis_process


@dataclass(frozen=True)
class RedisBroker:
    """One member of a replica group."""

    redis: RedisProcess
    agent: AgentProcess

    @property
    def addr(self) -> str:
        return self.redis.addr


@dataclass(frozen=True)
class BrokerPlan:
    """A broker's identity and data."""

    name: str
    topics: Mapping[str, int] = field(default_factory=lambda: {"orders": 4})
    broker_id: int = 0
    replica_id: int = 0
    """Under Sentinel: its id while it is a replica."""
    zone: str = ""
    agent_port: int = 0
    """0: any free one."""
    warm_up_seconds: float = 0.0
    """Of its member lists: 0, since no agent ran before it."""
    probe_seconds: float = 0.2
    topic_source: str = "toml"
    """``toml`` with ``topics``, or ``redis`` without."""
    is_writable: bool = False
    """Whether operators may change the topics of the file."""


@asynccontextmanager
async def redis_broker(
    folder: Path, plan: BrokerPlan, name_servers: Sequence[str], *, replica_of: RedisBroker | None = None
) -> AsyncIterator[RedisBroker]:
    """Run one for the length of the block; both processes are killed at its end."""
    async with redis_process(folder / "redis") as redis:
        if replica_of is not None:
            await redis.replica_of(replica_of.redis)
        async with agent_process(folder / "agent", agent_config(plan, redis.addr, name_servers)) as agent:
            yield RedisBroker(redis, agent)


def agent_config(plan: BrokerPlan, addr: str, name_servers: Sequence[str]) -> AgentConfig:
    """An agent with a heartbeat every second."""
    topics = tuple(
        TopicRow(name=topic, read_queues=queues, write_queues=queues) for topic, queues in plan.topics.items()
    )
    return AgentConfig(
        broker=BrokerSection(
            cluster="c1", name=plan.name, addr=addr, id=plan.broker_id, replica_id=plan.replica_id, zone=plan.zone
        ),
        name_servers=NameServersSection(addrs=tuple(name_servers)),
        heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=10.0),
        probe=ProbeSection(kind="redis", interval_seconds=plan.probe_seconds),
        topics=TopicsSection(source="redis", check_interval_seconds=0.5)
        if plan.topic_source == "redis"
        else TopicsSection(source="toml", topic=topics, writable=plan.is_writable),
        rpc=RpcSection(listen=f"127.0.0.1:{plan.agent_port}", grace_seconds=1.0),
        groups=GroupsSection(warm_up_seconds=plan.warm_up_seconds),
        offsets=OffsetsSection(flush_interval_seconds=0.1),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )
