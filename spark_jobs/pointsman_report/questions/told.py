"""What a name server told, and how long it lived, as a question about one topic reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

Group = tuple[str, str]
"""A cluster and a broker name."""
Queues = tuple[int, int, int]
"""Read queues, write queues, permission."""

NOT_ROUTED = frozenset({"OUT", "GONE"})
"""States of a replica that is registered with a failing probe, and of one that left."""

SILENT_AFTER = timedelta(seconds=150)
"""A name server writes a row a minute."""


@dataclass(frozen=True, slots=True)
class Set:
    """What a TOPICS row says of the one topic."""

    part: int
    parts: int
    full: bool
    base: str | None
    queues: Queues | None
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One row of history."""

    at: datetime
    event: str
    node: str
    boot_id: str
    seq: int
    reason: str | None = None
    cluster: str | None = None
    broker_name: str | None = None
    broker_id: int | None = None
    broker_addr: str | None = None
    incarnation: str | None = None
    data_version: str | None = None
    interval_ms: int | None = None
    state: str | None = None
    since_ms: int | None = None
    planned: bool | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    set: Set | None = None

    @property
    def group(self) -> Group:
        return self.cluster or "", self.broker_name or ""

    @property
    def is_routed(self) -> bool:
        """Whether the replica that the row is about is in the routes."""
        return self.state not in NOT_ROUTED

    @property
    def state_since(self) -> datetime | None:
        """Since when the replica is in this state; None where a restart of the name server forgot it."""
        return None if self.since_ms is None else self.at - timedelta(milliseconds=self.since_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of one name server, as far as the rows up to a moment show it."""

    node: str
    boot_id: str
    first_at: datetime
    last_at: datetime
    """Of the rows up to that moment."""
    goes_on: bool
    """Whether it wrote a row after it."""
    missing: int = 0
    """Rows up to that moment that were numbered and are not there."""
    started_at: datetime | None = None
    ready_at: datetime | None = None
    draining_at: datetime | None = None
    stopped_at: datetime | None = None

    def watched(self, at: datetime) -> bool:
        """Whether it answered at that moment."""
        if self.first_at > at or (self.stopped_at is not None and self.stopped_at <= at):
            return False
        return self.goes_on or at - self.last_at <= SILENT_AFTER

    def state(self, at: datetime) -> str:
        """WARMING, READY or DRAINING."""
        if self.started_at is not None and (self.ready_at is None or self.ready_at > at):
            return "WARMING"
        return "DRAINING" if self.draining_at is not None and self.draining_at <= at else "READY"


@dataclass(frozen=True, slots=True)
class Story:
    """What was told of a topic."""

    lives: list[Life]
    rows: list[Told]
    """By time, and each life's in its own order."""
    last_row_at: datetime | None
    """Of all rows that were read, about whomever; None where there were none."""
