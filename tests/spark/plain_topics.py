"""A second implementation of the rules of topics in plain Python, slow and obvious, to check the Spark tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.spark.histories import Row, moment
from tests.spark.topic_days import Stretch

Instance = tuple[str, str, int]
Queues = tuple[int, int, int]
Held = tuple[Instance, str, Queues, datetime, datetime]
"""A broker had a topic with these queues from when to when."""
Span = tuple[datetime, datetime]


def when(row: Row) -> datetime:
    return datetime.fromisoformat(row["event_at"])


def _identity(row: Row) -> Instance:
    return row["cluster"], row["broker_name"], row["broker_id"]


class _Known:
    """Follows versions: a full set is known, and stays known by deltas that each start from the previous version."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.known = False

    def take(self, version: str, base: str | None, *, whole: bool) -> bool:
        """Return whether the statement contains nothing new."""
        if base is None and version == self.version and self.known:
            return True
        is_next = version == self.version if base is None else base == self.version and whole
        self.known = (base is None and whole) or (is_next and self.known)
        self.version = version
        return False


def _facts(rows: list[Row]) -> dict[Any, dict[int, Row]]:
    """Each statement with its parts, each part from the name server that wrote it first."""
    lives: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if row["event"] == "TOPICS":
            lives[when(row).date(), _identity(row), row["node"], row["boot_id"]].append(row)
    facts: dict[Any, dict[int, Row]] = defaultdict(dict)
    for (day, broker, *_), own in lives.items():
        recorded: dict[int, list[Row]] = defaultdict(list)
        for row in own:
            recorded[row["seq"] - row["detail"]["part"]].append(row)
        follows = _Known()
        seen: dict[tuple[str, str | None], int] = defaultdict(int)
        for _, parts in sorted(recorded.items()):
            version, base = parts[0]["data_version"], parts[0]["detail"]["base"]
            if follows.take(version, base, whole=len(parts) == parts[0]["detail"]["parts"]):
                continue
            seen[version, base] += 1
            for row in parts:
                fact = facts[day, broker, version, base, seen[version, base]]
                part = row["detail"]["part"]
                fact[part] = min(fact.get(part, row), row, key=_in_time)
    return facts


def _in_time(row: Row) -> tuple[Any, ...]:
    return when(row), row["node"], row["boot_id"], row["seq"]


def intervals(rows: list[Row], stretches: list[Stretch], *, days: int) -> list[Held]:
    """The topics of each broker by interval, over all midnights."""
    stories: dict[Instance, list[tuple[Any, list[Row], str | None]]] = defaultdict(list)
    for (_, broker, _, base, _), parts in _facts(rows).items():
        in_order = sorted(parts.values(), key=_in_time)
        stories[broker].append((_in_time(in_order[0]), in_order, base))
    missed = {
        (_identity(stretch.about), moment(0, day=day).date())
        for stretch in stretches
        for day in range(days)
        if stretch.state != "left"
        if stretch.from_at < moment(0, day=day + 1) and stretch.to_at >= moment(0, day=day)
    }
    found: list[Held] = []
    for broker, story in stories.items():
        away = [moment(0, day=n) for n in range(days) if (broker, moment(0, day=n).date()) not in missed]
        found += _played(broker, story, away, until=moment(0, day=days))
    return found


def _played(
    broker: Instance, story: list[tuple[Any, list[Row], str | None]], away: list[datetime], *, until: datetime
) -> Iterator[Held]:
    holds: dict[str, tuple[Queues, datetime]] = {}
    recorded_days = set()
    steps: list[tuple[Any, list[Row], str | None]] = [*((((at,), [], None)) for at in away), *story]
    by_instant: dict[datetime, dict[str, Queues]] = {}
    topics: dict[str, Queues] = {}
    for order, parts, base in sorted(steps, key=lambda step: step[0]):
        if parts:
            is_start = all(row["reason"] == "START" for row in parts)
            if is_start and order[0].date() in recorded_days:
                continue
            recorded_days.add(order[0].date())
        if base is None and (not parts or len(parts) == parts[0]["detail"]["parts"]):
            topics = {}
        for row in parts:
            topics = {name: queues for name, queues in topics.items() if name not in row["detail"]["removed"]}
            topics |= {name: (read, write, perm) for name, (read, write, perm, *_) in row["detail"]["topics"].items()}
        by_instant[order[0]] = topics
    for at, now in [*sorted(by_instant.items()), (until, {})]:
        for name, (queues, since) in list(holds.items()):
            if now.get(name) != queues:
                yield broker, name, queues, since, at
                del holds[name]
        for name, queues in now.items():
            holds.setdefault(name, (queues, at))


def cut_at_midnight(held: list[Held]) -> list[Held]:
    return [
        (broker, topic, queues, max(since, start), min(until, start + timedelta(days=1)))
        for broker, topic, queues, since, until in held
        for start in _midnights(since, until)
    ]


def _midnights(since: datetime, until: datetime) -> Iterator[datetime]:
    start = since.replace(hour=0, minute=0, second=0, microsecond=0)
    while start < until:
        yield start
        start += timedelta(days=1)


def risks(held: list[Held], stretches: list[Stretch], cluster: str, topic: str, day: Span) -> dict[str, list[Span]]:
    """Each elementary stretch of the day in which a topic was at risk, by kind."""
    own = [one for one in held if one[0][0] == cluster and one[1] == topic]
    brokers = {one[0] for one in own}
    groups = {broker[:2] for broker in brokers}
    states = [
        one
        for one in stretches
        if _identity(one.about)[:2] in groups and max(one.from_at, day[0]) < min(one.to_at, day[1])
    ]
    had_master = {_identity(one.about)[:2] for one in states if one.state == "up" and not one.about["broker_id"]}
    edges = {edge for one in own for edge in one[3:]} | {edge for one in states for edge in (one.from_at, one.to_at)}
    inside = sorted({*day, *(edge for edge in edges if day[0] < edge < day[1])})
    found: dict[str, list[Span]] = defaultdict(list)
    for at, until in pairwise(inside):
        holders = [(broker, queues) for broker, _, queues, since, to in own if since <= at < to]
        is_up = {
            _identity(one.about): "up" if one.state == "up" else "down"
            for one in states
            if one.from_at <= at < one.to_at
        }
        masters = [(is_up.get(broker), queues) for broker, queues in holders if broker[2] == 0]
        writers = [state for state, (_, write, perm) in masters if write and perm & 2]
        slaves = [broker for broker, _ in holders if broker[2] and is_up.get(broker) == "up"]
        slave_up = any(is_up.get((*slave[:2], 0)) == "down" or slave[:2] not in had_master for slave in slaves)
        no_master = slave_up and all(state == "down" for state, _ in masters)
        if no_master:
            found["no_master"].append((at, until))
        if no_master or (writers and all(state == "down" for state in writers)):
            found["unwritable"].append((at, until))
        if len(writers) > 1 and sorted(map(str, writers)) == ["down"] * (len(writers) - 1) + ["up"]:
            found["one_broker"].append((at, until))
    return found
