"""Which group has which queues of which topic, and the routes made of it.

Knows nothing of time or liveness: it is told a group's topics whenever they may have changed and keeps the
inverted table that queries read. Versions are numbers of changes; the revision counter of a route is the highest
version of what it is made of, so a broker's change of state touches the broker alone and none of its topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from namesrv.core.errors import TopicNotFound
from namesrv.core.group import Group
from namesrv.core.model import MASTER_ID, GroupKey, QueueConfig, TopicTable


@dataclass(slots=True)
class TopicEntry:
    """The queues of one topic by group. Never empty while it stands in the table."""

    queues: dict[GroupKey, QueueConfig] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class Contribution:
    """The topics that a group has in the table at the moment."""

    topics: TopicTable
    read_only: bool

    def queues(self, topic: str) -> QueueConfig:
        """The queues as they stand in routes."""
        queues = self.topics[topic]
        return queues.read_only() if self.read_only else queues


NOTHING = Contribution({}, read_only=False)


@dataclass(frozen=True, slots=True)
class Route:
    """The answer to a route query, sorted by group key. The groups are live: read them before the next call."""

    topic: str
    counter: int
    queues: tuple[tuple[GroupKey, QueueConfig], ...]
    groups: tuple[Group, ...]


class RouteTable:
    """``topic_queue_table`` and ``broker_addr_table`` of RocketMQ's RouteInfoManager, keyed with the cluster."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.topics: dict[str, TopicEntry] = {}
        self.change = 0
        """Number of the last change that clients can see."""
        self._contributions: dict[GroupKey, Contribution] = {}

    def refresh(self, group: Group, *, visibly: bool = True) -> None:
        """Bring the table in line with a group that changed; ``visibly``: in more than its topics.

        A change of topics moves the revisions of those topics alone.
        """
        self.change += 1
        if visibly:
            group.version = self.change
        if group.replicas:
            self.groups[group.key] = group
        else:
            self.groups.pop(group.key, None)
        contributor = group.contributor()
        after = NOTHING
        if contributor is not None:
            read_only = contributor.identity.broker_id != MASTER_ID
            after = Contribution(contributor.registration.topics, read_only)
        before = self._contributions.get(group.key, NOTHING)
        if after.topics is before.topics and after.read_only == before.read_only:
            return
        self._replace(group.key, before, after)
        if after is NOTHING:
            self._contributions.pop(group.key, None)
        else:
            self._contributions[group.key] = after

    def _replace(self, key: GroupKey, before: Contribution, after: Contribution) -> None:
        for topic in before.topics:
            if topic not in after.topics:
                entry = self.topics[topic]
                del entry.queues[key]
                entry.version = self.change
                if not entry.queues:
                    del self.topics[topic]
        for topic in after.topics:
            queues = after.queues(topic)
            found = self.topics.get(topic)
            if found is None:
                found = self.topics[topic] = TopicEntry()
            if found.queues.get(key) != queues:
                found.queues[key] = queues
                found.version = self.change

    def counter(self, topic: str) -> int | None:
        """Revision counter of a topic's route; None when nobody has the topic."""
        entry = self.topics.get(topic)
        return None if entry is None else self._counter(entry)

    def _counter(self, entry: TopicEntry) -> int:
        return max(entry.version, *(self.groups[key].version for key in entry.queues))

    def route(self, topic: str, *, cluster: str = "", zone: str = "") -> Route:
        """Answer a route query. Raises TopicNotFound.

        With a zone, groups of other zones are left out, but not those without a master ("master down: break the
        nearby rule", RocketMQ ``ZoneRouteRPCHook``); the route may then be empty.
        """
        entry = self.topics.get(topic)
        if entry is None:
            raise TopicNotFound(topic, cluster)
        keys = sorted(key for key in entry.queues if not cluster or key.cluster == cluster)
        if not keys:
            raise TopicNotFound(topic, cluster)
        if zone:
            keys = [key for key in keys if self._is_near(self.groups[key], zone)]
        return Route(
            topic,
            self._counter(entry),
            tuple((key, entry.queues[key]) for key in keys),
            tuple(self.groups[key] for key in keys),
        )

    @staticmethod
    def _is_near(group: Group, zone: str) -> bool:
        lowest = group.lowest()
        return (
            lowest is None or lowest.identity.broker_id != MASTER_ID or lowest.registration.zone.lower() == zone.lower()
        )

    def topic_names(self, cluster: str = "") -> list[str]:
        """Names of topics, sorted; with a cluster, those with queues there."""
        if not cluster:
            return sorted(self.topics)
        return sorted(t for t, entry in self.topics.items() if any(key.cluster == cluster for key in entry.queues))

    def check_invariants(self) -> None:
        """Hold the inverted table against what the groups say; for tests."""
        expected: dict[str, dict[GroupKey, QueueConfig]] = {}
        for key, group in self.groups.items():
            assert key == group.key
            assert group.replicas, f"{key} stands empty"
            assert group.version <= self.change
            addrs = [replica.identity.addr for replica in group.replicas.values()]
            assert len(addrs) == len(set(addrs)), f"{key} has an address twice: {addrs}"
            for broker_id, replica in group.replicas.items():
                assert replica.identity.group_key == key
                assert replica.identity.broker_id == broker_id
            contributor = group.contributor()
            if contributor is not None:
                is_master = contributor.identity.broker_id == MASTER_ID
                for topic, queues in contributor.registration.topics.items():
                    expected.setdefault(topic, {})[key] = queues if is_master else queues.read_only()
        assert {topic: entry.queues for topic, entry in self.topics.items()} == expected
        assert all(entry.version <= self.change for entry in self.topics.values())
        assert self._contributions.keys() <= self.groups.keys()

    def iter_clusters(self) -> Iterator[tuple[str, list[Group]]]:
        """Clusters in order of name, each with its groups in order of name."""
        clusters: dict[str, list[Group]] = {}
        for key in sorted(self.groups):
            clusters.setdefault(key.cluster, []).append(self.groups[key])
        yield from clusters.items()
