"""The route table: which group has which queues of which topic, and the routes that follow.

Has no notion of time or liveness: the caller refreshes a group whenever its topics may have changed. The source of
truth is what each group contributes, swapped in one step whatever its size. The index from topics to groups only shows
which groups to check. It may lag behind, and :meth:`RouteTable.settle` updates it in slices. Readers see the truth
alone.

Versions are numbers of changes. The revision counter of a route is the highest version of its parts, so a broker's
change of state affects the broker alone and none of its topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from pointsman_namesrv.core.departed import AbsentBroker, DepartedBrokers
from pointsman_namesrv.core.group import Group
from pointsman_namesrv.core.model import MASTER_ID, DataVersion, GroupKey, QueueConfig, Registration, TopicTable
from pointsman_namesrv.core.node_refusals import BrokerUnknown, TopicNotFound
from pointsman_namesrv.core.overrides import NEXT_REGISTRATION, Overrides, wiped_against
from pointsman_namesrv.core.staging import StagedTopics
from pointsman_namesrv.core.static_topics import NO_STATIC_TOPICS, QueueMapping, StaticTopics

TOPICS_PER_STEP = 5_000
"""Topics that are indexed within one call; about 3 ms."""


@dataclass(slots=True)
class TopicEntry:
    """The groups to check for one topic. Never empty while it is in the index."""

    keys: set[GroupKey] = field(default_factory=set)
    version: int = 0


@dataclass(frozen=True, slots=True)
class Contribution:
    """A group's topics in the routes at the moment, and what operators changed about them."""

    topics: TopicTable
    read_only: bool = False
    hidden: frozenset[str] = frozenset()
    absent: bool = False
    """Whether no broker is up: the topics are known, but not routed."""
    static_topics: StaticTopics = NO_STATIC_TOPICS

    def queues(self, topic: str) -> QueueConfig | None:
        """Return the queues as they are in routes, or would be if a broker were up."""
        queues = self.topics.get(topic)
        if queues is None or topic in self.hidden:
            return None
        return queues.read_only() if self.read_only else queues

    def differs_from(self, other: Contribution) -> bool:
        """Return whether a reader may see a difference; topic tables are compared by identity."""
        if self.topics is not other.topics or self.static_topics is not other.static_topics:
            return True
        return (self.read_only, self.hidden, self.absent) != (
            other.read_only,
            other.hidden,
            other.absent,
        )


NOTHING = Contribution({})


@dataclass(slots=True)
class _Lag:
    """A swap that the index has not completely followed yet."""

    key: GroupKey
    change: int
    before: TopicTable
    after: TopicTable
    rest: Iterator[str]

    def concerns(self, topic: str) -> bool:
        return topic in self.after or topic in self.before

    def changes(self, topic: str) -> bool:
        """Return whether the index will apply the change to the topic's version. Readers must not see other changes."""
        return self.after.get(topic) != self.before.get(topic)


@dataclass(slots=True)
class Touched:
    """Watched topics and groups whose routes may have changed since the last :meth:`take`.

    Never larger than the watched topics plus the groups, so :meth:`take` need not walk over all topics.
    """

    interest: Collection[str] = ()
    """Watched topics; the owner updates it."""
    topics: dict[str, None] = field(default_factory=dict)
    groups: dict[GroupKey, None] = field(default_factory=dict)
    """Groups of which every topic is to be checked."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups)

    def note(self, topic: str) -> None:
        """Note that a topic's route may have changed."""
        if topic in self.interest:
            self.topics[topic] = None

    def note_all_of(self, key: GroupKey) -> None:
        """Note that the route of each topic of a group may have changed."""
        if self.interest:
            self.groups[key] = None

    def take(self) -> tuple[list[str], list[GroupKey]]:
        """Return what was noted, and clear it."""
        topics, groups = list(self.topics), list(self.groups)
        self.topics.clear()
        self.groups.clear()
        return topics, groups


@dataclass(frozen=True, slots=True)
class Route:
    """The response to a route query, sorted by group key. The groups are live: read them before the next call."""

    topic: str
    counter: int
    queues: tuple[tuple[GroupKey, QueueConfig], ...]
    groups: tuple[Group, ...]
    order_topic_conf: str = ""
    static_mappings: tuple[tuple[GroupKey, QueueMapping], ...] = ()
    """Of a static topic: the logical queues that each group leads, whatever the zone."""
    absent: tuple[AbsentBroker, ...] = ()
    """Groups that had the topic, sorted, where no broker is up; else empty."""


