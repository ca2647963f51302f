"""The real core, driven at random, with its history kept as rows and its routes noted after every call."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pointsman.wire.refusals import Refusal
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.broker_events import full_checkpoint_events
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardRules
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.history.row import Record, row_count, to_rows
from pointsman_namesrv.snapshot.keeper import health_to_keep
from tests.spark.histories import moment

TOPICS = ("t1", "t2", "t3")
Offered = dict[tuple[str, str], tuple[object, ...]]


@dataclass
class RecordedCore:
    """One node; a restart with its snapshot begins another boot."""

    rng: random.Random
    guard: bool = False
    now: float = 1_000.0
    boots: int = 0
    seq: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    noted: list[tuple[datetime, Offered]] = field(default_factory=list)
    """The core's route of the first topic from that moment on."""

    def __post_init__(self) -> None:
        self.begin()
        self.record([Event(kind=EventKind.NAMESRV_READY)])

    def begin(self) -> None:
        self.boots, self.seq = self.boots + 1, 0
        rules = GuardRules(enabled=self.guard, share=0.5, at_least=2)
        generation = 1_000 * self.boots
        self.core = NameServer(
            rules=LivenessRules(), first_generation=generation, started_at=self.now, guard_rules=rules
        )

    @property
    def at(self) -> datetime:
        return moment(self.now)

    def record(self, events: Iterable[Event]) -> None:
        for event in events:
            rows = row_count(event)
            record = Record(event, self.at, round(self.now * 1_000), self.seq + 1, rows)
            self.rows += to_rows(record, node="ns1:9876", boot_id=f"b{self.boots}")
            self.seq += rows

    def offered(self) -> Offered:
        try:
            route = self.core.routes.route(TOPICS[0])
        except Refusal:
            return {}
        groups = {group.key: group for group in route.groups}
        return {
            (key.cluster, key.broker_name): (
                tuple(queues[:3]),
                *((one.identity.broker_id, one.identity.addr) for one in groups[key].routed()),
            )
            for key, queues in route.queues
        }

    def live(self, steps: int) -> None:
        """Make this number of random calls."""
        calls = (
            (self.register, 6),
            (self.register_again, 4),
            (self.beat, 8),
            (self.update, 3),
            (self.leave, 2),
            (self.pass_time, 4),
            (self.wipe, 1),
            (self.delete, 2),
            (self.announce, 1),
            (self.begin_day, 1),
            (self.restart, 1),
        )
        for _ in range(steps):
            self.now += self.rng.choice((0.001, 0.5, 10.0))
            self.rng.choices([call for call, _ in calls], [weight for _, weight in calls])[0]()
            self.noted.append((self.at, self.offered()))

    # --- calls --------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, QueueConfig]:
        rng = self.rng
        return {
            topic: QueueConfig(rng.randint(1, 3), 4, rng.choice((4, 6, 6))) for topic in TOPICS if rng.random() < 0.7
        }

    def register(self) -> None:
        rng = self.rng
        identity = BrokerIdentity(
            "c1", rng.choice("ab"), rng.choice((0, 0, 1, 2)), rng.choice(("h1:1", "h2:1", "h3:1"))
        )
        self.claim(
            Registration(
                identity=identity,
                topics=self.topics(),
                data_version=self.version(),
                incarnation=rng.choice(("", "i1", "i2")),
                health=self.health(),
            )
        )

    def register_again(self) -> None:
        """A registration of a running broker with one change."""
        living = self.living()
        if living is not None:
            changes: tuple[dict[str, Any], ...] = (
                {},
                {"health": self.health()},
                {"incarnation": "i3"},
                {"data_version": self.version()},
                {"data_version": self.version(), "topics": self.topics()},
            )
            self.claim(replace(living.registration, **self.rng.choice(changes)))

    def claim(self, registration: Registration) -> None:
        try:
            self.record(self.core.register(registration, now=self.now).events)
        except Refusal:
            return

    def beat(self) -> None:
        living = self.living()
        if living is not None:
            version = living.registration.data_version
            answer = self.core.beat(
                living.identity, living.generation, data_version=version, health=self.health(), now=self.now
            )
            self.record(answer.events)

    def update(self) -> None:
        living = self.living()
        if living is not None:
            held = living.registration
            gone = [topic for topic in held.topics if self.rng.random() < 0.3]
            changed = {topic: queues for topic, queues in self.topics().items() if topic not in gone}
            updated = self.core.update_topics(
                living.identity,
                living.generation,
                base=held.data_version,
                data_version=self.version(),
                changed=changed,
                removed=gone,
                max_topics=99,
                now=self.now,
            )
            self.record(updated.events)

    def leave(self) -> None:
        living = self.living()
        if living is not None:
            reason = self.rng.choice((Reason.SHUTDOWN, Reason.DRAIN))
            self.record(self.core.unregister(living.identity, living.generation, reason=reason, now=self.now).events)

    def pass_time(self) -> None:
        self.now += self.rng.choice((30.0, 76.0, 121.0))
        self.record(self.core.sweep(now=self.now))

    def wipe(self) -> None:
        key = GroupKey("c1", self.rng.choice("ab"))
        try:
            change = Administration(self.core).set_write_perm(key, writable=self.rng.random() < 0.3, by="ops")
        except Refusal:
            return
        self.record(change.events)

    def delete(self) -> None:
        try:
            topic = self.rng.choice(TOPICS)
            deletion = Administration(self.core).delete_topic(topic, cluster="", force=True, by="ops", now=self.now)
        except Refusal:
            return
        self.record(deletion.events)

    def announce(self) -> None:
        key = GroupKey("c1", self.rng.choice(("", "a", "b")))
        seconds = self.rng.choice((None, 60.0, 300.0))
        administration = Administration(self.core)
        self.record(administration.set_maintenance(key, seconds=seconds, note="", by="ops", now=self.now).events)

    def begin_day(self, reason: Reason = Reason.DAY) -> None:
        replicas = self.core.replicas()
        for number, (group, replica) in enumerate(replicas, 1):
            writable = group.key not in self.core.overrides.wipes
            self.record(
                full_checkpoint_events(
                    group, replica, reason, number=number, of=len(replicas), writable=writable, now=self.now
                )
            )

    def restart(self) -> None:
        """With a snapshot of the last moment; one without any broker would leave no trace in the rows."""
        before = self.core
        if self.living() is None:
            return
        self.record([Event(kind=EventKind.NAMESRV_STOPPED)])
        self.now += self.rng.choice((0.5, 20.0))
        self.begin()
        for _, replica in before.replicas():
            held = replace(replica.registration, health=health_to_keep(replica))
            self.core.restore(held, replica.generation, now=self.now)
        self.core.routes.restore_overrides(before.overrides.wipes, before.overrides.tombstones)
        self.record([Event(kind=EventKind.NAMESRV_STARTED)])
        if self.core.provisional_count():
            self.begin_day(Reason.START)
        self.record([Event(kind=EventKind.NAMESRV_READY)])

    def living(self) -> Any:
        replicas = [replica for _, replica in self.core.replicas()]
        return self.rng.choice(replicas) if replicas else None

    def version(self) -> DataVersion:
        return DataVersion(0, 0, self.rng.randint(1, 3))

    def health(self) -> Health:
        verdicts = (ProbeVerdict.UNKNOWN, ProbeVerdict.PASSING, ProbeVerdict.PASSING, ProbeVerdict.FAILING)
        return Health(self.rng.choice(verdicts))
