"""The name server's responses to brokers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.group import MemberView
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion


class BeatStatus(StrEnum):
    """What the agent has to do after a heartbeat."""

    OK = "OK"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    STALE_GENERATION = "STALE_GENERATION"
    TOPICS_OUT_OF_DATE = "TOPICS_OUT_OF_DATE"


class UnregisterStatus(StrEnum):
    """Result of an unregistration."""

    UNREGISTERED = "UNREGISTERED"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    STALE_GENERATION = "STALE_GENERATION"


class StatsStatus(StrEnum):
    """Result of a report of queue statistics."""

    RECORDED = "RECORDED"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    STALE_GENERATION = "STALE_GENERATION"


@dataclass(frozen=True, slots=True)
class Registered:
    """Response to an accepted registration."""

    generation: int
    view: MemberView
    events: tuple[Event, ...]
    superseded: tuple[BrokerIdentity, ...] = ()
    """Registrations of the same address under other names, which it ended."""


@dataclass(frozen=True, slots=True)
class TopicsUpdated:
    """Response to an accepted delta."""

    topic_count: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """Response to a heartbeat."""

    status: BeatStatus
    view: MemberView = MemberView()
    holder_addr: str = ""
    held_data_version: DataVersion | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterResponse:
    """Response to an unregistration."""

    status: UnregisterStatus
    holder_addr: str = ""
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class StatsResponse:
    """Response to a report of queue statistics."""

    status: StatsStatus
    holder_addr: str = ""
    events: tuple[Event, ...] = ()