class RouteTable:
    """``topic_queue_table`` and ``broker_addr_table`` of RocketMQ's RouteInfoManager, keyed with the cluster."""

    def __init__(self, overrides: Overrides, departed: DepartedBrokers | None = None) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.change = 0
        """Number of the last change that clients can see."""
        self.touched = Touched()
        self._overrides = overrides
        self._departed = DepartedBrokers() if departed is None else departed
        self._absent: dict[GroupKey, int] = {}
        """Groups whose topics are known but not routed, with the number of the change that caused it."""
        self._contributions: dict[GroupKey, Contribution] = {}
        self._index: dict[str, TopicEntry] = {}
        self._lags: deque[_Lag] = deque()
        self._hiding: set[GroupKey] = set()
        """Groups with hidden topics. While there are none, a settled index is the truth."""
        self._order_topics: dict[str, str] = {}
        self._floor = 0
        """Number of the last change of an operator setting for one topic. Such changes are rare, so one moves the
        revisions of all topics and the digest of one."""
        self._sorted: list[str] | None = None
        """The names in the index."""
        self._names: list[str] = []
        self._names_of: tuple[str, int] | None = None
        """Cluster and change of the last list of names, which is requested page by page."""

    # --- changes ----------------------------------------------------------------------------------------------

    def refresh(self, group: Group, *, visibly: bool = True, staged: StagedTopics | None = None) -> None:
        """Update the table after a group changed; ``visibly``: in more than its topics.

        ``staged``: how the topics of one of its replicas differ from others. Where it does not apply, all topics are
        compared. A change of few topics moves their revisions alone, a change of many those of all topics of the group.
        """
        self.change += 1
        if visibly:
            group.version = self.change
        key = group.key
        if group.replicas:
            self.groups[key] = group
        else:
            self.groups.pop(key, None)
        before, after = self._contributions.get(key, NOTHING), self._contribution_of(group)
        self._note_absence(group, after)
        if visibly or (after.read_only, after.absent) != (before.read_only, before.absent):
            self.touched.note_all_of(key)
        if not after.differs_from(before):
            return
        if after is NOTHING:
            self._contributions.pop(key, None)
        else:
            self._contributions[key] = after
        if after.absent != before.absent or after.read_only != before.read_only:
            group.version = self.change
        self._hide(key, before.hidden, after.hidden)
        if after.topics is not before.topics:
            self._follow(group, before.topics, after.topics, staged)
        if after.static_topics is not before.static_topics:
            self._note_mappings(group, after.static_topics.differences(before.static_topics))

    def _note_mappings(self, group: Group, topics: Iterable[str]) -> None:
        """Move the revision of each topic whose mapping changed; of all of the group's while the index lags."""
        for topic in topics:
            self.touched.note(topic)
            entry = self._index.get(topic)
            if entry is None or self._lags:
                group.version = self.change
            else:
                entry.version = self.change

    def _hide(self, key: GroupKey, before: frozenset[str], after: frozenset[str]) -> None:
        if after != before:
            self._floor = self.change
            for topic in after ^ before:
                self.touched.note(topic)
        if after:
            self._hiding.add(key)
        else:
            self._hiding.discard(key)

    def _note_absence(self, group: Group, after: Contribution) -> None:
        """Record the version of a group without a broker that is up: it outlives the group itself."""
        if after.absent:
            version = max(group.version, self._absent.get(group.key, self.change))
            self._absent[group.key] = group.version = version
        else:
            self._absent.pop(group.key, None)

    def _contribution_of(self, group: Group) -> Contribution:
        contributor = group.contributor()
        registration = self._departed.registration_of(group) if contributor is None else contributor.registration
        if registration is None:
            return NOTHING
        read_only = registration.identity.broker_id != MASTER_ID or group.key in self._overrides.wipes
        hidden = self._overrides.hidden(registration)
        static = registration.static_topics
        return Contribution(registration.topics, read_only, hidden, contributor is None, static)

    def registration_behind(self, key: GroupKey) -> Registration | None:
        """Return the registration that provides a group's topics, whether a broker is up or not."""
        group = self.groups.get(key) or Group(key)
        contributor = group.contributor()
        return self._departed.registration_of(group) if contributor is None else contributor.registration

    def _follow(self, group: Group, before: TopicTable, after: TopicTable, staged: StagedTopics | None) -> None:
        if staged is not None and staged.compared_with is before and staged.topics is after:
            count, rest = len(staged.changed) + len(staged.removed), chain(staged.changed, staged.removed)
        else:
            count, rest = len(before) + len(after), chain(before, (topic for topic in after if topic not in before))
        lag = _Lag(group.key, self.change, before, after, rest)
        if count > TOPICS_PER_STEP:
            group.version = self.change
            self._lags.append(lag)
        elif self._lags:
            self._lags.append(lag)
            group.version = self.change
        else:
            self._work_off(lag, TOPICS_PER_STEP + 1)

    def settle(self, at_most: int = TOPICS_PER_STEP) -> bool:
        """Index some topics of pending swaps; return whether the index still lags."""
        if self._lags and self._work_off(self._lags[0], at_most):
            self._lags.popleft()
        return bool(self._lags)

    def lags(self, key: GroupKey) -> bool:
        """Return whether the index has yet to follow a swap of this group."""
        return any(lag.key == key for lag in self._lags)

    def _work_off(self, lag: _Lag, at_most: int) -> bool:
        """Index at most ``at_most`` topics of a swap; return whether it is done."""
        for _ in range(at_most):
            topic = next(lag.rest, None)
            if topic is None:
                return True
            queues = lag.after.get(topic)
            if queues == lag.before.get(topic):
                continue
            entry = self._index.get(topic)
            if entry is None:
                if queues is None:
                    continue
                entry = self._index[topic] = TopicEntry()
                self._sorted = None
            self.touched.note(topic)
            entry.version = max(entry.version, lag.change)
            if queues is not None:
                entry.keys.add(lag.key)
            else:
                entry.keys.discard(lag.key)
                if not entry.keys:
                    del self._index[topic]
                    self._sorted = None
        return False

    def set_order_topic(self, topic: str, conf: str) -> None:
        """Configure an order topic (RocketMQ's ``ORDER_TOPIC_CONFIG``); an empty string ends it."""
        if self._order_topics.get(topic, "") == conf:
            return
        self.change += 1
        self._floor = self.change
        self.touched.note(topic)
        if conf:
            self._order_topics[topic] = conf
        else:
            del self._order_topics[topic]

    # --- queries ----------------------------------------------------------------------------------------------

    def holders(self, topic: str, cluster: str = "") -> list[GroupKey]:
        """Return the groups that have a topic in the routes, unsorted."""
        known = self.known(topic, cluster)
        return [key for key in known if key not in self._absent] if self._absent else known

    def known(self, topic: str, cluster: str = "") -> list[GroupKey]:
        """Return the groups that have a topic, those without a broker that is up included, unsorted."""
        entry = self._index.get(topic)
        keys: Iterable[GroupKey] = entry.keys if entry is not None else ()
        if self._lags:
            keys = {*keys, *(lag.key for lag in self._lags if lag.concerns(topic))}
        if self._lags or self._hiding:
            keys = [key for key in keys if self._has(key, topic)]
        return [key for key in keys if not cluster or key.cluster == cluster]

    def _has(self, key: GroupKey, topic: str) -> bool:
        return self._contributions.get(key, NOTHING).queues(topic) is not None

    def counter(self, topic: str) -> int | None:
        """Return the revision counter of a topic's route; None: the topic is not known."""
        keys = self.known(topic)
        return self._counter(topic, keys) if keys else None

    def _counter(self, topic: str, keys: list[GroupKey]) -> int:
        entry = self._index.get(topic)
        version = self._floor if entry is None else max(self._floor, entry.version)
        for lag in self._lags:
            if lag.changes(topic):
                version = max(version, lag.change)
        groups = self.groups
        # A group that left may have been replaced by one that returned, whose own version is the later one.
        return max(version, *(groups[key].version if key in groups else self._absent[key] for key in keys))

    def route(self, topic: str, *, cluster: str = "", zone: str = "") -> Route:
        """Answer a route query. Raises TopicNotFound.

        With a zone, groups of other zones are left out, except those without a master ("master down: break the
        nearby rule", RocketMQ ``ZoneRouteRPCHook``); the route may then be empty.
        """
        everywhere = self.known(topic)
        keys = sorted(key for key in everywhere if key not in self._absent and (not cluster or key.cluster == cluster))
        if not keys:
            raise TopicNotFound(topic, cluster)
        static = tuple(
            (key, mapping) for key in keys if (mapping := self._contributions[key].static_topics.get(topic)) is not None
        )
        if zone:
            keys = [key for key in keys if self._is_near(self.groups[key], zone)]
        queues = ((key, self._contributions[key].queues(topic)) for key in keys)
        return Route(
            topic,
            self._counter(topic, everywhere),
            tuple((key, of_group) for key, of_group in queues if of_group is not None),
            tuple(self.groups[key] for key in keys),
            self._order_topics.get(topic, ""),
            static,
        )

    def current(self, topic: str, *, cluster: str = "", zone: str = "") -> Route:
        """Return the route, else that no broker is up. Raises TopicNotFound for a topic that is not known."""
        try:
            return self.route(topic, cluster=cluster, zone=zone)
        except TopicNotFound:
            return self.absent_route(topic, cluster=cluster)

    def absent_route(self, topic: str, *, cluster: str = "") -> Route:
        """Return the empty route of a topic that is known but has no broker up, in any zone. Raises TopicNotFound."""
        everywhere = self.known(topic)
        keys = sorted(key for key in everywhere if not cluster or key.cluster == cluster)
        if not keys:
            raise TopicNotFound(topic, cluster)
        absent = [broker for key in keys for broker in self._departed.absent(key, self.groups.get(key))]
        conf = self._order_topics.get(topic, "")
        return Route(topic, self._counter(topic, everywhere), (), (), conf, absent=tuple(absent))

    @staticmethod
    def _is_near(group: Group, zone: str) -> bool:
        lowest = group.lowest()
        return (
            lowest is None or lowest.identity.broker_id != MASTER_ID or lowest.registration.zone.lower() == zone.lower()
        )

    def contribution(self, key: GroupKey) -> Contribution:
        """Return what a group has in the routes, or would have if a broker were up."""
        return self._contributions.get(key, NOTHING)

    def topics_of(self, key: GroupKey) -> TopicTable:
        """Return the topics of a group, hidden ones included. Not to be altered."""
        return self._contributions.get(key, NOTHING).topics

    def topic_names(self, cluster: str = "") -> list[str]:
        """Return the names of topics, sorted; with a cluster, those with queues there. Not to be altered."""
        if self._names_of != (cluster, self.change):
            self._names = self._name_topics(cluster)
            self._names_of = (cluster, self.change)
        return self._names

    def _name_topics(self, cluster: str) -> list[str]:
        if self._lags or cluster:
            names = chain(self._index, *(lag.after for lag in self._lags))
            return sorted({topic for topic in names if self.holders(topic, cluster)})
        doubtful = self._hidden().union(*(self._contributions[key].topics for key in self._absent))
        return self._those(doubtful, self.holders)

    def known_names(self) -> list[str]:
        """Return the names of topics, sorted, those without a broker that is up included. Not to be altered."""
        if self._lags:
            names = chain(self._index, *(lag.after for lag in self._lags))
            return sorted({topic for topic in names if self.known(topic)})
        return self._those(self._hidden(), self.known)

    def _hidden(self) -> frozenset[str]:
        return frozenset[str]().union(*(self._contributions[key].hidden for key in self._hiding))

    def _those(self, doubtful: frozenset[str], having: Callable[[str], list[GroupKey]]) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self._index)
        if not doubtful:
            return self._sorted
        return [topic for topic in self._sorted if topic not in doubtful or having(topic)]

    def topic_count(self) -> int:
        """Return the approximate number of topics, by the index, which may lag."""
        return len(self._index)

    def iter_clusters(self) -> Iterator[tuple[str, list[Group]]]:
        """Iterate over clusters by name, each with its groups by name."""
        clusters: dict[str, list[Group]] = {}
        for key in sorted(self.groups):
            clusters.setdefault(key.cluster, []).append(self.groups[key])
        yield from clusters.items()

    # --- settings of operators --------------------------------------------------------------------------------

    def set_writable(self, key: GroupKey, writable: bool) -> bool:
        """Wipe the write permission of a group, or restore it; return whether that changed anything.

        What ends a wipe: see :class:`pointsman_namesrv.core.overrides.Overrides`. Raises BrokerUnknown.
        """
        wiped, wipes = self.check_writable(key, writable), self._overrides.wipes
        if writable is (key not in wipes):
            return False
        if wiped is None:
            del wipes[key]
        else:
            wipes[key] = wiped
        self._refresh_held([key])
        return True

    def check_writable(self, key: GroupKey, writable: bool) -> str | None:
        """Return the version or incarnation that a wipe applies to; None: no wipe. Raises BrokerUnknown."""
        group, wiped = self.groups.get(key), self._overrides.wipes.get(key)
        if group is None and wiped is None:
            raise BrokerUnknown(key)
        if writable:
            return None
        if group is None or wiped is not None:
            return wiped
        master = group.replicas.get(MASTER_ID)
        if master is not None:
            return wiped_against(master.registration)
        slave = group.lowest()
        return "" if slave is None or slave.registration.from_broker is None else NEXT_REGISTRATION

    def versions_holding(self, topic: str, cluster: str = "") -> dict[GroupKey, DataVersion]:
        """Return the groups that have a topic, broker up or not, with the version of their topics. Raises
        TopicNotFound."""
        return {key: behind.data_version for key, behind in self._behind(self.known(topic, cluster), topic, cluster)}

    def hide_topic(self, topic: str, cluster: str = "", *, with_absent: bool = True) -> list[GroupKey]:
        """Hide a topic on every group that has it, until the group registers another version of its topics; return
        those.

        ``with_absent``: also where no broker is up. Raises TopicNotFound.
        """
        keys = self.known(topic, cluster) if with_absent else self.holders(topic, cluster)
        holders = self._behind(keys, topic, cluster)
        for key, behind in holders:
            self._overrides.hide(topic, behind)
            self.refresh(self.groups.get(key) or Group(key), visibly=False)
        return [key for key, _ in holders]

    def restore_overrides(
        self, wipes: Mapping[GroupKey, str], tombstones: Mapping[GroupKey, Mapping[str, DataVersion]]
    ) -> None:
        """Restore the operators' settings."""
        self._refresh_held(self._overrides.restore(wipes, tombstones))

    def _behind(self, keys: Collection[GroupKey], topic: str, cluster: str) -> list[tuple[GroupKey, Registration]]:
        if not keys:
            raise TopicNotFound(topic, cluster)
        found = ((key, self.registration_behind(key)) for key in sorted(keys))
        return [(key, registration) for key, registration in found if registration is not None]

    def _refresh_held(self, keys: Iterable[GroupKey]) -> None:
        for key in keys:
            if (group := self.groups.get(key)) is not None:
                self.refresh(group)

    def check_invariants(self) -> None:
        """Compare what readers see with the registrations, and the settled index with both; for tests."""
        expected: dict[str, dict[GroupKey, QueueConfig]] = {}
        indexed: dict[str, set[GroupKey]] = {}
        for key, group in self.groups.items():
            assert key == group.key
            assert group.replicas, f"{key} is empty"
            assert group.version <= self.change
            addrs = [replica.identity.addr for replica in group.replicas.values()]
            assert len(addrs) == len(set(addrs)), f"{key} has an address twice: {addrs}"
            for broker_id, replica in group.replicas.items():
                assert replica.identity.group_key == key
                assert replica.identity.broker_id == broker_id
            contributor = group.contributor()
            assert (key in self._absent) == (contributor is None and self._contribution_of(group) is not NOTHING)
            if contributor is not None:
                writable = contributor.identity.broker_id == MASTER_ID and key not in self._overrides.wipes
                hidden = self._overrides.hidden(contributor.registration)
                for topic, queues in contributor.registration.topics.items():
                    indexed.setdefault(topic, set()).add(key)
                    if topic not in hidden:
                        expected.setdefault(topic, {})[key] = queues if writable else queues.read_only()
        seen = {topic: dict(self.route(topic).queues) for topic in self.topic_names()}
        assert seen == expected
        while self.settle():
            pass
        for key in self._absent:
            for topic in self._contribution_of(self.groups.get(key) or Group(key)).topics:
                indexed.setdefault(topic, set()).add(key)
        assert {topic: entry.keys for topic, entry in self._index.items()} == indexed
        assert set(self.known_names()) == {topic for topic in self._index if self.known(topic)}
        assert {topic: dict(self.route(topic).queues) for topic in self.topic_names()} == expected
        assert all(entry.version <= self.change for entry in self._index.values())
        assert self._contributions.keys() <= self.groups.keys() | self._absent.keys()
