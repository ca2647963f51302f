"""A complete agent inside the test's event loop, with real sockets and the test's clock, probe and settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from pointsman.clock import Clock, SystemClock
from pointsman_agent.app import Agent
from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    MonitoringSection,
    NameServersSection,
    TopicRow,
    TopicsSection,
)
from pointsman_agent.core.probe_verdict import ProbeResult
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.probe import Probe
from pointsman_agent.topic_source import TopicSource
from tests.kit.chosen_listener import chosen_listener
from tests.kit.waiting import eventually

BROKER_ADDR = "10.0.0.1:10911"
PATIENCE_SECONDS = 60.0


class ScriptedProbe:
    """A broker with the probe result ``result``; ``None`` hangs."""

    def __init__(self, result: ProbeResult | None) -> None:
        self.result = result
        self.looks = 0

    async def check(self) -> ProbeResult:
        self.looks += 1
        if self.result is None:
            await asyncio.Event().wait()
        assert self.result is not None
        return self.result


class Registered:
    """What an agent counts of its name servers."""

    @property
    def registry(self) -> CollectorRegistry:
        raise NotImplementedError

    def registration_state(self, name_server: str) -> RegistrationState | None:
        """None: it is not registering there."""
        raise NotImplementedError

    def beats(self, name_server: str, answer: str = "ok") -> int:
        return self._count("pointsman_agent_heartbeats_total", name_server=name_server, result=answer)

    def registrations(self, name_server: str, result: str = "accepted") -> int:
        return self._count("pointsman_agent_registrations_total", name_server=name_server, result=result)

    async def counts_beats(self, name_server: str, count: int, answer: str = "ok") -> None:
        """Wait until it has processed the response, not only until the server has received the heartbeat."""
        await eventually(lambda: self.beats(name_server, answer) == count)

    async def stands(self, name_server: str, standing: RegistrationState) -> None:
        """Wait until it is in this state."""
        await eventually(lambda: self.registration_state(name_server) is standing)

    def _count(self, name: str, **labels: str) -> int:
        return int(self.registry.get_sample_value(name, labels) or 0)


@dataclass
class RunningAgent(Registered):
    """Queries of a test."""

    agent: Agent
    stop: asyncio.Event
    task: asyncio.Task[None]

    @property
    def registry(self) -> CollectorRegistry:
        return self.agent.metrics.registry

    def registration_state(self, name_server: str) -> RegistrationState:
        for each in RegistrationState:
            if self._count("pointsman_agent_registration_state", name_server=name_server, state=each.value):
                return each
        return RegistrationState.UNREGISTERED

    async def stopped(self) -> None:
        """Stop it, and wait until it has stopped."""
        self.stop.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.task


def agent_config(name_servers: Sequence[str], *, topics: Sequence[str] = ("orders",)) -> AgentConfig:
    """The defaults around a broker with ``topics``."""
    return AgentConfig(
        broker=BrokerSection(cluster="c1", name="a", addr=BROKER_ADDR, host="host-1"),
        name_servers=NameServersSection(addrs=tuple(name_servers)),
        topics=TopicsSection(topic=tuple(TopicRow(name=each, read_queues=4, write_queues=4) for each in topics)),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )


def on_chosen_listener(config: AgentConfig) -> AgentConfig:
    """Return it with the listener that the environment chooses."""
    return replace(config, rpc=replace(config.rpc, listener=chosen_listener()))


@asynccontextmanager
async def running_agent(
    config: AgentConfig,
    *,
    clock: Clock | None = None,
    probe: Probe | None = None,
    topic_source: TopicSource | None = None,
    draw: Callable[[float, float], float] = max,
) -> AsyncIterator[RunningAgent]:
    """Run an agent for the length of the block. Waits have their maximum length unless ``draw`` sets another."""
    agent = Agent(
        on_chosen_listener(config),
        probe=probe,
        topic_source=topic_source,
        clock=clock or SystemClock(),
        version="0.0.0-test",
        draw=draw,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(agent.run(stop))
    try:
        yield RunningAgent(agent, stop, task)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def with_probe(config: AgentConfig, **settings: object) -> AgentConfig:
    return replace(config, probe=replace(config.probe, **settings))  # type: ignore[arg-type]  # any settings
