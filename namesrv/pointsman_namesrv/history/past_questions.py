"""Questions about the past and their answers, from one node's files. Runs in the worker process.

Question in, answer out, both as JSON objects::

    {"kind": "route", "topic": "orders", "at": "2026-11-27T03:12:00Z", "cluster": null}
    {"kind": "broker", "broker_name": "broker-a", "at": "...", "cluster": null, "limit": 50, "topics": false}
    {"kind": "fleet", "at": "...", "cluster": null}
    {"kind": "events", "since": "...", "until": "...", "broker_name": null, ..., "limit": 100, "page_token": ""}
    {"kind": "changes", ...}   as events

Where the files are those of several nodes, ``"node"`` may choose one.

The answer of ``route`` is that of ``pointsman-report route-at --output json`` on the same files. With ``"steps": true``
those of ``route``, ``broker`` and ``fleet`` also have ``steps``: when the event before the moment was, and the one
after it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any

from pointsman.history.operator_changes import CHANGES, operator_change
from pointsman.history.past_route import rfc3339, route_of
from pointsman.history.row_format import FIELDS, REPEATED, Row, detail_of, microseconds, moment_of
from pointsman.history.topic_history import topic_history_of
from pointsman.history.topic_selection import TopicRows, days_before, mentions
from pointsman_namesrv.history.past_files import PastFiles, Place
from pointsman_namesrv.history.past_index import FileIndex
from pointsman_namesrv.history.past_lines import NOT_INDEXED, Block, Line

MAX_EVENTS = 1_000
"""Longest page."""
MAX_ANSWER_BYTES = 2 * 1024 * 1024
"""A page ends early at this size, so that it fits into one message."""
MAX_TOPICS = 5_000
"""Of a broker name, in an answer about it."""
BROKER_EVENT_DAYS = 7
"""Days before the moment in which the events of a broker are searched."""
STEP_DAYS = 7
"""Days before and after the moment in which the nearest events are searched."""

REPLICA_FIELDS = ("broker_id", "addr", "state", "planned", "since", "event", "reason")
"""Of each replica in the answer of ``fleet``; all are null where the broker name's state is unknown. Where nodes
disagree on a broker name, a replica also has the ``nodes`` whose view it is."""

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Which events are asked for. None: any."""

    since: datetime
    until: datetime
    """Both included."""
    cluster: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    """The brokers that had the topic, and changes of it."""
    kinds: tuple[str, ...] = ()
    """Empty: all but routine ones and repeated states."""
    by: str | None = None
    state: str | None = None
    """After the event."""
    only_changes: bool = False
    """Only those that an operator caused."""
    limit: int = 100
    page_token: str = ""

    def has_kind(self, event: str) -> bool:
        """Return whether an event is of a kind that is asked for."""
        if self.only_changes:
            return event in CHANGES and (not self.kinds or event in self.kinds)
        return event in self.kinds if self.kinds else event not in NOT_INDEXED and event not in REPEATED


def answer(files: PastFiles, question: Mapping[str, Any]) -> Answer:
    """Answer a question. Raises TooManyRows, OSError, ValueError for a malformed question."""
    return _ANSWERS[question["kind"]](files, question)


def _route(files: PastFiles, question: Mapping[str, Any]) -> Answer:
    at, topic, cluster = _moment(question["at"]), question["topic"], question.get("cluster")
    rows = files.topic_rows(topic, days_before(at), microseconds(at), cluster=cluster)
    found = route_of(topic_history_of(rows), topic, at, cluster=cluster).as_dict()
    return found | _steps(files, question, cluster=cluster, topic=topic)


