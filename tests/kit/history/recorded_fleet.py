"""A core whose events become rows of a history, over as many runs of the name server as a test wants."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.departed import DepartedBroker
from pointsman_namesrv.core.earlier_states import LastEvent, apply_last_event
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    GroupKey,
    Health,
    Position,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.history.newest_rows import NewestRows
from pointsman_namesrv.history.row_decoding import to_record
from pointsman_namesrv.snapshot.keeper import health_to_keep
from tests.kit.history.past_runs import PastRun, question_about

NAMES = ("a", "b", "c")
UTC_ZERO = datetime(2026, 1, 1, 12, tzinfo=UTC)


def identity(name: str, addr: str | None = None) -> BrokerIdentity:
    return BrokerIdentity("c1", name, 0, f"{addr or name}:1")


class FleetSnapshot(NamedTuple):
    """What the snapshot contains."""

    brokers: list[tuple[Registration, int]]
    lost: list[DepartedBroker]
    last_seq: int

    @property
    def positions(self) -> set[Position]:
        return {each.identity.position for each, _ in self.brokers} | {
            each.registration.identity.position for each in self.lost
        }


class RecordedFleet:
    """Brokers ``a``, ``b``, ``c`` of one core; ``now`` is monotonic time, and UTC unless the clock was set."""

    def __init__(self, history: Path) -> None:
        self.core = NameServer(
            rules=LivenessRules(), first_generation=1, started_at=0.0, guard_rules=GuardRules(enabled=False)
        )
        self.admin = Administration(self.core)
        self.now = 0.0
        self.skew = 0.0
        """How much the wall clock is ahead of the time that passed, seconds."""
        self.generations: dict[str, int] = {}
        self.events: list[tuple[Event, float, bool]] = []
        """Every event with its time and whether a maintenance window covered it."""
        self._history = history
        self._boots = 0
        self._began = 0.0
        self._run = self._next_run("")

    # --- brokers ----------------------------------------------------------------------------------------------

    def register(self, name: str, *, addr: str | None = None, incarnation: str = "") -> None:
        who = identity(name, addr)
        has = Registration(
            identity=who,
            topics={f"topic-{name}": QueueConfig(4, 4, 6)},
            data_version=DataVersion(0, 0, 1),
            incarnation=incarnation,
        )
        registered = self.core.register(has, now=self.now)
        self.generations[name] = registered.generation
        self.record(registered.events)

    def beat(self, name: str, health: Health) -> None:
        replica = self.core.replicas(broker_name=name)
        if replica:
            who = replica[0][1].identity
            version = DataVersion(0, 0, 1)
            beaten = self.core.beat(who, self.generations[name], data_version=version, health=health, now=self.now)
            self.record(beaten.events)

    def leave(self, name: str, reason: Reason) -> None:
        replica = self.core.replicas(broker_name=name)
        if replica:
            who = replica[0][1].identity
            self.record(self.core.unregister(who, self.generations[name], reason=reason, now=self.now).events)

    def maintain(self, name: str, seconds: float | None) -> None:
        key = GroupKey("c1", name)
        self.record(self.admin.set_maintenance(key, seconds=seconds, note="", by="ann", now=self.now).events)

    def wait(self, seconds: float) -> None:
        """Let time pass, with sweeps as a server makes them."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + max(0.5, self.core.sweep_interval()))
            self.record(self.core.sweep(now=self.now))

    def record(self, events: tuple[Event, ...]) -> None:
        for event in events:
            covered = event.broker is not None and self.core.maintenance.covers(
                event.broker.identity.group_key, now=self.now
            )
            self.events.append((event, self.now, covered))
            self._run.add(event, uptime=self.now - self._began)

    # --- runs of the name server ------------------------------------------------------------------------------

    def restart(self) -> None:
        """End the run, of which the core notices nothing; the next one begins in the same moment."""
        self._run.close(packed=self._boots % 2 == 0)
        self._run = self._next_run(self._run.boot_id)

    def _next_run(self, previous: str) -> PastRun:
        self._boots += 1
        self._began = self.now
        # Their names are in no order.
        return PastRun(self._history, f"{self._boots * 7919 % 1000:03}", began=self.utc(), previous=previous)

    @property
    def last_seq(self) -> int:
        """The number of the last row of this run."""
        return self._run.last_seq

    def snapshot(self) -> FleetSnapshot:
        """The snapshot of this moment."""
        held = [(replace(r.registration, health=health_to_keep(r)), r.generation) for _, r in self.core.members()]
        return FleetSnapshot(held, self.core.departed.all(), self.last_seq)

    def utc(self) -> datetime:
        return UTC_ZERO + timedelta(seconds=self.now + self.skew)

    def earlier(self) -> list[LastEvent]:
        """End the run, and read all rows back as a start at this moment does; the newest first."""
        self._run.close()
        question = question_about(
            self._history, started_at=self.utc().timestamp(), previous_boot_id=self._run.boot_id, max_rows=10**6
        )
        reading = NewestRows(question, clock=ManualClock())
        found = [(run, age, json.loads(line)) for run, age, line in reading.read()]
        assert reading.done.ended_by == "start"
        records = [(to_record(row, run=run), age) for run, age, row in found]
        return [LastEvent(record.event, self.now - age / 1000, record.order) for record, age in records]


def restarted(
    fleet: RecordedFleet, snapshot: FleetSnapshot, *, knows_place: bool = True, lost_rows: int = 0
) -> tuple[NameServer, dict[Position, LastEvent]]:
    """Start from a snapshot and the history of a fleet; return the core and the last event of each position.

    ``knows_place``: whether the snapshot says which rows it contains; ``lost_rows``: last ones not on the disk.
    """
    core = NameServer(
        rules=LivenessRules(), first_generation=10**6, started_at=fleet.now, guard_rules=GuardRules(enabled=False)
    )
    for registration, generation in snapshot.brokers:
        core.restore(registration, generation, now=fleet.now)
    for each in snapshot.lost:
        core.absences.restore(each, now=fleet.now)
    last: dict[Position, LastEvent] = {}
    for known in fleet.earlier()[lost_rows:]:
        if known.event.broker is not None:
            last.setdefault(known.broker.identity.position, known)
    for position, known in sorted(last.items(), key=lambda item: item[1].at):
        knows = knows_place and position in snapshot.positions
        is_younger = known.order > (-1, snapshot.last_seq) if knows else None
        apply_last_event(core, known, is_younger=is_younger, now=fleet.now)
    return core, last
