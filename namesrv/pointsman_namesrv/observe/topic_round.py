"""Topics of a fleet, collected route by route over minutes, and recorded like an agent's topic set. Pure.

A name server does not report the version of a broker's topics. The version in these rows is a digest of what was
collected, so that two observers give the same set the same version.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind, TopicsPayload
from pointsman_namesrv.core.model import DataVersion, GroupKey, Position, QueueConfig
from pointsman_namesrv.observe.polled_events import SOURCE, Watch

MAX_ENTRIES = 500_000
"""Topics of all broker names together, counted once per broker name."""

Topics = dict[str, QueueConfig]


class TooManyTopics(Exception):
    """A walk would hold more than MAX_ENTRIES; none of it is recorded."""


class TopicRound:
    """One walk over the topics that a name server lists."""

    def __init__(self, topics: Iterable[str], *, began_at: float) -> None:
        self.began_at = began_at
        self._waiting = deque(topics)
        if len(self._waiting) > MAX_ENTRIES:
            raise TooManyTopics(f"{len(self._waiting)} topics are listed, at most {MAX_ENTRIES} are collected")
        self._entries = 0
        self.found: dict[GroupKey, Topics] = {}

    def next(self) -> str | None:
        """Return the next topic to request; None at the end."""
        return self._waiting.popleft() if self._waiting else None

    def add(self, topic: str, route: Iterable[tuple[str, str, QueueConfig]]) -> None:
        """Add the route of a topic. Raises TooManyTopics."""
        for cluster, name, config in route:
            self._entries += 1
            self.found.setdefault(GroupKey(cluster, name), {})[topic] = config
        if self._entries > MAX_ENTRIES:
            raise TooManyTopics(f"more than {MAX_ENTRIES} topics of all brokers together")

    def topics_of(self, position: Position) -> Topics:
        """Return the topics found for a replica's broker name."""
        return self.found.get(GroupKey(*position[:2]), {})


class RecordedTopics:
    """The topics of each broker as recorded in this watch's history."""

    def __init__(self) -> None:
        self._held: dict[Position, tuple[DataVersion, Topics]] = {}

    def reset(self) -> None:
        """Start again with full sets, so that a day can be read alone."""
        self._held.clear()

    def take(self, position: Position, topics: Topics, watch: Watch, *, now: float) -> Event | None:
        """Record a broker's topics; None if they have not changed, or the broker is not listed."""
        base, recorded = self._held.get(position, (None, {}))
        if base is not None and topics == recorded:
            return None
        version = _version(topics)
        broker = watch.facts(position, data_version=version, now=now)
        if broker is None:
            return None
        self._held[position] = version, topics
        return _event(broker, topics, recorded, base)

    def names(self, position: Position) -> Iterable[str] | None:
        """Return the topics of a replica's broker name; None: they are unknown."""
        return next((topics for held, (_, topics) in self._held.items() if held[:2] == position[:2]), None)

    def returned(self, position: Position, watch: Watch, *, now: float) -> Event | None:
        """Return the set with which a broker left. It returns with that set until a walk finds another. None: unknown.

        Readers of the history remove a departed broker's topics from the routes.
        """
        if position not in self._held:
            return None
        version, topics = self._held[position]
        broker = watch.facts(position, data_version=version, now=now)
        return _event(broker, topics, {}, None) if broker is not None else None

    def bound(self, listed: Iterable[Position]) -> None:
        """Drop the brokers that are not listed, once they hold more than a walk may."""
        listed = set(listed)
        if sum(len(topics) for position, (_, topics) in self._held.items() if position not in listed) > MAX_ENTRIES:
            self._held = {position: held for position, held in self._held.items() if position in listed}


def _event(broker: BrokerFacts, topics: Topics, recorded: Mapping[str, QueueConfig], base: DataVersion | None) -> Event:
    payload = TopicsPayload(topics)
    if base is not None:
        changed = {name: config for name, config in topics.items() if recorded.get(name) != config}
        payload = TopicsPayload(changed, tuple(recorded.keys() - topics.keys()), base)
    return Event(kind=EventKind.TOPICS, broker=broker, topics=payload, detail={"source": SOURCE})


def _version(topics: Topics) -> DataVersion:
    digest = hashlib.blake2b(digest_size=7)
    for name in sorted(topics):
        # RocketMQ has no weights, the fifth number.
        digest.update(f"{name} {'.'.join(map(str, topics[name][:4]))}\n".encode())
    return DataVersion(counter=int.from_bytes(digest.digest(), "big"))
