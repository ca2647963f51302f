"""What clients of WatchTopicRoutes received, recorded in order, and checked against the guarantees of a watch.

The promises: within a boot the revisions of a topic never go back, over reconnects too; a topic that is gone comes back
only at a later revision; a connection begins with the state of each topic; the last state of each topic is what a
fresh query answers. What lies between may merge. The check reads each record once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

GONE = ""
"""The digest of a topic without a route."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A client opened a connection and requested topics."""

    client: str
    connection: int
    topics: tuple[str, ...]
    known: tuple[str, ...] = ()
    """Those that it sent as known, from what it had received before."""
    ready: bool = True
    """Whether the node was READY: one that is WARMING sends nothing about an unknown topic."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of one topic that a client was sent."""

    client: str
    connection: int
    boot: int
    topic: str
    counter: int
    digest: str
    """Hexadecimal; empty: the topic was deleted."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The first state of a connection was complete."""

    client: str
    connection: int
    unchanged: int = 0


Record = Opened | Seen | Synced
Truth = Mapping[int, Mapping[str, str]]
"""By boot of each node that runs at the end: the digest of each topic in a fresh query, empty for NOT_FOUND."""

_KINDS: dict[str, Callable[..., Record]] = {kind.__name__: kind for kind in (Opened, Seen, Synced)}


def to_line(record: Record) -> str:
    """Write a record as a line of JSON."""
    return json.dumps({"kind": type(record).__name__, **asdict(record)})


def read(path: Path) -> Iterator[Record]:
    """Read records that :func:`to_line` wrote; a torn last line, of a process that was killed, is left out."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            fields = json.loads(line)
            kind = _KINDS[fields.pop("kind")]
            yield kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


@dataclass(slots=True)
class _Connection:
    opened: Opened
    boot: int | None = None
    seen: set[str] = field(default_factory=set)
    synced: bool = False


@dataclass(slots=True)
class _Client:
    connections: int = 0
    now: _Connection | None = None
    latest: dict[str, Seen] = field(default_factory=dict)
    highest: dict[tuple[int, str], Seen] = field(default_factory=dict)


def faults(records: Iterable[Record], truth: Truth) -> list[str]:
    """Every violated guarantee as text; the records of one client are in the order of their arrival."""
    clients: dict[str, _Client] = {}
    revisions: dict[tuple[int, str, int], str] = {}
    found: list[str] = []
    for record in records:
        client = clients.setdefault(record.client, _Client())
        if isinstance(record, Opened):
            client.connections += 1
            client.now = _Connection(record)
        elif client.now is None or client.now.opened.connection != record.connection:
            found.append(f"{record} is outside its connection")
        elif isinstance(record, Seen):
            found += _seen(client, client.now, record, revisions)
        else:
            found += _synced(client, client.now, record)
    for name, client in clients.items():
        found += _last_state(name, client, truth)
    return found


def _seen(
    client: _Client, connection: _Connection, seen: Seen, revisions: dict[tuple[int, str, int], str]
) -> Iterator[str]:
    first_here = seen.topic not in connection.seen
    connection.seen.add(seen.topic)
    connection.boot = seen.boot
    before = client.highest.get((seen.boot, seen.topic))
    if before is not None and seen.counter < before.counter:
        how = "came back from before its end" if before.digest == GONE else "went back"
        yield f"{seen.client}: {seen.topic} {how}: {seen} after {before}"
    elif before is not None and seen.counter == before.counter and not first_here:
        yield f"{seen.client}: {seen.topic} came twice at one revision: {seen}"
    else:
        client.highest[seen.boot, seen.topic] = seen
    if revisions.setdefault((seen.boot, seen.topic, seen.counter), seen.digest) != seen.digest:
        yield f"{seen.client}: {seen.topic} has two states at one revision: {seen}"
    client.latest[seen.topic] = seen


def _synced(client: _Client, connection: _Connection, synced: Synced) -> Iterator[str]:
    opened = connection.opened
    if connection.synced:
        yield f"{synced.client}: connection {synced.connection} was synced twice"
    connection.synced = True
    missing = [topic for topic in opened.topics if topic not in connection.seen]
    known = [topic for topic in missing if topic in opened.known and topic in client.latest]
    unknown = [topic for topic in missing if topic not in known]
    if synced.unchanged > len(known):
        yield f"{synced.client}: {synced.unchanged} topics unchanged in {opened}, which knew {len(known)} of the rest"
    if opened.ready and (unknown or synced.unchanged < len(known)):
        yield f"{synced.client}: the first state of connection {synced.connection} misses topics: {unknown or known}"
    if connection.boot is not None:
        for topic in known:
            if client.latest[topic].boot != connection.boot:
                yield f"{synced.client}: {topic} was known from another boot only, and yet not sent"


def _last_state(name: str, client: _Client, truth: Truth) -> Iterator[str]:
    connection = client.now
    if connection is None or not connection.synced:
        yield f"{name}: its last connection never had its first state"
        return
    for topic in connection.opened.topics:
        last = client.latest.get(topic)
        expected = truth.get(last.boot, {}).get(topic) if last is not None else None
        if last is None:
            yield f"{name}: {topic} was never seen"
        elif expected is None:
            yield f"{name}: {topic} was last seen on a boot of which there is no fresh query: {last}"
        elif last.digest != expected:
            yield f"{name}: lost the final state of {topic}: {last}, a fresh query says {expected or 'not found'}"
