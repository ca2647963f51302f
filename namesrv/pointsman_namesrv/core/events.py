"""What happened, as the core tells it: frozen facts, named as they stand in the history (design, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, QueueConfig

if TYPE_CHECKING:
    from pointsman_namesrv.core.replica_state import ReplicaState


class EventKind(StrEnum):
    """Every event of the history."""

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
    EXPIRED = "EXPIRED"
    PROBE_FAILED = "PROBE_FAILED"
    UNREGISTERED = "UNREGISTERED"
    PROTECTED = "PROTECTED"
    """Kept in the routes by the guard."""
    SUSPECTED = "SUSPECTED"
    RECOVERED = "RECOVERED"
    LATE_HEARTBEAT = "LATE_HEARTBEAT"
    HEARTBEAT = "HEARTBEAT"
    """One beat; only with ``every_heartbeat``."""
    HEARTBEATS = "HEARTBEATS"
    TOPICS = "TOPICS"
    CHECKPOINT = "CHECKPOINT"
    QUEUE_STATS = "QUEUE_STATS"
    """What the broker's agent measured of its queues, each ten minutes."""
    KV_CHANGED = "KV_CHANGED"
    PERM_CHANGED = "PERM_CHANGED"
    TOPIC_DELETED = "TOPIC_DELETED"
    GUARD_ON = "GUARD_ON"
    GUARD_OFF = "GUARD_OFF"
    MAINTENANCE_ON = "MAINTENANCE_ON"
    MAINTENANCE_OFF = "MAINTENANCE_OFF"


class Reason(StrEnum):
    """Why it happened."""

    SILENCE = "SILENCE"
    STREAM_BROKEN = "STREAM_BROKEN"
    PROBE = "PROBE"
    """The probe fails on weak evidence, or passes again."""
    REFUSED = "REFUSED"
    """The probe fails on strong evidence: the broker itself refuses to serve."""
    HEARTBEAT = "HEARTBEAT"
    STATE_VERSION = "STATE_VERSION"
    SHUTDOWN = "SHUTDOWN"
    DRAIN = "DRAIN"
    REMOVED_FROM_CONFIG = "REMOVED_FROM_CONFIG"
    SUPERSEDED = "SUPERSEDED"
    ADMIN = "ADMIN"
    """An operator asked; the detail says who."""
    SNAPSHOT = "SNAPSHOT"
    """Known from the snapshot, and now heard."""
    SHARE = "SHARE"
    """The guard: too many of a cluster are lost at once, or no longer."""
    LIMIT = "LIMIT"
    """The guard has been on for longer than its limit: somebody must look."""
    TIME_OVER = "TIME_OVER"
    """What was set for a time is over."""
    INCARNATION = "INCARNATION"
    """The broker's next process ended what was set for the last one."""
    DATA_VERSION = "DATA_VERSION"
    """Another version of its topics ended what was set for the last one: so it is for RocketMQ's own brokers."""
    DAY = "DAY"
    """The first rows of a day."""
    START = "START"
    """The first rows of a process."""
    DROPPED = "DROPPED"
    """Rows of the history were lost before."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The broker of an event, as it was at that moment."""

    identity: BrokerIdentity
    generation: int | None
    """None, as the next two: an observer of another name server does not know it."""
    incarnation: str | None
    zone: str
    host: str
    broker_version: str
    data_version: DataVersion | None
    state: ReplicaState
    """After the event."""
    state_for: float | None
    """Seconds in that phase, 0 in the event that began it; None: a restart forgot it."""


@dataclass(frozen=True, slots=True)
class TopicsPayload:
    """A topic set, or a change of one. Never altered after it was handed on: the history's thread reads it."""

    changed: Mapping[str, QueueConfig]
    """All topics of a full set; the new and different ones of a delta."""
    removed: tuple[str, ...] = ()
    base: DataVersion | None = None
    """The version that a delta starts from; None: a full set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. The shells add when and where."""

    kind: EventKind
    reason: Reason | None = None
    broker: BrokerFacts | None = None
    """None for events that are not about one broker."""
    group: GroupKey | None = None
    """Without a broker: the cluster and broker name (or empty) that the event is about."""
    topics: TopicsPayload | None = None
    """With TOPICS alone; the history spreads it over as many rows as it needs."""
    interval: float | None = None
    """Seconds since the broker's last sign of life before this event."""
    detail: Mapping[str, object] = field(default_factory=dict)


RecordEvents = Callable[[tuple[Event, ...]], None]
"""Hands events on to the history, the metrics and the live penalties."""
