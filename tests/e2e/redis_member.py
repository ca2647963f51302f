"""One member of a replica group: the agent's probe, own state and registration loops beside a real redis-server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pointsman.clock import SystemClock
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.agent_metrics import AgentMetrics
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import ProbeResult, Verdict, VerdictKeeper
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.observable import Observable
from pointsman_agent.probe.prober import Prober
from pointsman_agent.probe.redis_probe import RedisProbe
from pointsman_agent.registration.loop import RegistrationLoop, Timeouts
from pointsman_agent.registration.registration_messages import BrokerProfile
from tests.kit.broker.redis.process import RedisProcess

TOPICS = TopicSet.from_content([TopicConfig("orders", 4, 4, 6)], state_version=0)


@dataclass
class RedisMember:
    """Queries of a test."""

    own: Observable[OwnState]
    loops: list[RegistrationLoop]
    looks: int = 0
    """How often it has polled its server."""

    @property
    def registration_states(self) -> list[RegistrationState]:
        return [loop.report.state for loop in self.loops]


@asynccontextmanager
async def redis_member(
    redis: RedisProcess, name_servers: Sequence[str], *, replica_id: int, probe_seconds: float = 0.1
) -> AsyncIterator[RedisMember]:
    """Run it for the length of the block, with a heartbeat every second; cancelled at its end, not unregistered."""
    clock, metrics = SystemClock(), AgentMetrics(version="test")
    own = Observable(OwnState(0, TOPICS, replica_id=replica_id))

    def on_result(_: ProbeResult, verdict: Verdict) -> None:
        member.looks += 1
        own.set(replace(own.value, verdict=verdict))

    prober = Prober(
        RedisProbe(redis.addr, member=str(replica_id)),
        clock=clock,
        interval=probe_seconds,
        timeout=2.0,
        keeper=VerdictKeeper(rise=1, fall=2),
        on_result=on_result,
    )
    profile = BrokerProfile(cluster="c1", broker_name="a", addr=redis.addr, interval_seconds=1.0, expiry_seconds=4.0)
    loops = [
        RegistrationLoop(
            addr,
            profile=profile,
            own=own,
            opener=ChannelOpener(),
            clock=clock,
            metrics=metrics,
            timeouts=Timeouts(),
        )
        for addr in name_servers
    ]
    member = RedisMember(own, loops)
    probing = asyncio.create_task(prober.run())
    await prober.has_verdict.wait()
    tasks = [probing, *(asyncio.create_task(loop.run()) for loop in loops)]
    try:
        yield member
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