def _broker(files: PastFiles, question: Mapping[str, Any]) -> Answer:
    """The replicas of a broker name as they were, and its last events up to the moment."""
    at, name, cluster = _moment(question["at"]), question["broker_name"], question.get("cluster")
    days = days_before(at)
    groups = files.groups_named(name, days, cluster=cluster)
    rows = files.group_rows(groups, days, microseconds(at))
    seen = route_of(topic_history_of(rows), "", at, cluster=cluster).as_dict()
    events = Events(
        since=at - timedelta(days=BROKER_EVENT_DAYS),
        until=at,
        cluster=cluster,
        broker_name=name,
        limit=question.get("limit") or MAX_EVENTS,
    )
    whole_clusters = frozenset(cluster for cluster, _ in groups)
    page = _page(files, events, whole_clusters=whole_clusters)
    brokers = [each for each in seen["brokers"] if each["broker_name"] == name]
    found = {
        "broker_name": name,
        "at": rfc3339(at),
        "last_row_at": seen["last_row_at"],
        "name_servers": seen["name_servers"],
        "brokers": brokers,
        "events": page["events"][::-1],
        "first_day": page["first_day"],
    }
    if question.get("topics"):
        found |= _topics(files, rows, brokers, at)
    return found | _steps(files, question, cluster=cluster, broker_name=name, whole_clusters=whole_clusters)


def _topics(files: PastFiles, rows: TopicRows, brokers: Collection[Answer], at: datetime) -> Answer:
    """Return the topics of the routed replica with the lowest id of a broker name; none without one."""
    run = max((each for each in rows.observers if each.rows), key=attrgetter("first_us"), default=None)
    found: list[list[Any]] = []
    for broker in brokers:
        group = (broker["cluster"], broker["broker_name"])
        boot_id = "" if run is None else run.boot_id
        tables = files.topics_of(group, days_before(at), microseconds(at), boot_id=boot_id)
        routed = [one["broker_id"] for view in broker["views"] for one in view["replicas"] if one["routed"]]
        table = tables.get(min(routed), {}) if routed else {}
        found += ([topic, *queues] for topic, queues in sorted(table.items()))
    return {"topics": found[:MAX_TOPICS], "topic_count": len(found)}


def _fleet(files: PastFiles, question: Mapping[str, Any]) -> Answer:
    """The state of every replica; those of a broker name are unknown where rows are missing."""
    at, cluster = _moment(question["at"]), question.get("cluster")
    rows, surroundings = files.latest_rows(days_before(at), microseconds(at), cluster=cluster)

    def around(broker: Answer, one: Answer) -> Answer:
        known = surroundings.get((broker["cluster"], broker["broker_name"], one["broker_id"]))
        return {"zone": "", "owner": ""} if known is None else known._asdict()

    seen = route_of(topic_history_of(rows), "", at, cluster=cluster).as_dict()
    return {
        "at": rfc3339(at),
        "last_row_at": seen["last_row_at"],
        "name_servers": seen["name_servers"],
        "replicas": [
            {
                "cluster": broker["cluster"],
                "broker_name": broker["broker_name"],
                **({name: one[name] for name in REPLICA_FIELDS} if view["known"] else dict.fromkeys(REPLICA_FIELDS)),
                **(around(broker, one) if view["known"] else {"zone": "", "owner": ""}),
                **({} if broker["agreed"] else {"nodes": view["nodes"]}),
            }
            for broker in seen["brokers"]
            for view in broker["views"]
            for one in (view["replicas"] if view["known"] else [{}])
        ],
    } | _steps(files, question, cluster=cluster)


def _events(files: PastFiles, question: Mapping[str, Any]) -> Answer:
    return _page(files, _read_events(question))


def _changes(files: PastFiles, question: Mapping[str, Any]) -> Answer:
    return _page(files, _read_events({**question, "only_changes": True}))


_ANSWERS: Mapping[str, Callable[[PastFiles, Mapping[str, Any]], Answer]] = {
    "route": _route,
    "broker": _broker,
    "fleet": _fleet,
    "events": _events,
    "changes": _changes,
}


