"""The registration loops of one agent inside the test's event loop, whose list and own state the test sets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from pointsman.clock import Clock, SystemClock
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.agent_metrics import AgentMetrics
from pointsman_agent.core.own_state import Leave, OwnState
from pointsman_agent.core.probe_verdict import ProbeStatus, Role, Verdict
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.observable import Observable
from pointsman_agent.registration.loop import RegistrationLoop, Timeouts
from pointsman_agent.registration.registration_fleet import RegistrationFleet
from pointsman_agent.registration.registration_messages import BrokerProfile
from tests.kit.agent.in_process import BROKER_ADDR, Registered

PROFILE = BrokerProfile(cluster="c1", broker_name="a", addr=BROKER_ADDR, host="host-1")
PASSING = Verdict(ProbeStatus.PASSING, "answers", incarnation="run-1", role=Role.MASTER)


def own_state(topics: Sequence[str], *, verdict: Verdict = PASSING) -> OwnState:
    """A master with these topics."""
    table = (TopicConfig(topic, 4, 4, 6) for topic in topics)
    return OwnState(0, TopicSet.from_content(table, state_version=0), verdict)


@dataclass
class RunningFleet(Registered):
    """The state that a test sets and reads."""

    fleet: RegistrationFleet
    listed: Observable[tuple[str, ...]]
    own: Observable[OwnState]
    metrics: AgentMetrics
    task: asyncio.Task[None]
    forgotten: list[str] = field(default_factory=list)

    def set_topics(self, topics: Sequence[str]) -> None:
        self.own.set(replace(self.own.value, topics=own_state(topics).topics))

    def set_leave(self, leave: Leave) -> None:
        self.own.set(replace(self.own.value, leave=leave))

    @property
    def registry(self) -> CollectorRegistry:
        return self.metrics.registry

    def registration_state(self, name_server: str) -> RegistrationState | None:
        report = self.fleet.reports.get(name_server)
        return None if report is None else report.state


@asynccontextmanager
async def running_fleet(
    addrs: Sequence[str],
    *,
    own: OwnState | None = None,
    profile: BrokerProfile = PROFILE,
    clock: Clock | None = None,
    timeouts: Timeouts | None = None,
    draw: Callable[[float, float], float] = max,
) -> AsyncIterator[RunningFleet]:
    """Run for the length of the block. Waits have their maximum length unless ``draw`` sets another."""
    watched, listed = Observable(own or own_state(["orders"])), Observable(tuple(addrs))
    metrics = AgentMetrics(version="0.0.0-test")
    forgotten: list[str] = []

    def build(name_server: str) -> RegistrationLoop:
        return RegistrationLoop(
            name_server,
            profile=profile,
            own=watched,
            opener=ChannelOpener(),
            clock=clock or SystemClock(),
            metrics=metrics,
            timeouts=timeouts or Timeouts(),
            draw=draw,
        )

    fleet = RegistrationFleet(listed, watched, build=build, forget=forgotten.append)
    task = asyncio.create_task(fleet.run())
    try:
        yield RunningFleet(fleet, listed, watched, metrics, task, forgotten)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
