"""Labelled faults for a fleet: what happens to which broker and agent, and what a report should call it.

Faults arrive at random moments and overlap within a cluster; a broker takes part in one fault at a time. Nothing here
was chosen for the parameters of a detector.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

DAY = 86_400.0
HOSTS, BROKERS_A_HOST, ZONES = 6, 4, 3
SETTLED_SECONDS = 400.0
"""Between two faults of one broker: longer than an expiry and the return of a slow agent."""
FIRST_SECONDS = 600.0
"""By then every broker is registered everywhere, and no name server is lenient for its own start any longer."""


class Kind(StrEnum):
    """What was injected."""

    ROLLING_RESTART = "rolling restart"
    """Brokers of a cluster are restarted one after another, by a kill, with their agent, or gracefully."""
    DEPLOY = "deploy"
    """The same, and each comes back with another version."""
    AGENT_CRASH = "agent crash"
    """An agent is killed and started again; its broker keeps running."""
    HOST_LOSS = "host loss"
    """A host stops with all brokers and agents on it, and starts again."""
    PARTITION = "partition"
    """Brokers of a zone cannot reach the name servers for some minutes."""
    FLAPPER = "flapper"
    """One broker's process crashes repeatedly."""


EXPECTED_CAUSE = {
    Kind.ROLLING_RESTART: "rolling_restart",
    Kind.DEPLOY: "deploy",
    Kind.AGENT_CRASH: "agent_lost",
    Kind.HOST_LOSS: "host_lost",
    Kind.PARTITION: "network",
    Kind.FLAPPER: "process_died",
}
INCIDENTS = frozenset({Kind.HOST_LOSS, Kind.PARTITION})
ROLLING = frozenset({Kind.ROLLING_RESTART, Kind.DEPLOY})


class What(StrEnum):
    """The events of one broker or its agent."""

    BROKER_DIES = "broker dies"
    BROKER_STARTS = "broker starts"
    AGENT_KILLED = "agent killed"
    """Its connections are reset."""
    AGENT_VANISHES = "agent vanishes"
    """As with its host: nothing resets its connections."""
    AGENT_STARTS = "agent starts"
    LEAVES = "leaves"
    """The agent unregisters the broker and stops."""
    RESET = "reset"
    """Cut off, with connections reset."""
    CUT = "cut"
    """Cut off, packets dropped."""
    HEALED = "healed"


