"""What happened, as the core tells it: frozen facts, named as they stand in the history (design, section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from namesrv.core.model import BrokerIdentity, DataVersion


class EventKind(StrEnum):
    """The events that exist so far."""

    NAMESRV_STARTED = "NAMESRV_STARTED"
    NAMESRV_READY = "NAMESRV_READY"
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
    SUSPECTED = "SUSPECTED"
    RECOVERED = "RECOVERED"
    LATE_HEARTBEAT = "LATE_HEARTBEAT"


class Reason(StrEnum):
    """Why it happened."""

    SILENCE = "SILENCE"
    STREAM_BROKEN = "STREAM_BROKEN"
    PROBE = "PROBE"
    HEARTBEAT = "HEARTBEAT"
    STATE_VERSION = "STATE_VERSION"
    SHUTDOWN = "SHUTDOWN"
    DRAIN = "DRAIN"
    REMOVED_FROM_CONFIG = "REMOVED_FROM_CONFIG"
    SUPERSEDED = "SUPERSEDED"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The broker of an event, as it was at that moment."""

    identity: BrokerIdentity
    generation: int
    incarnation: str
    zone: str
    host: str
    broker_version: str
    data_version: DataVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. The shells add when and where."""

    kind: EventKind
    reason: Reason | None = None
    broker: BrokerFacts | None = None
    """None for events of the name server's own life."""
    interval: float | None = None
    """Seconds since the broker's last sign of life before this event."""
    detail: Mapping[str, object] = field(default_factory=dict)