def _read_events(question: Mapping[str, Any]) -> Events:
    known = {each.name for each in fields(Events)}
    given = {name: value for name, value in question.items() if name in known}
    given |= {"since": _moment(question["since"]), "until": _moment(question["until"])}
    return Events(**{**given, "kinds": tuple(question.get("kinds") or ())})


# --- pages of events ------------------------------------------------------------------------------------------


def _page(files: PastFiles, asked: Events, *, whole_clusters: frozenset[str] = frozenset()) -> Answer:
    """Return the newest events first, the token of the next page, and the first day of the history.

    ``whole_clusters``: also events of these.
    """
    every_day = files.days()
    days = [day for day in every_day if asked.since.date() <= day <= asked.until.date()]
    first_day = every_day[0].isoformat() if every_day else None
    groups = None
    if asked.topic is not None:
        groups = files.groups_with(asked.topic, [days_before(asked.since)[0], *days], cluster=asked.cluster)
    choice = _Choice(asked, groups, whole_clusters)
    token = _read_token(asked.page_token)
    found: list[Answer] = []
    size, last = 0, ""
    for day in reversed(days):
        if token is not None and day > token[0]:
            continue
        before = token[1] if token is not None and day == token[0] else None
        for place, row in _rows_of_day(files, day, choice, before, most=asked.limit + 1):
            if len(found) == asked.limit or size > MAX_ANSWER_BYTES:
                return {"events": found, "next_page_token": last, "first_day": first_day}
            shown = _shown(row, as_change=asked.only_changes)
            size += len(json.dumps(shown))
            found.append(shown)
            last = "/".join(map(str, (day.isoformat(), *place)))
    return {"events": found, "next_page_token": "", "first_day": first_day}


def _rows_of_day(
    files: PastFiles, day: date, choice: _Choice, before: Place | None, *, most: int
) -> Iterator[tuple[Place, Row]]:
    """Yield the newest chosen rows of a day before a place, the newest first, ``most`` at most."""
    rows: dict[Place, Row] = {}
    oldest: list[Place] = []
    """A heap of their places."""

    def see(place: Place, line: Line) -> None:
        if (before is not None and place >= before) or place in rows or (len(rows) == most and place < oldest[0]):
            return
        row = choice.row(line)
        if row is not None:
            rows[place] = row
            heapq.heappush(oldest, place)
            if len(rows) > most:
                del rows[heapq.heappop(oldest)]

    def needs(first: Place, last: Place) -> bool:
        return (before is None or first < before) and (len(rows) < most or last > oldest[0])

    files.visit_newest_first(day, choice.blocks, see, needs)
    yield from sorted(rows.items(), key=itemgetter(0), reverse=True)


