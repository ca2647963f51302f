"""The true events in order, each of a broker that was up at that time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench.histories.faults import Fault, FleetEvent, How, Label, noise, plan
from tests.bench.histories.fleet import DAY, Broker, Fleet, Kind

FIRST_VERSION = "7.2.0"
ALL_THERE = 120.0
"""No fault happens before every broker has registered everywhere."""
SETTLED = 5.0
"""A broker that has just come back is back at every node."""


class Process(NamedTuple):
    """A broker's process."""

    incarnation: str
    version: str


class Fact(NamedTuple):
    """A happening, and the process that is there after it."""

    happening: FleetEvent
    process: Process


def first_process(broker: int) -> Process:
    return Process(_incarnation(broker, 1), FIRST_VERSION)


def _incarnation(broker: int, number: int) -> str:
    return f"{broker:x}-{number:06d}"


@dataclass
class Truth:
    """The fleet's days, one after the other, and the labels of what happened in them."""

    fleet: Fleet
    brokers: list[Broker]
    labels: list[Label] = field(default_factory=list)

    def days(self) -> Iterator[list[Fact]]:
        """The facts of each day in order of time."""
        faults = plan(self.fleet, self.brokers)
        for fault in faults:
            self._label_fault(fault)
        story = heapq.merge(noise(self.fleet), *(fault.happenings for fault in faults))
        free_from = [ALL_THERE] * self.fleet.brokers
        incarnations, versions = [1] * self.fleet.brokers, [FIRST_VERSION] * self.fleet.brokers
        day, facts = 1, list[Fact]()
        for happening in story:
            if happening.at >= self.fleet.seconds:
                break
            while happening.at >= day * DAY:
                yield facts
                day, facts = day + 1, []
            number = happening.broker
            # A broker that is down already cannot go down.
            if happening.at < free_from[number]:
                continue
            free_from[number] = happening.until + SETTLED
            if happening.how in {How.CRASH, How.SHUTDOWN, How.MAINTENANCE}:
                incarnations[number] += 1
                versions[number] = happening.version or versions[number]
            facts.append(Fact(happening, Process(_incarnation(number, incarnations[number]), versions[number])))
            if happening.kind is Kind.SINGLE:
                self._label(happening.broker, Kind.SINGLE, happening.at, happening.until)
        for _ in range(day, self.fleet.days + 1):
            yield facts
            facts = []

    def _label_fault(self, fault: Fault) -> None:
        number = self._next_fault()
        for broker in fault.brokers:
            self._label(broker, fault.kind, fault.began, fault.ended, number)

    def _next_fault(self) -> int:
        return self.labels[-1].fault + 1 if self.labels else 1

    def _label(self, broker: int, kind: Kind, began: float, ended: float, fault: int | None = None) -> None:
        times = [self.fleet.moment(min(at, self.fleet.seconds)).isoformat(timespec="seconds") for at in (began, ended)]
        identity = self.brokers[broker].identity
        number = fault if fault is not None else self._next_fault()
        self.labels.append(Label(*identity[:3], kind, times[0], times[1], number))
