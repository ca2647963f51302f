"""The timeline of a broker name: what each event changed in the routes, and how long each outage lasted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.wire_time import seconds_of

NOT_ROUTED = frozenset({"OUT", "GONE"})
"""States in which clients are not sent to a replica."""
Position: TypeAlias = tuple[str, str, int]
"""Cluster, broker name, broker id: outages are counted by position, regardless of the address."""


@dataclass(slots=True)
class Outage:
    """A time out of the routes: from the first event with state OUT or GONE to the next with a routed state."""

    position: Position
    began_at: datetime
    is_begin_known: bool
    """False: the event before it is not available, so it may have begun earlier."""
    is_first: bool = False
    """Whether it began with a registration that did not enter the routes."""
    ended_at: datetime | None = None
    planned_seconds: float = 0.0
    """Time from its beginning to its first unplanned event."""
    is_planned: bool = True
    """Whether all of it is planned. A shutdown of a broker that is OUT does not make it planned."""
    has_new_process: bool | None = None
    """Whether a new broker process ended it; None: unknown."""
    began_with: admin.BrokerEvent | None = None
    """The first event of it."""

    @property
    def seconds(self) -> float | None:
        """Duration; None while it lasts. Never negative, even after the clock was set back."""
        return None if self.ended_at is None else max(0.0, (self.ended_at - self.began_at).total_seconds())


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event and its effect on the routes."""

    event: admin.BrokerEvent
    was_routed: bool | None
    """Before the event; None: unknown, or the event is not about one replica."""
    ended: Outage | None = None
    """The outage that it ended."""

    @property
    def is_routed(self) -> bool | None:
        """After the event; None: it is not about one replica."""
        return self.event.state not in NOT_ROUTED if self.event.state else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """All events that a name server has of a broker name."""

    events: list[TimelineEvent] = field(default_factory=list)
    """Oldest first."""
    outages: list[Outage] = field(default_factory=list)
    """Ordered by their beginning."""
    latest: dict[Position, admin.BrokerEvent] = field(default_factory=dict)
    """The last event of each replica."""

    def outage_of(self, position: Position) -> Outage | None:
        """Return the latest outage of a replica, ended or not."""
        return next((each for each in reversed(self.outages) if each.position == position), None)

    def has_departed_unplanned(self, position: Position) -> bool:
        """Whether a replica is no longer registered, unplanned."""
        event, outage = self.latest.get(position), self.outage_of(position)
        return event is not None and event.state == "GONE" and outage is not None and not outage.is_planned


def position_of(event: admin.BrokerEvent) -> Position:
    """Return the replica that an event is about."""
    return event.identity.cluster, event.identity.broker_name, event.identity.broker_id


def timeline_of(events: Sequence[admin.BrokerEvent]) -> Timeline:
    """Build the timeline from all events of one name server, oldest first."""
    timeline = Timeline()
    for event in events:
        if not event.state:
            timeline.events.append(TimelineEvent(event, None))
            continue
        position = position_of(event)
        before = timeline.latest.get(position)
        timeline.events.append(_digest(timeline, event, before))
        timeline.latest[position] = event
    return timeline


def _digest(timeline: Timeline, event: admin.BrokerEvent, before: admin.BrokerEvent | None) -> TimelineEvent:
    position, at = position_of(event), event.event_at.ToDatetime(UTC)
    was_routed = None if before is None else before.state not in NOT_ROUTED
    outage = timeline.outage_of(position)
    if outage is not None and outage.ended_at is not None:
        outage = None
    if outage is not None and outage.is_planned and before is not None:
        outage.planned_seconds += max(0.0, (at - before.event_at.ToDatetime(UTC)).total_seconds())
    if event.state in NOT_ROUTED:
        if outage is None:
            is_first = before is None and event.event == "REGISTERED"
            is_known = before is not None or is_first
            if not is_known and event.HasField("state_for"):
                # A restarted name server knows from its snapshot when a broker was lost.
                at, is_known = at - timedelta(seconds=seconds_of(event.state_for)), True
            outage = Outage(position, at, is_begin_known=is_known, is_first=is_first, began_with=event)
            timeline.outages.append(outage)
        outage.is_planned = outage.is_planned and event.planned
        return TimelineEvent(event, was_routed)
    if outage is None:
        return TimelineEvent(event, was_routed)
    outage.ended_at = at
    if before is not None and before.incarnation and event.incarnation:
        outage.has_new_process = before.incarnation != event.incarnation
    return TimelineEvent(event, was_routed, outage)