class _Choice:
    """Which rows are events that were asked for."""

    def __init__(self, asked: Events, groups: set[tuple[str, str]] | None, whole_clusters: frozenset[str]) -> None:
        self._asked = asked
        self._groups = groups
        self._whole_clusters = whole_clusters
        self._since_us, self._until_us = microseconds(asked.since), microseconds(asked.until)

    def blocks(self, index: FileIndex) -> list[Block]:
        """Return the blocks of an indexed file that may have such rows."""
        asked = self._asked
        if asked.only_changes or asked.by is not None:
            return index.chosen(index.changes)
        if NOT_INDEXED.intersection(asked.kinds):
            return index.blocks
        if self._groups is not None:
            return index.of_groups(self._groups)
        if asked.broker_name is not None:
            clusters = index.groups if asked.cluster is None else [asked.cluster]
            return index.of_groups([(cluster, asked.broker_name) for cluster in clusters if cluster])
        return index.of_kinds(asked.has_kind, cluster=asked.cluster)

    def row(self, line: Line) -> Row | None:
        """Return the row of a line; None if it was not asked for."""
        row = line.row() if self.may_have(line) else None
        return row if row is not None and self._is_asked_for(row) else None

    def may_have(self, line: Line) -> bool:
        """Return whether a line may have been asked for, as far as that is seen without parsing it."""
        asked = self._asked
        is_of_topic = asked.topic is not None and line.event == "TOPICS" and not (asked.kinds or asked.only_changes)
        if not (asked.has_kind(line.event) or is_of_topic) or not self._since_us <= line.at_us <= self._until_us:
            return False
        if asked.cluster is not None and line.cluster != asked.cluster:
            return False
        is_of_cluster = line.broker_name is None and line.cluster in self._whole_clusters
        if asked.broker_name is not None and line.broker_name != asked.broker_name and not is_of_cluster:
            return False
        if self._groups is not None and (line.cluster, line.broker_name) not in self._groups:
            return False
        return line.may_have_author or not (asked.only_changes or asked.by is not None)

    def _is_asked_for(self, row: Row) -> bool:
        asked, detail = self._asked, detail_of(row)
        if asked.topic is not None:
            if row["event"] == "TOPICS":
                return detail.get("full") is False and mentions(row, asked.topic)
            if row["event"] == "TOPIC_DELETED" and detail.get("topic") != asked.topic:
                return False
        if asked.state is not None and row["state"] != asked.state:
            return False
        if asked.by is not None and asked.by not in (detail.get("by"), detail.get("claimed_by")):
            return False
        return not asked.only_changes or operator_change(row) is not None


# --- steps in time --------------------------------------------------------------------------------------------


def _steps(
    files: PastFiles,
    question: Mapping[str, Any],
    *,
    cluster: str | None,
    broker_name: str | None = None,
    topic: str | None = None,
    whole_clusters: frozenset[str] = frozenset(),
) -> Answer:
    """Return the times of the events next to the moment, null where there is none; nothing unless they are asked for.

    Events of the same time as the moment are not next to it, so that each step leads to another time.
    """
    if not question.get("steps"):
        return {}
    at = _moment(question["at"])
    span = timedelta(days=STEP_DAYS)
    asked = Events(since=at - span, until=at + span, cluster=cluster, broker_name=broker_name, topic=topic)

    @cache
    def choice_of(day: date) -> _Choice:
        days = [day - timedelta(days=1), day]
        return _Choice(
            asked, None if topic is None else files.groups_with(topic, days, cluster=cluster), whole_clusters
        )

    def nearest(days: Iterable[date], *, is_before: bool) -> int | None:
        for day in days:
            choice = choice_of(day)
            is_asked = choice.may_have if topic is None else lambda line, of=choice: of.row(line) is not None
            found = files.nearest(day, choice.blocks, is_asked, microseconds(at), is_before=is_before)
            if found is not None:
                return found
        return None

    days = [day for day in files.days() if asked.since.date() <= day <= asked.until.date()]
    previous = nearest(reversed([day for day in days if day <= at.date()]), is_before=True)
    following = nearest([day for day in days if day >= at.date()], is_before=False)
    return {"steps": {"previous": rfc3339(_moment_at(previous)), "next": rfc3339(_moment_at(following))}}


def _moment_at(at_us: int | None) -> datetime | None:
    return None if at_us is None else moment_of(at_us)


def _shown(row: Row, *, as_change: bool) -> Answer:
    change = operator_change(row) if as_change else None
    if change is not None:
        return change.as_dict()
    detail = detail_of(row)
    if row["event"] == "TOPICS":
        detail = {name: detail.get(name) for name in ("part", "parts", "full", "base")}
    return {name: row[name] for name in FIELDS if row[name] is not None} | {"detail": detail}


def _moment(text: str) -> datetime:
    """Read an RFC 3339 time. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text}")
    return moment.astimezone(UTC)


def _read_token(text: str) -> tuple[date, Place] | None:
    """Read what a page ended with. Raises ValueError."""
    if not text:
        return None
    day, began_us, boot_id, seq = text.split("/")
    return date.fromisoformat(day), (int(began_us), boot_id, int(seq))
