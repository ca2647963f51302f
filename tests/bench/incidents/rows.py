"""The one place that makes rows: real cores of name servers on a clock that moves by hand, and agents that call them.

An agent sends a heartbeat every 30 s over a stream, probes its broker every few seconds, registers again when a name
server does not know it or its broker is another process, and reconnects when it was cut off. Network, Redis and
processes are played; every row is an event of `pointsman_namesrv.core`, made a line by `pointsman_namesrv.history`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path

from pointsman_namesrv.core.broker_responses import BeatStatus
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    Evidence,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from tests.bench.histories.writing import NodeHistory
from tests.bench.incidents.faults import DAY, Act, Fault, Plan, What

NODES = 2
DAY_OF = date(2026, 3, 2)
HEARTBEAT, ALIVE, READY = 30.0, 60.0, 40.0
FIRST_VERSION = "7.2.0"
DROPPED = frozenset({EventKind.HEARTBEATS, EventKind.TOPICS})
"""Nine in ten of a day's rows, which do not depend on outages."""

Write = Callable[[float, Event], None]


def write_rows(plan: Plan, faults: Iterable[Fault], folder: Path) -> list[Path]:
    """Write the history of a day with these faults; a directory for each name server."""
    began_at = datetime.combine(DAY_OF, time(), UTC)
    histories = [
        NodeHistory(folder / f"namesrv-{n}", node=f"namesrv-{n}:9876", boot_id=f"b{n}", began_at=began_at)
        for n in range(1, NODES + 1)
    ]
    day = _Day(plan, [history.write for history in histories])
    day.pass_by(sorted((act for fault in faults for act in fault.acts), key=lambda act: act.at))
    for history in histories:
        history.close()
    return [history.directory for history in histories]


def broker_number(name: str, broker_id: int) -> int:
    """The number of a broker in the plan, from the row's name and id."""
    return (int(name.removeprefix("broker-")) - 1) * 2 + broker_id


