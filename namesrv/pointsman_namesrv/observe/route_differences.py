"""Topics whose routes differ between the observed name servers. Pure; time is an argument.

Two name servers are read at different moments, so two readings that differ prove nothing. A reading that equals the
last one of the same server shows that the route was the same in between. Two routes differ when these times overlap by
CONFIRM_SECONDS, so both are read again before that is known. A server that is not watched has no routes that count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

MAX_TOPICS = 200_000
"""Topics that are compared; further ones are counted."""
CONFIRM_SECONDS = 2.0
"""Time for which two routes must differ: a broker's registration reaches its name servers at different times."""
REPEAT_SECONDS = 30.0
"""Interval at which a topic that differs is read again, between two walks."""

ABSENT = 0
"""Digest of a topic without a route."""


class _Reading:
    __slots__ = ("digest", "last", "since")

    def __init__(self, digest: int, *, asked_at: float, now: float) -> None:
        self.digest = digest
        self.since = now
        """The first of the equal readings: its response."""
        self.last = asked_at
        """The last of them: its request."""


class Differing(NamedTuple):
    """How many routes of one name server differ from those of most; without a majority, from another's."""

    topics: int = 0
    since: float = 0.0
    """Of the one that has differed for longest, monotonic seconds."""


class _Server:
    __slots__ = ("_due", "_queue", "listed_at", "unread")

    def __init__(self) -> None:
        self.listed_at: float | None = None
        """When its topics were listed last; None: it is not watched, or not listed yet."""
        self.unread = set[str]()
        """Topics of the list whose routes were never read."""
        self._queue: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        """By topic to read again: the earliest time."""

    def read_again(self, topic: str, at: float) -> None:
        """Read a topic at this time, or before if it is due before."""
        if at < self._due.get(topic, float("inf")):
            self._due[topic] = at
            heappush(self._queue, (at, topic))

    def next(self, now: float) -> str | None:
        while self._queue and self._queue[0][0] <= now:
            at, topic = heappop(self._queue)
            if self._due.get(topic) == at:
                del self._due[topic]
                return topic
        return None


class RouteDifferences:
    """The routes of all name servers, each as a digest of what it means, by topic."""

    def __init__(self, addrs: Iterable[str]) -> None:
        self._servers = {addr: _Server() for addr in addrs}
        self._rows: dict[str, dict[str, _Reading]] = {}
        self._since: dict[str, dict[str, float]] = {addr: {} for addr in self._servers}
        """By name server: its topics that differ, with since when."""
        self._is_changed = False
        self.not_compared = 0
        """Topics beyond MAX_TOPICS, as of the last list."""
        self.shown: Mapping[str, Differing] = {addr: Differing() for addr in self._servers}
        """As of the last :meth:`publish`; replaced, never changed."""

    def add(self, addr: str) -> None:
        """Begin with a name server."""
        self._servers[addr], self._since[addr] = _Server(), {}
        self._is_changed = True

    def remove(self, addr: str) -> None:
        """End with a name server."""
        self.not_watched(addr)
        del self._servers[addr], self._since[addr]
        self._is_changed = True

    def topics(self, addr: str) -> Mapping[str, float]:
        """Return the topics whose routes differ at a name server, with since when."""
        return self._since[addr]

    def listed(self, addr: str, topics: Collection[str], *, asked_at: float, now: float) -> None:
        """Take the list of a name server's topics: others have no route there."""
        server, listed = self._servers[addr], frozenset(topics)
        server.listed_at = asked_at
        absent = self._rows.keys() - listed
        server.unread = {topic for topic in listed if addr not in self._rows.get(topic, ())}
        self.not_compared = max(0, len(self._rows) + len(listed - self._rows.keys()) - MAX_TOPICS)
        for topic in absent:
            self.read(addr, topic, ABSENT, asked_at=asked_at, now=now)

    def read(self, addr: str, topic: str, digest: int, *, asked_at: float, now: float) -> None:
        """Take a reading of one route."""
        self._servers[addr].unread.discard(topic)
        row = self._rows.get(topic)
        if row is None:
            if digest == ABSENT or len(self._rows) >= MAX_TOPICS:
                return
            # A list without the topic was a reading of it.
            row = self._rows[topic] = {
                other: _Reading(ABSENT, asked_at=server.listed_at, now=server.listed_at)
                for other, server in self._servers.items()
                if server.listed_at is not None and topic not in server.unread and other != addr
            }
        reading = row.get(addr)
        if reading is None or reading.digest != digest:
            row[addr] = _Reading(digest, asked_at=asked_at, now=now)
        else:
            reading.last = asked_at
        self._compare(topic, row)
        self._plan(topic, row, now)

    def read_again(self, addr: str, topics: Iterable[str], *, now: float) -> None:
        """Read topics next, such as those of a broker that has just changed."""
        for topic in topics:
            if topic in self._rows:
                self._servers[addr].read_again(topic, now)

    def next(self, addr: str, *, now: float) -> str | None:
        """Return a topic to read again at a name server now; it is returned once."""
        return self._servers[addr].next(now)

    def not_watched(self, addr: str) -> None:
        """Drop a name server's routes: it does not respond, or waits for its brokers."""
        if self._servers[addr].listed_at is None:
            return
        self._servers[addr] = _Server()
        for topic, row in list(self._rows.items()):
            if row.pop(addr, None) is not None:
                self._compare(topic, row)

    def publish(self) -> None:
        """Renew :attr:`shown`."""
        if self._is_changed:
            self._is_changed = False
            self.shown = {
                addr: Differing(len(topics), min(topics.values())) if topics else Differing()
                for addr, topics in self._since.items()
            }

    def _compare(self, topic: str, row: Mapping[str, _Reading]) -> None:
        """Decide at which name servers a topic differs."""
        counts = Counter(reading.digest for reading in row.values())
        if not counts.keys() - {ABSENT}:
            del self._rows[topic]
        for addr, topics in self._since.items():
            since = _differs_since(row, addr, counts) if addr in row and len(counts) > 1 else None
            if topics.get(topic) == since:
                continue
            self._is_changed = True
            if since is None:
                del topics[topic]
            else:
                topics[topic] = since

    def _plan(self, topic: str, row: Mapping[str, _Reading], now: float) -> None:
        """Read the topic again where that can confirm or end a difference."""
        if len({reading.digest for reading in row.values()}) < 2:
            return
        confirmed_at = max(reading.since for reading in row.values()) + CONFIRM_SECONDS
        for addr, reading in row.items():
            self._servers[addr].read_again(topic, confirmed_at if reading.last < confirmed_at else now + REPEAT_SECONDS)


def _differs_since(row: Mapping[str, _Reading], addr: str, counts: Mapping[int, int]) -> float | None:
    own = row[addr]
    if 2 * counts[own.digest] > len(row):
        return None
    begins = (
        (max(own.since, other.since), min(own.last, other.last)) for other in row.values() if other.digest != own.digest
    )
    return min((since for since, last in begins if last - since >= CONFIRM_SECONDS), default=None)
