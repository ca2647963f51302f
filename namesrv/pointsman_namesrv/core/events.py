"""Events of the core: frozen facts, with the names that the history uses (design, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, QueueConfig, Reason
from pointsman_namesrv.core.replica_state import ReplicaState


class EventKind(StrEnum):
    """Kinds of history events."""

    NAMESRV_STARTED = "NAMESRV_STARTED"
    NAMESRV_READY = "NAMESRV_READY"
    NAMESRV_DRAINING = "NAMESRV_DRAINING"
    NAMESRV_PAUSED = "NAMESRV_PAUSED"
    NAMESRV_STOPPED = "NAMESRV_STOPPED"
    NAMESRV_ALIVE = "NAMESRV_ALIVE"
    REGISTERED = "REGISTERED"
    REREGISTERED = "REREGISTERED"
    ROLE_CHANGED = "ROLE_CHANGED"
    ADDRESS_CHANGED = "ADDRESS_CHANGED"
    RESTARTED = "RESTARTED"
    REJECTED = "REJECTED"
    ADDRESS_CONFLICT = "ADDRESS_CONFLICT"
    """Another registration has its address too, and both send heartbeats."""
    EXPIRED = "EXPIRED"
    PROBE_FAILED = "PROBE_FAILED"
    UNREGISTERED = "UNREGISTERED"
    PROTECTED = "PROTECTED"
    """Kept in the routes by the guard."""
    SUSPECTED = "SUSPECTED"
    RECOVERED = "RECOVERED"
    LATE_HEARTBEAT = "LATE_HEARTBEAT"
    HEARTBEAT = "HEARTBEAT"
    """One heartbeat; only with ``every_heartbeat``."""
    HEARTBEATS = "HEARTBEATS"
    TOPICS = "TOPICS"
    CHECKPOINT = "CHECKPOINT"
    QUEUE_STATS = "QUEUE_STATS"
    """Measurements of a broker's queues from its agent, every ten minutes."""
    KV_CHANGED = "KV_CHANGED"
    PERM_CHANGED = "PERM_CHANGED"
    TOPIC_DELETED = "TOPIC_DELETED"
    GUARD_ON = "GUARD_ON"
    GUARD_OFF = "GUARD_OFF"
    MAINTENANCE_ON = "MAINTENANCE_ON"
    MAINTENANCE_OFF = "MAINTENANCE_OFF"
    BROKER_DATA_CHANGED = "BROKER_DATA_CHANGED"
    """An operator changes what brokers hold: offsets, dead letters, messages, topics, groups."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """State of an event's broker at that moment."""

    identity: BrokerIdentity
    generation: int | None
    """None, like the next two, where an observer of another name server does not know it."""
    incarnation: str | None
    zone: str
    host: str
    broker_version: str
    data_version: DataVersion | None
    state: ReplicaState
    """After the event."""
    state_for: float | None
    """Seconds in that phase, 0 in the event that began it; None: unknown after a restart."""


@dataclass(frozen=True, slots=True)
class TopicsPayload:
    """A topic set, or a change of one. Must not be altered after it was recorded: the history's thread reads it."""

    changed: Mapping[str, QueueConfig]
    """All topics of a full set; the new and changed ones of a delta."""
    removed: tuple[str, ...] = ()
    base: DataVersion | None = None
    """The version that a delta starts from; None: a full set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. The recorder adds the place and the time."""

    kind: EventKind
    reason: Reason | None = None
    broker: BrokerFacts | None = None
    """None for events that are not about one broker."""
    group: GroupKey | None = None
    """The cluster and broker name (or empty) of an event without a broker."""
    topics: TopicsPayload | None = None
    """Only for TOPICS; the history spreads it over as many rows as it needs."""
    interval: float | None = None
    """Seconds from the broker's last heartbeat to this event."""
    detail: Mapping[str, object] = field(default_factory=dict)


RecordEvents = Callable[[tuple[Event, ...]], None]
"""Passes events to the history, the metrics and the live penalties."""
