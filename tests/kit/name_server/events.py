"""Events as the core would make them, for what comes after the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind, TopicsPayload
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, QueueConfig, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState

QUEUES = QueueConfig(4, 8, 6, 0)
GONE = {EventKind.EXPIRED, EventKind.UNREGISTERED}


def facts(name: str = "a", cluster: str = "c1") -> BrokerFacts:
    identity = BrokerIdentity(cluster, name, 0, "h:1")
    return BrokerFacts(identity, 2**64 - 1, "r1", "z1", "h1", "5.3", DataVersion(1, 2, 3), UP, 12.5)


def broker_event(
    kind: EventKind = EventKind.REGISTERED,
    name: str = "a",
    *,
    cluster: str = "c1",
    reason: Reason | None = None,
    detail: Mapping[str, object] | None = None,
) -> Event:
    """An event of a broker that is UP for 12.5 s, or GONE with it."""
    broker = facts(name, cluster)
    if kind in GONE:
        broker = replace(broker, state=ReplicaState(Phase.GONE, reason), state_for=0.0)
    return Event(kind=kind, reason=reason, broker=broker, interval=1.2345, detail={"topics": 3, **(detail or {})})


def topics_event(
    topics: Mapping[str, QueueConfig] | int, *, removed: tuple[str, ...] = (), base: DataVersion | None = None
) -> Event:
    """A TOPICS event of these topics, or of this number of topics."""
    changed = {f"t{n}": QUEUES for n in range(topics)} if isinstance(topics, int) else topics
    return Event(kind=EventKind.TOPICS, broker=facts(), topics=TopicsPayload(changed, removed, base))
