"""A core with brokers on RocketMQ's wire, without sockets."""

from __future__ import annotations

from dataclasses import replace

from pointsman_namesrv.core.additive import AdditiveRegistrations, Claim
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, QueueConfig
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.static_topics import QueueMapping

A = BrokerIdentity("c1", "broker.a-1.example", 0, "10.0.0.1:10911")
SLAVE = BrokerIdentity("c1", "broker.a-1.example", 1, "10.0.0.2:10911")
B = BrokerIdentity("c1", "b", 0, "10.0.0.5:10911")
KEY = A.group_key
EIGHT = (8, 8, 6, 0, 1)
START = 1_000.0


class AdditiveFleet:
    """A core, and brokers without agents; ``stream`` 1 is the usual connection."""

    def __init__(self, *, max_topics: int = 1_000, max_brokers: int = 100, of_node: int = 10_000) -> None:
        self.core = NameServer(
            rules=LivenessRules(), first_generation=1, started_at=0.0, max_brokers=max_brokers, max_topics=of_node
        )
        self.word = AdditiveRegistrations(self.core, bounds=IntervalBounds(), max_topics=max_topics)
        self.now = START

    def register(
        self,
        *topics: str,
        who: BrokerIdentity = A,
        counter: int = 1,
        stamp: int | None = None,
        stream: int = 1,
        mappings: dict[str, QueueMapping] | None = None,
        unmapped: tuple[str, ...] = (),
        **said: object,
    ) -> list[str]:
        version = DataVersion(0, 1_000 + counter if stamp is None else stamp, counter)
        claim = replace(Claim(identity=who, data_version=version), **said)  # type: ignore[arg-type]  # a test's own
        incoming = self.word.begin(who)
        incoming.add({topic.partition("=")[0]: _numbers(topic) for topic in topics})
        incoming.add_mappings(mappings or {}, unmapped)
        return kinds(self.word.register(claim, incoming, stream=stream, now=self.now).events)

    def beat(self, who: BrokerIdentity = A, stream: int = 1) -> list[str] | None:
        beaten = self.word.beat(who.group_key, who.addr, None, stream=stream, now=self.now)
        return None if beaten is None else kinds(beaten.events)

    def end(self, stream: int = 1, who: BrokerIdentity = A) -> list[str]:
        return kinds(self.word.end_stream(who, stream=stream, now=self.now, by_us=False))

    def delete(self, topic: str, cluster: str = "") -> list[str]:
        admin = Administration(self.core)
        return kinds(admin.delete_topic(topic, cluster=cluster, force=True, by="ann", now=self.now).events)

    def topics(self, who: BrokerIdentity = A) -> dict[str, QueueConfig]:
        registration = self.core.registration_of(who)
        assert registration is not None
        return dict(registration.topics)

    def wait(self, seconds: float) -> list[str]:
        found, until = list[str](), self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + self.core.sweep_interval())
            found += kinds(self.core.sweep(now=self.now))
        return found

    def phase(self, who: BrokerIdentity = A) -> Phase:
        return self.core.routes.groups[who.group_key].replicas[who.broker_id].state.phase


def _numbers(topic: str) -> tuple[int, int, int, int, int]:
    queues = topic.partition("=")[2]
    return (int(queues), int(queues), 6, 0, 1) if queues else EIGHT


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [event.kind.value for event in events]
