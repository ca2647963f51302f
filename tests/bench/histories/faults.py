"""Faults of brokers with their labels, drawn from the seed, each a stream of events in order of time."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tests.bench.histories.fleet import DAY, Broker, Fleet, Kind

HOUR, MINUTE = 3_600.0, 60.0


class How(StrEnum):
    """How a broker goes down, as name servers see it."""

    CRASH = "crash"
    """Its process ends: streams break, a new incarnation comes back."""
    SILENCE = "silence"
    """Its heartbeats stop; the same process comes back."""
    PROBE = "probe"
    """Its agent reports a failing probe."""
    SHUTDOWN = "shutdown"
    """It unregisters, and comes back as a new incarnation."""
    MAINTENANCE = "maintenance"
    """It goes down in an announced window."""
    LATE = "late"
    """Only a late heartbeat."""


class FleetEvent(NamedTuple):
    """One event of one broker. Times are seconds since the fleet's start."""

    at: float
    broker: int
    how: How
    until: float
    """Infinite where it never comes back."""
    kind: Kind
    version: str | None = None
    """The version after its return, if it changes."""


@dataclass(frozen=True, slots=True)
class Label:
    """A fault of a broker. Several brokers of one fault share its number."""

    cluster: str
    broker_name: str
    broker_id: int
    label: Kind
    from_at: str
    to_at: str
    fault: int

    @property
    def began_at(self) -> datetime:
        return datetime.fromisoformat(self.from_at)

    @property
    def ended_at(self) -> datetime:
        return datetime.fromisoformat(self.to_at)


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of these brokers for this time."""

    kind: Kind
    brokers: tuple[int, ...]
    began: float
    ended: float
    happenings: Iterable[FleetEvent]


def read_labels(path: Path) -> list[Label]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Label(**row | {"label": Kind(row["label"])}) for row in rows]


def label_line(label: Label) -> str:
    return json.dumps(asdict(label))


def plan(fleet: Fleet, brokers: list[Broker]) -> list[Fault]:
    """Every fault except the single outages, which `noise` yields."""
    rng = random.Random(f"{fleet.seed}/plan")
    rates = fleet.faults
    faults = _flappers(fleet, rng)
    for _ in range(_poisson(rng, rates.overloads_a_broker_day * fleet.brokers * fleet.days)):
        faults.append(_overload(rng.randrange(fleet.brokers), rng.uniform(0, fleet.seconds), rng))
    for _ in range(_poisson(rng, rates.zone_cuts_a_day * fleet.days)):
        faults.append(_zone_cut(brokers, rng.uniform(0, fleet.seconds), rng))
    for cluster in sorted({broker.identity.cluster for broker in brokers}):
        members = [number for number, broker in enumerate(brokers) if broker.identity.cluster == cluster]
        weeks = fleet.days / 7
        for number in range(_poisson(rng, rates.deploys_a_cluster_week * weeks)):
            faults.append(_deploy(members, rng.uniform(0, fleet.seconds), f"7.{number + 3}.0", rng))
        for _ in range(_poisson(rng, rates.maintenances_a_cluster_week * weeks)):
            faults.append(_maintenance(brokers, members, rng.uniform(0, fleet.seconds), rng))
    for broker in rng.sample(range(fleet.brokers), round(rates.dead_share * fleet.brokers)):
        at = rng.uniform(0, fleet.seconds)
        gone = FleetEvent(at, broker, How.CRASH, math.inf, Kind.DEAD)
        faults.append(Fault(Kind.DEAD, (broker,), at, fleet.seconds, (gone,)))
    return faults


def noise(fleet: Fleet) -> Iterator[FleetEvent]:
    """The single outages of all brokers in order of time, day by day."""
    rng = random.Random(f"{fleet.seed}/noise")
    rates = [fleet.faults.outages_a_broker_day * rng.gammavariate(2, 0.5) for _ in range(fleet.brokers)]
    for day in range(fleet.days):
        number = _poisson(rng, sum(rates))
        times = sorted(rng.uniform(day * DAY, (day + 1) * DAY) for _ in range(number))
        chosen = rng.choices(range(fleet.brokers), rates, k=number) if number else []
        for at, broker in zip(times, chosen, strict=True):
            (how,) = rng.choices((How.CRASH, How.SILENCE, How.PROBE, How.SHUTDOWN), (6, 2, 1, 1))
            length = min(12 * HOUR, max(30.0, rng.lognormvariate(math.log(4 * MINUTE), 1.2)))
            yield FleetEvent(at, broker, how, at + length, Kind.SINGLE)


# --- brokers that flap ------------------------------------------------------------------------------------------


def _flappers(fleet: Fleet, rng: random.Random) -> list[Fault]:
    number = round(fleet.flapping_share * fleet.brokers)
    chosen = rng.sample(range(fleet.brokers), min(fleet.brokers, number + fleet.faults.flapping_every_minute))
    every_minute, flapping = chosen[number:], chosen[:number]
    faults = [_loop(broker, (2 * MINUTE, fleet.seconds), MINUTE, 0.5, rng) for broker in every_minute]
    for kind, members in _shared_out(flapping, fleet.faults.shares):
        for broker in members:
            faults += _flapper(kind, broker, fleet, rng)
    return faults


def _shared_out(brokers: list[int], shares: tuple[tuple[Kind, float], ...]) -> Iterator[tuple[Kind, list[int]]]:
    total, done, given = sum(share for _, share in shares), 0.0, 0
    for kind, share in shares:
        done += share
        last = round(len(brokers) * done / total)
        yield kind, brokers[given:last]
        given = last


def _flapper(kind: Kind, broker: int, fleet: Fleet, rng: random.Random) -> Iterator[Fault]:
    end = fleet.seconds
    if kind is Kind.RESTART_LOOP:
        for week in range(-(-fleet.days // 7)):
            began = rng.uniform(week * 7 * DAY, min(end, (week + 1) * 7 * DAY))
            ended = min(end, began + rng.uniform(2, 8) * HOUR)
            yield _loop(broker, (began, ended), rng.uniform(30, 300), rng.uniform(0.1, 0.6), rng)
    elif kind is Kind.BURST:
        for week in range(-(-fleet.days // 7)):
            began = rng.uniform(week * 7 * DAY, min(end, (week + 1) * 7 * DAY))
            ended = min(end, began + rng.uniform(1, 3) * DAY)
            yield _fault(kind, broker, began, ended, _bursts(broker, began, ended, random.Random(rng.random())))
    elif kind is Kind.SLOW_FLAP:
        began = rng.uniform(0, end / 2)
        period = rng.uniform(1, 4) * HOUR
        yield _fault(
            kind, broker, began, end, _outages(kind, broker, (began, end), period, random.Random(rng.random()))
        )
    else:
        period = rng.uniform(0.8, 1.3) * DAY
        yield _fault(kind, broker, 0.0, end, _outages(kind, broker, (0.0, end), period, random.Random(rng.random())))


def _fault(kind: Kind, broker: int, began: float, ended: float, happenings: Iterable[FleetEvent]) -> Fault:
    return Fault(kind, (broker,), began, ended, happenings)


def _loop(broker: int, span: tuple[float, float], period: float, away: float, rng: random.Random) -> Fault:
    """A restart every period; the broker is down for a share of it."""
    return _fault(Kind.RESTART_LOOP, broker, *span, _restarts(broker, span, period, away, random.Random(rng.random())))


def _restarts(
    broker: int, span: tuple[float, float], period: float, away: float, rng: random.Random
) -> Iterator[FleetEvent]:
    at, ended = span
    while at < ended:
        back = at + away * period * rng.uniform(0.95, 1.05)
        yield FleetEvent(at, broker, How.CRASH, back, Kind.RESTART_LOOP)
        at += period * rng.uniform(0.95, 1.05)


def _bursts(broker: int, began: float, ended: float, rng: random.Random) -> Iterator[FleetEvent]:
    at = began
    while at < ended:
        for _ in range(rng.randint(4, 10)):
            how = rng.choice((How.CRASH, How.CRASH, How.SILENCE))
            # Long enough to be noticed: two minutes of silence are not an outage yet.
            length = rng.uniform(0.5, 2) * MINUTE + (2 * MINUTE if how is How.SILENCE else 0)
            yield FleetEvent(at, broker, how, at + length, Kind.BURST)
            at += length + rng.uniform(2, 8) * MINUTE
        at += rng.uniform(4, 12) * HOUR


def _slow(kind: Kind, broker: int, span: tuple[float, float], period: float, rng: random.Random) -> Fault:
    return _fault(kind, broker, *span, _outages(kind, broker, span, period, random.Random(rng.random())))


def _outages(
    kind: Kind, broker: int, span: tuple[float, float], period: float, rng: random.Random
) -> Iterator[FleetEvent]:
    began, ended = span
    # A fault that lasts from the start has its first outage anywhere in the first period; others begin with one.
    at = began + (rng.random() * period if began == 0 else 0)
    while at < ended:
        yield FleetEvent(at, broker, How.CRASH, at + rng.uniform(1, 5) * MINUTE, kind)
        at += period * rng.uniform(0.7, 1.3)


# --- faults of the environment ----------------------------------------------------------------------------------


def _overload(broker: int, began: float, rng: random.Random) -> Fault:
    happenings, at = [], began
    for _ in range(rng.randint(5, 20)):
        silence = rng.uniform(46, 70)
        happenings.append(FleetEvent(at, broker, How.LATE, at + silence, Kind.OVERLOAD))
        at += silence + rng.uniform(10, 90)
    ended = at + rng.uniform(3, 10) * MINUTE
    happenings.append(FleetEvent(at, broker, rng.choice((How.SILENCE, How.PROBE)), ended, Kind.OVERLOAD))
    return Fault(Kind.OVERLOAD, (broker,), began, ended, happenings)


def _zone_cut(brokers: list[Broker], began: float, rng: random.Random) -> Fault:
    place = rng.choice(brokers)
    there = (place.identity.cluster, place.zone)
    zone = [number for number, broker in enumerate(brokers) if (broker.identity.cluster, broker.zone) == there]
    hit = sorted(rng.sample(zone, max(1, round(len(zone) * rng.uniform(0.3, 1)))))
    ended = began + rng.uniform(3, 15) * MINUTE
    happenings = sorted(
        FleetEvent(began + rng.uniform(0, 2), number, How.SILENCE, ended + rng.uniform(0, 20), Kind.ZONE_CUT)
        for number in hit
    )
    return Fault(Kind.ZONE_CUT, tuple(hit), began, ended, happenings)


def _deploy(members: list[int], began: float, version: str, rng: random.Random) -> Fault:
    graceful, pace = rng.random() < 0.5, rng.uniform(20, 90)
    how = How.SHUTDOWN if graceful else How.CRASH
    happenings = [
        FleetEvent(began + n * pace, broker, how, began + n * pace + rng.uniform(15, 60), Kind.DEPLOY, version)
        for n, broker in enumerate(members)
    ]
    return Fault(Kind.DEPLOY, tuple(members), began, happenings[-1].until, happenings)


def _maintenance(brokers: list[Broker], members: list[int], began: float, rng: random.Random) -> Fault:
    names = sorted({brokers[number].identity.broker_name for number in members})
    chosen = set(rng.sample(names, min(3, len(names))))
    hit = [number for number in members if brokers[number].identity.broker_name in chosen]
    ended = began + rng.uniform(5, 40) * MINUTE
    happenings = sorted(
        FleetEvent(began + rng.uniform(0, 60), number, How.MAINTENANCE, ended + rng.uniform(0, 60), Kind.MAINTENANCE)
        for number in hit
    )
    return Fault(Kind.MAINTENANCE, tuple(hit), began, ended, happenings)


def _poisson(rng: random.Random, mean: float) -> int:
    """A Poisson draw: arrivals of unit rate counted up to ``mean``."""
    count, at = 0, rng.expovariate(1)
    while at < mean:
        count += 1
        at += rng.expovariate(1)
    return count