class Act(NamedTuple):
    """One event, in seconds of the day."""

    at: float
    broker: int
    what: What
    version: str = ""
    """The version that a broker starts with, if it changes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected fault."""

    kind: Kind
    cluster: int
    brokers: tuple[int, ...]
    began: float
    ended: float
    acts: tuple[Act, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size of the fleet and the number of faults. The same fields give the same faults."""

    clusters: int = 16
    each: int = 300
    """Faults of each kind."""
    seed: int = 2026
    without_incarnation: float = 0.01
    """Share of brokers whose agents cannot identify processes."""

    @property
    def brokers(self) -> int:
        return self.clusters * HOSTS * BROKERS_A_HOST

    def cluster_of(self, broker: int) -> int:
        return broker // (HOSTS * BROKERS_A_HOST)

    def host_of(self, broker: int) -> int:
        return broker // BROKERS_A_HOST

    def zone_of(self, broker: int) -> int:
        return self.host_of(broker) % ZONES

    def members(self, cluster: int) -> range:
        size = HOSTS * BROKERS_A_HOST
        return range(cluster * size, (cluster + 1) * size)


@dataclass
class _Calendar:
    """Which broker is free when."""

    busy: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def is_free(self, brokers: tuple[int, ...], began: float, ended: float) -> bool:
        return all(
            ended + SETTLED_SECONDS < since or began > until + SETTLED_SECONDS
            for broker in brokers
            for since, until in self.busy.get(broker, [])
        )

    def take(self, fault: Fault) -> None:
        for broker in fault.brokers:
            self.busy.setdefault(broker, []).append((fault.began, fault.ended))


def faults_of(plan: Plan) -> list[Fault]:
    """All faults in order of time."""
    rng, calendar = random.Random(plan.seed), _Calendar()
    found = []
    # Those that need most brokers are placed first.
    for kind in sorted(Kind, key=lambda kind: kind not in INCIDENTS | ROLLING):
        for number in range(plan.each):
            fault = _placed(kind, number, plan, calendar, rng)
            calendar.take(fault)
            found.append(fault)
    return sorted(found, key=lambda fault: fault.began)


def _placed(kind: Kind, number: int, plan: Plan, calendar: _Calendar, rng: random.Random) -> Fault:
    while True:
        at = rng.uniform(FIRST_SECONDS, DAY - 2_400)
        fault = _made(kind, number, plan, at, rng)
        if fault.ended < DAY - 600 and calendar.is_free(fault.brokers, fault.began, fault.ended):
            return fault


def _made(kind: Kind, number: int, plan: Plan, at: float, rng: random.Random) -> Fault:
    cluster = rng.randrange(plan.clusters)
    members = plan.members(cluster)
    match kind:
        case Kind.ROLLING_RESTART | Kind.DEPLOY:
            brokers = tuple(rng.sample(members, rng.randint(3, 8)))
            version = f"8.{number}" if kind is Kind.DEPLOY else ""
            acts = tuple(_rolled(brokers, at, version, rng))
        case Kind.AGENT_CRASH:
            brokers = (rng.choice(members),)
            back = at + rng.uniform(25, 180)
            acts = (Act(at, brokers[0], What.AGENT_KILLED), Act(back, brokers[0], What.AGENT_STARTS))
        case Kind.HOST_LOSS:
            host = plan.host_of(rng.choice(members))
            brokers = tuple(range(host * BROKERS_A_HOST, (host + 1) * BROKERS_A_HOST))
            acts = tuple(_host_lost(brokers, at, rng))
        case Kind.PARTITION:
            zone = plan.zone_of(rng.choice(members))
            there = [broker for broker in members if plan.zone_of(broker) == zone]
            brokers = tuple(rng.sample(there, rng.randint(3, len(there))))
            acts = tuple(_cut_off(brokers, at, rng))
        case Kind.FLAPPER:
            brokers = (rng.choice(members),)
            acts = tuple(_flaps(brokers[0], at, rng))
    return Fault(kind, cluster, brokers, at, max(act.at for act in acts), acts)


def _rolled(brokers: tuple[int, ...], at: float, version: str, rng: random.Random) -> Iterator[Act]:
    how = rng.choice(("killed", "killed", "with agent", "gracefully"))
    pause = rng.uniform(3, 60)
    for broker in brokers:
        if how == "killed":
            back = at + rng.uniform(20, 60)
            yield Act(at, broker, What.BROKER_DIES)
            yield Act(back, broker, What.BROKER_STARTS, version)
        else:
            # With less the new process registers before the old one expires: no outage.
            back = at + rng.uniform(25, 90)
            yield Act(at, broker, What.LEAVES if how == "gracefully" else What.AGENT_KILLED)
            yield Act(at, broker, What.BROKER_DIES)
            yield Act(back - 2, broker, What.BROKER_STARTS, version)
            yield Act(back, broker, What.AGENT_STARTS)
        # The operator waits until it is back.
        at = back + 5 + pause * rng.uniform(0.7, 1.3)


def _host_lost(brokers: tuple[int, ...], at: float, rng: random.Random) -> Iterator[Act]:
    what = rng.choice((What.AGENT_KILLED, What.AGENT_VANISHES))
    boot = at + rng.uniform(200, 700)
    for broker in brokers:
        gone = at + rng.uniform(0, 0.5)
        up = boot + rng.uniform(0, 30)
        yield Act(gone, broker, what)
        yield Act(gone, broker, What.BROKER_DIES)
        yield Act(up, broker, What.BROKER_STARTS)
        yield Act(up + rng.uniform(1, 10), broker, What.AGENT_STARTS)


def _cut_off(brokers: tuple[int, ...], at: float, rng: random.Random) -> Iterator[Act]:
    what = rng.choice((What.RESET, What.CUT))
    healed = at + rng.uniform(200, 900)
    for broker in brokers:
        yield Act(at + rng.uniform(0, 1), broker, what)
        yield Act(healed + rng.uniform(0, 10), broker, What.HEALED)


def _flaps(broker: int, at: float, rng: random.Random) -> Iterator[Act]:
    for _ in range(rng.randint(4, 8)):
        back = at + rng.uniform(15, 45)
        yield Act(at, broker, What.BROKER_DIES)
        yield Act(back, broker, What.BROKER_STARTS)
        at = back + rng.uniform(60, 360)
