"""What changed a route: departures of brokers, and what else bears on it.

A replica is out of the routes from the first row whose state is OUT or GONE to the first whose state is another. Rows
of several name servers about one absence are one departure: who left, why, who saw it and when, when it was back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pointsman_report.questions.topic_history import Group, Queues, Story, Told

WATCHING_CLIENTS = timedelta(seconds=1)
POLLING_CLIENTS = timedelta(seconds=30)
"""How often a client asks that does not watch (RocketMQ's poll_name_server_interval)."""
TOGETHER = timedelta(seconds=150)
"""Several name servers that tell the same within this time tell of one thing."""

_TOLD = {
    "GUARD_ON": "the expiry guard turned on",
    "GUARD_OFF": "the expiry guard turned off",
    "MAINTENANCE_ON": "an absence was announced",
    "MAINTENANCE_OFF": "an announced absence was over",
    "TOPIC_DELETED": "the topic was deleted at the name servers",
    "REJECTED": "a registration was refused",
    "RESTARTED": "the broker's process was another",
    "ADDRESS_CHANGED": "the broker's address was another",
    "ROLE_CHANGED": "the broker took another id",
    "NAMESRV_STARTED": "the name server started",
    "NAMESRV_READY": "the name server was ready",
    "NAMESRV_DRAINING": "the name server sent its clients elsewhere",
    "NAMESRV_PAUSED": "the name server itself stood still",
    "NAMESRV_STOPPED": "the name server stopped",
}
_OF_DETAIL = ("seconds", "lost", "baseline", "up", "note", "by", "previous_addr", "previous_broker_id", "claimant_addr")


@dataclass(frozen=True, slots=True)
class Sighting:
    """One name server's part of it."""

    node: str
    at: datetime
    event: str
    reason: str | None
    planned: bool
    """As this name server recorded it last."""
    last_heard_at: datetime | None
    back_at: datetime | None
    until: datetime
    """Back, or the last that this name server could say of it."""
    watched: bool
    """Whether this name server, in whichever life, watched at the moment of the question."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A replica was out of the routes for some time."""

    group: Group
    broker_id: int
    addr: str | None
    sightings: tuple[Sighting, ...]
    """By time."""

    @property
    def at(self) -> datetime:
        return self.sightings[0].at

    @property
    def last_at(self) -> datetime:
        """When the last name server saw it go."""
        return max(sighting.at for sighting in self.sightings)

    @property
    def last_heard_at(self) -> datetime | None:
        return max((one.last_heard_at for one in self.sightings if one.last_heard_at is not None), default=None)

    @property
    def back_at(self) -> datetime | None:
        """When the first name server had it back."""
        return min((one.back_at for one in self.sightings if one.back_at is not None), default=None)

    @property
    def is_planned(self) -> bool:
        return all(one.planned for one in self.sightings)

    def lasted_at(self, at: datetime) -> bool:
        """Whether it was out at that moment, to any name server that watched."""
        return any(one.watched and one.at <= at and (one.back_at is None or one.back_at > at) for one in self.sightings)


def departures(story: Story, *, since: datetime, at: datetime) -> tuple[Departure, ...]:
    """All that began between the two moments, the newest last."""
    own: dict[tuple[Group, int], list[tuple[Sighting, Told]]] = defaultdict(list)
    for node in {life.node for life in story.lives}:
        for key, sighting in _seen_by(node, story, since=since, at=at):
            own[key].append(sighting)
    found = [
        Departure(group, broker_id, together[0][1].broker_addr, tuple(sighting for sighting, _ in together))
        for (group, broker_id), seen in own.items()
        for together in _together(sorted(seen, key=lambda one: (one[0].at, one[0].node)))
    ]
    return tuple(sorted(found, key=lambda departure: (departure.at, departure.group, departure.broker_id)))


def _seen_by(
    node: str, story: Story, *, since: datetime, at: datetime
) -> Iterable[tuple[tuple[Group, int], tuple[Sighting, Told]]]:
    """What one name server saw of each replica, life after life; who was gone already does not go again."""
    lives = [life for life in story.lives if life.node == node]
    watched = any(life.watched(at) for life in lives)
    own = _told_by(node, story.rows)
    gone: dict[tuple[Group, int], tuple[Told, Told]] = {}
    for row in own:
        if row.broker_id is None or row.state is None:
            continue
        key = (row.group, row.broker_id)
        if not row.is_routed:
            went, _ = gone.get(key, (row, row))
            gone[key] = (went, row)
        elif key in gone:
            went, last = gone.pop(key)
            if since <= went.at <= at:
                yield key, (_sighting(went, last, row.at, row.at, watched=watched), went)
    # A living name server writes rows that are not among these.
    moments = [*(life.last_at for life in lives), *(row.at for row in own)]
    end = max([*moments, at] if watched else moments)
    for key, (went, last) in gone.items():
        if since <= went.at <= at:
            yield key, (_sighting(went, last, None, end, watched=watched), went)


def _told_by(node: str, rows: list[Told]) -> list[Told]:
    """A name server's rows, each life's in its own order."""
    lives: dict[str, list[Told]] = defaultdict(list)
    for row in rows:
        if row.node == node:
            lives[row.boot_id].append(row)
    return [row for own in lives.values() for row in sorted(own, key=lambda row: row.seq)]


def _sighting(went: Told, last: Told, back_at: datetime | None, until: datetime, *, watched: bool) -> Sighting:
    heard = None if went.interval_ms is None else went.at - timedelta(milliseconds=went.interval_ms)
    return Sighting(went.node, went.at, went.event, went.reason, bool(last.planned), heard, back_at, until, watched)


def _together(seen: list[tuple[Sighting, Told]]) -> Iterable[list[tuple[Sighting, Told]]]:
    """Sightings of one replica that overlap are one departure."""
    together: list[tuple[Sighting, Told]] = []
    for one in seen:
        if together and one[0].at > max(sighting.until for sighting, _ in together):
            yield together
            together = []
        together.append(one)
    if together:
        yield together


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing, and which name servers told of it."""

    at: datetime
    event: str
    reason: str | None
    group: Group
    broker_id: int | None
    what: str
    nodes: tuple[str, ...]


def happenings(story: Story, topic: str, *, since: datetime, at: datetime) -> tuple[Happening, ...]:
    """What was told between the two moments, the newest last."""
    found: list[Happening] = []
    latest: dict[object, int] = {}
    for row in story.rows:
        what = _what(row, topic) if since <= row.at <= at else None
        if what is None:
            continue
        one = Happening(row.at, row.event, row.reason, row.group, row.broker_id, what, (row.node,))
        thing = (one.event, one.reason, one.group, one.broker_id, one.what)
        place = latest.get(thing)
        if place is None or not _is_same(found[place], one):
            latest[thing] = len(found)
            found.append(one)
        else:
            found[place] = replace(found[place], nodes=(*found[place].nodes, row.node))
    return tuple(found)


def _is_same(first: Happening, one: Happening) -> bool:
    """Whether another name server tells of the same thing; of itself each tells alone."""
    is_its_own = one.event.startswith("NAMESRV_")
    return one.at - first.at <= TOGETHER and not is_its_own and one.nodes[0] not in first.nodes


def _what(row: Told, topic: str) -> str | None:
    if row.set is not None:
        return _change(row.set.queues, removed=row.set.removed) if not row.set.full else None
    if row.event == "PERM_CHANGED":
        wiped = row.detail.get("writable") is False
        return _with_detail("the write permission was wiped" if wiped else "the write permission was given back", row)
    if row.event == "TOPIC_DELETED" and row.detail.get("topic") != topic:
        return None
    told = _TOLD.get(row.event)
    return None if told is None else _with_detail(told, row)


def _change(queues: Queues | None, *, removed: bool) -> str | None:
    if removed:
        return "the broker removed the topic"
    if queues is None:
        return None
    read, write, perm = queues
    return f"the broker set the topic to {read} read and {write} write queues, perm {perm}"


def _with_detail(told: str, row: Told) -> str:
    detail: Mapping[str, object] = row.detail
    facts = [f"{name} {detail[name]}" for name in _OF_DETAIL if detail.get(name) not in (None, "")]
    return f"{told} ({', '.join(facts)})" if facts else told