@dataclass
class _Node:
    core: NameServer
    write: Write
    generations: dict[int, int] = field(default_factory=dict)
    """State of each broker's agent."""
    streams: dict[int, int] = field(default_factory=dict)

    def record(self, at: float, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind not in DROPPED:
                self.write(at, event)


@dataclass
class _Agent:
    """One broker and its agent."""

    number: int
    identity: BrokerIdentity
    zone: str
    host: str
    has_incarnation: bool
    runs: bool = True
    broker_runs: bool = True
    reachable: bool = True
    process: int = 1
    version: str = FIRST_VERSION
    health: Health = Health(ProbeVerdict.PASSING)
    stream: int = 1
    registered_process: int = 0

    def registration(self) -> Registration:
        return Registration(
            identity=self.identity,
            topics=_TOPICS,
            incarnation=f"{self.number:x}-{self.process}" if self.has_incarnation else "",
            health=self.health,
            zone=self.zone,
            host=self.host,
            broker_version=self.version,
        )


_TOPICS = {"orders": QueueConfig(4, 4, 6)}


def _refused(identity: BrokerIdentity) -> Health:
    """What a probe reports of a local port that no process listens on: strong evidence."""
    text = f"redis {identity.addr}: Error 111 connecting to {identity.addr}. Connection refused."
    return Health(ProbeVerdict.FAILING, text, Evidence.STRONG)


class _Day:
    """The day of a fleet."""

    def __init__(self, plan: Plan, writers: list[Write]) -> None:
        self._rng = random.Random(f"{plan.seed}/rows")
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._nodes = [
            _Node(NameServer(rules=LivenessRules(), first_generation=1_000 * n, started_at=0.0), write)
            for n, write in enumerate(writers, 1)
        ]
        self._agents = [self._agent(plan, number) for number in range(plan.brokers)]

    def _agent(self, plan: Plan, number: int) -> _Agent:
        host = plan.host_of(number)
        identity = BrokerIdentity(
            f"cluster-{plan.cluster_of(number) + 1:02d}",
            f"broker-{number // 2 + 1:04d}",
            number % 2,
            f"10.0.{host}.{number % 4 + 1}:6379",
        )
        has_incarnation = self._rng.random() >= plan.without_incarnation
        return _Agent(number, identity, f"zone-{plan.zone_of(number) + 1}", f"host-{host + 1:03d}", has_incarnation)

    def pass_by(self, acts: list[Act]) -> None:
        """Run through the day."""
        for node in self._nodes:
            node.write(0.0, Event(kind=EventKind.NAMESRV_STARTED, detail={"version": "0.1.0"}))
            self._at(READY, partial(self._ready, node))
            self._every(ALIVE, self._rng.uniform(0, ALIVE), partial(self._alive, node))
            sweep = node.core.sweep_interval()
            self._every(sweep, self._rng.uniform(0, sweep), partial(self._sweep, node))
        for agent in self._agents:
            self._at(self._rng.uniform(1, 35), partial(self._register, agent))
            self._every(HEARTBEAT, self._rng.uniform(36, 66), partial(self._beat, agent))
        for act in acts:
            self._at(act.at, partial(self._happens, act))
        while self._queue and self._queue[0][0] < DAY:
            at, _, run = heapq.heappop(self._queue)
            run(at)

    # --- time -------------------------------------------------------------------------------------------------------

    def _at(self, at: float, run: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, run))

    def _every(self, seconds: float, first: float, run: Callable[[float], None]) -> None:
        def again(at: float) -> None:
            run(at)
            self._at(at + seconds, again)

        self._at(first, again)

    # --- agents -----------------------------------------------------------------------------------------------------

    def _register(self, agent: _Agent, at: float) -> None:
        for node in self._nodes:
            self._register_at(node, agent, at)
        agent.registered_process = agent.process

    def _register_at(self, node: _Node, agent: _Agent, at: float) -> None:
        accepted = node.core.register(agent.registration(), now=at)
        node.generations[agent.number] = accepted.generation
        node.record(at, accepted.events)
        self._beat_at(node, agent, at)

    def _beat(self, agent: _Agent, at: float) -> None:
        if agent.runs and agent.reachable:
            for node in self._nodes:
                if self._beat_at(node, agent, at + self._rng.uniform(0, 0.05)) is not BeatStatus.OK:
                    self._register_at(node, agent, at + 0.1)

    def _beat_at(self, node: _Node, agent: _Agent, at: float) -> BeatStatus:
        generation = node.generations[agent.number]
        held = agent.registration().data_version
        answer = node.core.beat(
            agent.identity, generation, data_version=held, health=agent.health, now=at, stream=agent.stream
        )
        node.record(at, answer.events)
        return answer.status

    def _end_streams(self, agent: _Agent, at: float) -> None:
        for node in self._nodes:
            generation = node.generations.get(agent.number, 0)
            node.record(at, node.core.end_stream(agent.identity, generation, stream=agent.stream, now=at))
        agent.stream += 1

    def _probe(self, agent: _Agent, at: float) -> None:
        """Report the probe's verdict immediately, with a registration if the broker is another process."""
        agent.health = Health(ProbeVerdict.PASSING) if agent.broker_runs else _refused(agent.identity)
        if not (agent.runs and agent.reachable):
            return
        if agent.broker_runs and agent.registered_process != agent.process:
            self._register(agent, at)
        else:
            self._beat(agent, at)

    # --- what happens -------------------------------------------------------------------------------------------------

    def _happens(self, act: Act, at: float) -> None:
        agent = self._agents[act.broker]
        match act.what:
            case What.BROKER_DIES:
                agent.broker_runs = False
                # Some probes in a row.
                self._at(at + self._rng.uniform(3, 10), partial(self._probe, agent))
            case What.BROKER_STARTS:
                agent.broker_runs = True
                agent.process += 1
                agent.version = act.version or agent.version
                self._at(at + self._rng.uniform(0.5, 5), partial(self._probe, agent))
            case What.AGENT_KILLED | What.AGENT_VANISHES:
                agent.runs = False
                if act.what is What.AGENT_KILLED:
                    self._end_streams(agent, at)
            case What.AGENT_STARTS:
                agent.runs, agent.stream = True, agent.stream + 1
                self._probe(agent, at)
                self._register(agent, at + 0.2)
            case What.LEAVES:
                agent.runs = False
                for node in self._nodes:
                    generation = node.generations[agent.number]
                    left = node.core.unregister(agent.identity, generation, reason=Reason.SHUTDOWN, now=at)
                    node.record(at, left.events)
            case What.RESET | What.CUT:
                agent.reachable = False
                if act.what is What.RESET:
                    self._end_streams(agent, at)
            case What.HEALED:
                agent.reachable, agent.stream = True, agent.stream + 1
                self._beat(agent, at)

    def _ready(self, node: _Node, at: float) -> None:
        node.write(at, Event(kind=EventKind.NAMESRV_READY))

    def _sweep(self, node: _Node, at: float) -> None:
        node.record(at, node.core.sweep(now=at))

    def _alive(self, node: _Node, at: float) -> None:
        detail: dict[str, object] = {"state": "READY", "brokers": {}, "rows_dropped": 0}
        node.write(at, Event(kind=EventKind.NAMESRV_ALIVE, detail=detail))
