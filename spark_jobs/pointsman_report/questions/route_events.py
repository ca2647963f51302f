"""Events that change a route: departures of brokers, and others.

A replica is not routed from the first row with state OUT or GONE to the first one with another state. Rows of several
name servers about the same period are one departure: which replica, why, which name servers saw it and when, and when
it recovered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pointsman.history.topic_history import Group, HistoryRow, Queues, TopicHistory

WATCHING_CLIENTS = timedelta(seconds=1)
POLLING_CLIENTS = timedelta(seconds=30)
"""Poll interval of clients that do not watch (RocketMQ's poll_name_server_interval)."""
SAME_EVENT_WITHIN = timedelta(seconds=150)
"""Equal rows of several name servers within this time are one event."""

_TEXTS = {
    "GUARD_ON": "the expiry guard turned on",
    "GUARD_OFF": "the expiry guard turned off",
    "MAINTENANCE_ON": "a maintenance window began",
    "MAINTENANCE_OFF": "a maintenance window ended",
    "TOPIC_DELETED": "the topic was deleted at the name servers",
    "REJECTED": "a registration was rejected",
    "RESTARTED": "the broker's process restarted",
    "ADDRESS_CHANGED": "the broker's address changed",
    "ROLE_CHANGED": "the broker's id changed",
    "NAMESRV_STARTED": "the name server started",
    "NAMESRV_READY": "the name server became ready",
    "NAMESRV_DRAINING": "the name server is draining: clients were sent elsewhere",
    "NAMESRV_PAUSED": "the name server stalled",
    "NAMESRV_STOPPED": "the name server stopped",
}
_OF_DETAIL = ("seconds", "lost", "baseline", "up", "note", "by", "previous_addr", "previous_broker_id", "claimant_addr")


@dataclass(frozen=True, slots=True)
class Observation:
    """A departure as seen by one name server."""

    node: str
    at: datetime
    event: str
    reason: str | None
    planned: bool
    """As last recorded by this name server."""
    last_heard_at: datetime | None
    back_at: datetime | None
    until: datetime
    """Time of the recovery, or of the name server's last row."""
    watched: bool
    """Whether this name server (any run of it) was running at the queried moment."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A period in which a replica was not routed."""

    group: Group
    broker_id: int
    addr: str | None
    observations: tuple[Observation, ...]
    """By time."""

    @property
    def at(self) -> datetime:
        return self.observations[0].at

    @property
    def last_at(self) -> datetime:
        """When the last name server removed it."""
        return max(one.at for one in self.observations)

    @property
    def last_heard_at(self) -> datetime | None:
        return max((one.last_heard_at for one in self.observations if one.last_heard_at is not None), default=None)

    @property
    def back_at(self) -> datetime | None:
        """When the first name server routed it again."""
        return min((one.back_at for one in self.observations if one.back_at is not None), default=None)

    @property
    def is_planned(self) -> bool:
        return all(one.planned for one in self.observations)

    def lasted_at(self, at: datetime) -> bool:
        """Whether it was not routed at that moment by any running name server."""
        return any(
            one.watched and one.at <= at and (one.back_at is None or one.back_at > at) for one in self.observations
        )


def departures(history: TopicHistory, *, since: datetime, at: datetime) -> tuple[Departure, ...]:
    """Return the departures that began between the two moments, the newest last."""
    own: dict[tuple[Group, int], list[tuple[Observation, HistoryRow]]] = defaultdict(list)
    for node in {run.node for run in history.runs}:
        for key, observation in _seen_by(node, history, since=since, at=at):
            own[key].append(observation)
    found = [
        Departure(group, broker_id, together[0][1].broker_addr, tuple(observation for observation, _ in together))
        for (group, broker_id), seen in own.items()
        for together in _together(sorted(seen, key=lambda one: (one[0].at, one[0].node)))
    ]
    return tuple(sorted(found, key=lambda departure: (departure.at, departure.group, departure.broker_id)))


def _seen_by(
    node: str, history: TopicHistory, *, since: datetime, at: datetime
) -> Iterable[tuple[tuple[Group, int], tuple[Observation, HistoryRow]]]:
    """Yield the departures seen by one name server over its runs; removing a removed replica is not a new one."""
    runs = [run for run in history.runs if run.node == node]
    watched = any(run.watched(at) for run in runs)
    own = _rows_of(node, history.rows)
    removed: dict[tuple[Group, int], tuple[HistoryRow, HistoryRow]] = {}
    for row in own:
        if row.broker_id is None or row.state is None:
            continue
        key = (row.group, row.broker_id)
        if not row.is_routed:
            went, _ = removed.get(key, (row, row))
            removed[key] = (went, row)
        elif key in removed:
            went, last = removed.pop(key)
            if since <= went.at <= at:
                yield key, (_observation(went, last, row.at, row.at, watched=watched), went)
    # A running name server also writes rows that are not in this history.
    moments = [*(run.last_at for run in runs), *(row.at for row in own)]
    end = max([*moments, at] if watched else moments)
    for key, (went, last) in removed.items():
        if since <= went.at <= at:
            yield key, (_observation(went, last, None, end, watched=watched), went)


def _rows_of(node: str, rows: list[HistoryRow]) -> list[HistoryRow]:
    """Return a name server's rows, those of each run in order."""
    runs: dict[str, list[HistoryRow]] = defaultdict(list)
    for row in rows:
        if row.node == node:
            runs[row.boot_id].append(row)
    return [row for own in runs.values() for row in sorted(own, key=lambda row: row.seq)]


def _observation(
    went: HistoryRow, last: HistoryRow, back_at: datetime | None, until: datetime, *, watched: bool
) -> Observation:
    last_heartbeat = None if went.interval_ms is None else went.at - timedelta(milliseconds=went.interval_ms)
    return Observation(
        went.node, went.at, went.event, went.reason, bool(last.planned), last_heartbeat, back_at, until, watched
    )


def _together(seen: list[tuple[Observation, HistoryRow]]) -> Iterable[list[tuple[Observation, HistoryRow]]]:
    """Group overlapping observations of one replica into departures."""
    together: list[tuple[Observation, HistoryRow]] = []
    for one in seen:
        if together and one[0].at > max(observation.until for observation, _ in together):
            yield together
            together = []
        together.append(one)
    if together:
        yield together


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event, and the name servers that recorded it."""

    at: datetime
    event: str
    reason: str | None
    group: Group
    broker_id: int | None
    what: str
    nodes: tuple[str, ...]


def timeline_events(history: TopicHistory, topic: str, *, since: datetime, at: datetime) -> tuple[TimelineEvent, ...]:
    """Return the events between the two moments, the newest last."""
    found: list[TimelineEvent] = []
    latest: dict[object, int] = {}
    for row in history.rows:
        what = _what(row, topic) if since <= row.at <= at else None
        if what is None:
            continue
        one = TimelineEvent(row.at, row.event, row.reason, row.group, row.broker_id, what, (row.node,))
        identity = (one.event, one.reason, one.group, one.broker_id, one.what)
        place = latest.get(identity)
        if place is None or not _is_same(found[place], one):
            latest[identity] = len(found)
            found.append(one)
        else:
            found[place] = replace(found[place], nodes=(*found[place].nodes, row.node))
    return tuple(found)


def _is_same(first: TimelineEvent, one: TimelineEvent) -> bool:
    """Whether another name server recorded the same event; events of a name server itself are never merged."""
    is_its_own = one.event.startswith("NAMESRV_")
    return one.at - first.at <= SAME_EVENT_WITHIN and not is_its_own and one.nodes[0] not in first.nodes


def _what(row: HistoryRow, topic: str) -> str | None:
    if row.set is not None:
        return _change(row.set.queues, removed=row.set.removed) if not row.set.full else None
    if row.event == "PERM_CHANGED":
        wiped = row.detail.get("writable") is False
        return _with_detail("the write permission was wiped" if wiped else "the write permission was restored", row)
    if row.event == "TOPIC_DELETED" and row.detail.get("topic") != topic:
        return None
    text = _TEXTS.get(row.event)
    return None if text is None else _with_detail(text, row)


def _change(queues: Queues | None, *, removed: bool) -> str | None:
    if removed:
        return "the broker removed the topic"
    if queues is None:
        return None
    read, write, perm = queues
    return f"the broker set the topic to {read} read and {write} write queues, perm {perm}"


def _with_detail(text: str, row: HistoryRow) -> str:
    detail: Mapping[str, object] = row.detail
    facts = [f"{name} {detail[name]}" for name in _OF_DETAIL if detail.get(name) not in (None, "")]
    return f"{text} ({', '.join(facts)})" if facts else text
