"""What else happened that bears on a route: guards, announced absences, name servers' own lives, operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pointsman_report.questions.told import Group, Queues, Story, Told

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
