"""Why the route of a topic was what it was: who had left, why, who saw it, and when clients could know."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import functions as F

from pointsman_report.questions.past_route import ROUTE, RouteAnswer, rfc3339, route_of, said_at
from pointsman_report.questions.route_events import (
    POLLING_CLIENTS,
    WATCHING_CLIENTS,
    Departure,
    Happening,
    departures,
    happenings,
)
from pointsman_report.questions.topic_history import Source, days_before, moment_of, told_of
from pointsman_report.report.formatting import printable

LOOKS_BACK = timedelta(hours=24)
LOOKS_ON = timedelta(hours=1)
"""So long a time after the moment a broker may come back in the answer, at least."""
MOST_LINES = 40
"""Of the timeline that a person reads; a program gets all."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Outages of several brokers at once, as the nightly report found them."""

    incident_id: str
    cluster: str
    scope: str
    scope_name: str
    from_at: datetime
    back_at: datetime | None
    brokers: int


@dataclass(frozen=True, slots=True)
class ExplainAnswer:
    """The route at a moment, and what had led to it."""

    route: RouteAnswer
    departures: tuple[Departure, ...]
    happenings: tuple[Happening, ...]
    incidents: tuple[Incident, ...]

    @property
    def missing(self) -> tuple[Departure, ...]:
        """Who was out of the routes at the moment."""
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
                for one in self.happenings
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
            lines.append("Nobody who had the topic had left in the 24 hours before.")
        elif self.departures:
            lines.append("Who had left in the 24 hours before, the newest last:")
            for one in self.departures[-MOST_LINES:]:
                lines += _departure_lines(one, self.route.at, zone)
        told = sorted(
            [
                *((one.at, _happening_line(one, zone)) for one in self.happenings),
                *((one.from_at, _incident_line(one, zone)) for one in self.incidents),
            ]
        )
        if told:
            lines += ["", "What else happened, the newest last:"]
            if len(told) > MOST_LINES:
                lines.append(f"  ({len(told) - MOST_LINES} earlier lines are left out)")
            lines += [line for _, line in told[-MOST_LINES:]]
        return "\n".join(lines)


def explain(source: Source, topic: str, at: datetime, *, cluster: str | None) -> ExplainAnswer:
    """Answer from the rows of the moment's day and of the day before."""
    at = at.astimezone(UTC)
    first_day, _ = days_before(at)
    last_day = (at + LOOKS_ON).date()
    until = datetime(last_day.year, last_day.month, last_day.day, tzinfo=UTC) + timedelta(days=1)
    events, windows = source.events(first_day, last_day), source.windows(first_day, last_day)
    story = told_of(events, topic, at=at, until=until, cluster=cluster, windows=windows)
    route = route_of(story, topic, at, cluster=cluster, of_warehouse=source.is_warehouse)
    clusters = {broker.group[0] for broker in route.brokers}
    since = at - LOOKS_BACK
    return ExplainAnswer(
        route,
        departures(story, since=since, at=at),
        happenings(story, topic, since=since, at=at),
        _incidents(source, clusters, since=since, at=at),
    )


def _incidents(source: Source, clusters: set[str], *, since: datetime, at: datetime) -> tuple[Incident, ...]:
    table = source.incidents(*days_before(at))
    if table is None or not clusters:
        return ()
    near = table.filter(F.col("cluster").isin(*clusters) & F.col("from_at").between(F.lit(since), F.lit(at)))
    rows = near.orderBy("from_at", "incident_id").select(
        "incident_id",
        "cluster",
        "scope",
        "scope_name",
        F.unix_micros("from_at").alias("from_at"),
        F.unix_micros("back_at").alias("back_at"),
        "brokers",
    )
    found = [row.asDict() for row in rows.collect()]
    return tuple(
        Incident(**{**row, "from_at": moment_of(row["from_at"]), "back_at": moment_of(row["back_at"])}) for row in found
    )


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
                "node": sighting.node,
                "at": rfc3339(sighting.at),
                "event": sighting.event,
                "reason": sighting.reason,
                "last_heard_at": rfc3339(sighting.last_heard_at),
                "back_at": rfc3339(sighting.back_at),
            }
            for sighting in one.sightings
        ],
    }


def _departure_lines(one: Departure, at: datetime, zone: ZoneInfo) -> list[str]:
    first = one.sightings[0]
    why = f"{first.event}, {first.reason}" if first.reason else first.event
    heard = "" if one.last_heard_at is None else f", last heard {said_at(one.last_heard_at, zone)}"
    back = "not back yet" if one.back_at is None else f"back {said_at(one.back_at, zone)}"
    then = " (out at that moment)" if one.lasted_at(at) else ""
    name = printable(f"{'/'.join(one.group)}/{one.broker_id} ({one.addr or '?'})")
    seen = ", ".join(f"{printable(sighting.node)} at {said_at(sighting.at, zone)}" for sighting in one.sightings)
    polled = said_at(one.last_at + POLLING_CLIENTS, zone)
    late = "" if one.last_at - one.at < WATCHING_CLIENTS else f" to {said_at(one.last_at, zone)}"
    return [
        f"  {said_at(one.at, zone)}  {name}: {why}{heard}; {back}{then}",
        f"      seen by {seen}",
        f"      watching clients within a second of {said_at(one.at, zone)}{late}, polling clients by {polled}",
    ]


def _happening_line(one: Happening, zone: ZoneInfo) -> str:
    about = "/".join(part for part in one.group if part)
    if one.broker_id is not None:
        about += f"/{one.broker_id}"
    about = printable(about) + ": " if about else ""
    nodes = ", ".join(map(printable, one.nodes))
    return f"  {said_at(one.at, zone)}  {about}{printable(one.what)}, said {nodes}"


def _incident_line(one: Incident, zone: ZoneInfo) -> str:
    back = "not over that day" if one.back_at is None else f"over {said_at(one.back_at, zone)}"
    where = printable(f"{one.scope} {one.scope_name}")
    return (
        f"  {said_at(one.from_at, zone)}  incident {one.incident_id}: {one.brokers} brokers of {where} at once, {back}"
    )
