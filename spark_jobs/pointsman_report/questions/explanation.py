"""``explain``: brokers missing from a topic's route, why, which name servers saw it, and when clients could know."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pointsman.history.past_route import ROUTE, RouteResult, format_time, rfc3339, route_of
from pointsman.history.topic_selection import TopicQuestion, days_before
from pointsman.names import printable
from pointsman_report.io.past import Past
from pointsman_report.questions.route_events import (
    POLLING_CLIENTS,
    WATCHING_CLIENTS,
    Departure,
    TimelineEvent,
    departures,
    timeline_events,
)
from pointsman_report.questions.topic_questions import read_topic_history

LOOKBACK = timedelta(hours=24)
LOOKAHEAD = timedelta(hours=1)
"""Rows up to at least this long after the moment are read, for the time of a recovery."""
MAX_LINES = 40
"""Limit of the timeline as text; JSON has all."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident from the nightly report."""

    incident_id: str
    cluster: str
    scope: str
    scope_name: str
    from_at: datetime
    back_at: datetime | None
    brokers: int


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """The route at a moment, and the events before it."""

    route: RouteResult
    departures: tuple[Departure, ...]
    timeline_events: tuple[TimelineEvent, ...]
    incidents: tuple[Incident, ...]

    @property
    def missing(self) -> tuple[Departure, ...]:
        """Brokers that were not routed at the moment."""
        return tuple(one for one in self.departures if one.lasted_at(self.route.at))

    @property
    def exit_code(self) -> int:
        return 1 if self.route.exit_code or any(not one.is_planned for one in self.missing) else 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "route": self.route.as_dict(),
            "departures": [_departure_as_dict(one, self.route.at) for one in self.departures],
            "happenings": [
                {
                    "at": rfc3339(one.at),
                    "event": one.event,
                    "reason": one.reason,
                    "cluster": one.group[0] or None,
                    "broker_name": one.group[1] or None,
                    "broker_id": one.broker_id,
                    "what": one.what,
                    "nodes": list(one.nodes),
                }
                for one in self.timeline_events
            ],
            "incidents": [
                {
                    "incident_id": one.incident_id,
                    "cluster": one.cluster,
                    "scope": one.scope,
                    "scope_name": one.scope_name,
                    "from_at": rfc3339(one.from_at),
                    "back_at": rfc3339(one.back_at),
                    "brokers": one.brokers,
                }
                for one in self.incidents
            ],
        }

    def text(self, zone: ZoneInfo) -> str:
        lines = [self.route.text(zone), ""]
        if self.route.outcome == ROUTE and not self.departures:
            lines.append("No broker of this topic left in the last 24 hours.")
        elif self.departures:
            lines.append("Brokers that left in the last 24 hours, the newest last:")
            for one in self.departures[-MAX_LINES:]:
                lines += _departure_lines(one, self.route.at, zone)
        events = sorted(
            [
                *((one.at, _event_line(one, zone)) for one in self.timeline_events),
                *((one.from_at, _incident_line(one, zone)) for one in self.incidents),
            ]
        )
        if events:
            lines += ["", "Other events, the newest last:"]
            if len(events) > MAX_LINES:
                lines.append(f"  ({len(events) - MAX_LINES} earlier events are omitted)")
            lines += [line for _, line in events[-MAX_LINES:]]
        return "\n".join(lines)


def explain(past: Past, topic: str, at: datetime, *, cluster: str | None) -> ExplainResult:
    """Compute the result from the rows of the moment's day and of the day before, and the hour after it."""
    at = at.astimezone(UTC)
    first_day, _ = days_before(at)
    question = TopicQuestion(topic, at, first_day, (at + LOOKAHEAD).date(), cluster)
    history = read_topic_history(past, question)
    route = route_of(history, topic, at, cluster=cluster)
    clusters = {broker.group[0] for broker in route.brokers}
    since = at - LOOKBACK
    return ExplainResult(
        replace(route, of_tables=past.has_tables, of_files=past.has_files),
        departures(history, since=since, at=at),
        timeline_events(history, topic, since=since, at=at),
        _incidents(past, clusters, since=since, at=at),
    )


def _incidents(past: Past, clusters: set[str], *, since: datetime, at: datetime) -> tuple[Incident, ...]:
    if not clusters:
        return ()
    first_day, last_day = days_before(at)
    columns = [field.name for field in fields(Incident)]
    rows = past.rows("incidents", columns, first_day=first_day, last_day=last_day, where={"cluster": clusters})
    found = [Incident(**row) for row in rows if since <= row["from_at"] <= at]
    return tuple(sorted(found, key=lambda one: (one.from_at, one.incident_id)))


def _departure_as_dict(one: Departure, at: datetime) -> dict[str, Any]:
    cluster, name = one.group
    return {
        "cluster": cluster,
        "broker_name": name,
        "broker_id": one.broker_id,
        "addr": one.addr,
        "at": rfc3339(one.at),
        "planned": one.is_planned,
        "last_heard_at": rfc3339(one.last_heard_at),
        "back_at": rfc3339(one.back_at),
        "missing_then": one.lasted_at(at),
        "clients_could_know": {
            "watching_from": rfc3339(one.at),
            "watching_by": rfc3339(one.last_at + WATCHING_CLIENTS),
            "polling_by": rfc3339(one.last_at + POLLING_CLIENTS),
        },
        "seen_by": [
            {
                "node": view.node,
                "at": rfc3339(view.at),
                "event": view.event,
                "reason": view.reason,
                "last_heard_at": rfc3339(view.last_heard_at),
                "back_at": rfc3339(view.back_at),
            }
            for view in one.observations
        ],
    }


def _departure_lines(one: Departure, at: datetime, zone: ZoneInfo) -> list[str]:
    first = one.observations[0]
    why = f"{first.event}, {first.reason}" if first.reason else first.event
    silent = "" if one.last_heard_at is None else f", last heartbeat {format_time(one.last_heard_at, zone)}"
    back = "not recovered yet" if one.back_at is None else f"recovered {format_time(one.back_at, zone)}"
    then = " (not routed at that moment)" if one.lasted_at(at) else ""
    name = printable(f"{'/'.join(one.group)}/{one.broker_id} ({one.addr or '?'})")
    seen = ", ".join(f"{printable(view.node)} at {format_time(view.at, zone)}" for view in one.observations)
    polled = format_time(one.last_at + POLLING_CLIENTS, zone)
    late = "" if one.last_at - one.at < WATCHING_CLIENTS else f" to {format_time(one.last_at, zone)}"
    return [
        f"  {format_time(one.at, zone)}  {name}: {why}{silent}; {back}{then}",
        f"      seen by {seen}",
        f"      watching clients: within a second of {format_time(one.at, zone)}{late}; polling clients: by {polled}",
    ]


def _event_line(one: TimelineEvent, zone: ZoneInfo) -> str:
    about = "/".join(part for part in one.group if part)
    if one.broker_id is not None:
        about += f"/{one.broker_id}"
    about = printable(about) + ": " if about else ""
    nodes = ", ".join(map(printable, one.nodes))
    return f"  {format_time(one.at, zone)}  {about}{printable(one.what)}, recorded by {nodes}"


def _incident_line(one: Incident, zone: ZoneInfo) -> str:
    back = "not recovered on that day" if one.back_at is None else f"recovered {format_time(one.back_at, zone)}"
    where = printable(f"{one.scope} {one.scope_name}")
    return (
        f"  {format_time(one.from_at, zone)}  incident {one.incident_id}: {one.brokers} brokers of {where} down at the "
        f"same time, {back}"
    )
