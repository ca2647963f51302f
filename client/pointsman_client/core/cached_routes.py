"""Cached routes by topic, and the brokers in them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pointsman_client.core.message_queue import MessageQueue, to_publish_queues, to_subscribe_queues
from pointsman_client.core.route import BrokerData, BrokerKey, RouteChange, TopicRoute
from pointsman_client.core.route_agreement import as_stale
from pointsman_client.core.weighted_queues import to_queue_weights

KeyT = TypeVar("KeyT", BrokerKey, str)


class BrokerIndex:
    """The replica groups of all cached routes; of a group in several routes the version received last."""

    def __init__(self) -> None:
        self._groups: dict[BrokerKey, BrokerData] = {}
        self.groups: Mapping[BrokerKey, BrokerData] = self._groups
        """Of each group in a cached route the latest version."""
        self._routes_with: Counter[BrokerKey] = Counter()
        self._routes_naming: Counter[str] = Counter()
        self._removed: set[str] = set()

    def replace(self, old: TopicRoute | None, new: TopicRoute | None) -> None:
        """Replace ``old`` by ``new``; None: the topic was not cached, or is no longer cached."""
        for data in new.broker_datas if new is not None else ():
            self._groups[data.key] = data
            self._routes_with[data.key] += 1
            for replica in data.replicas:
                self._routes_naming[replica.addr] += 1
                self._removed.discard(replica.addr)
        for data in old.broker_datas if old is not None else ():
            if _decrement_to_zero(self._routes_with, data.key):
                del self._groups[data.key]
            for replica in data.replicas:
                if _decrement_to_zero(self._routes_naming, replica.addr):
                    self._removed.add(replica.addr)

    def confirm(self, route: TopicRoute) -> None:
        """Record that a cached route was confirmed: its groups are now the latest versions."""
        for data in route.broker_datas:
            self._groups[data.key] = data

    def of_routes(self, routes: Iterable[TopicRoute]) -> tuple[BrokerData, ...]:
        """Return the groups of these cached routes, each once, sorted by cluster and name."""
        keys = {data.key for route in routes for data in route.broker_datas}
        return tuple(self._groups[key] for key in sorted(keys))

    def take_removed(self) -> tuple[str, ...]:
        """Return the addresses that left the cached routes since the last call."""
        removed, self._removed = tuple(sorted(self._removed)), set()
        return removed


def _decrement_to_zero(counts: Counter[KeyT], key: KeyT) -> bool:
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True


@dataclass
class CachedRoute:
    """A route with its queues, which are computed on first use and cached until the route changes."""

    route: TopicRoute
    confirmed_at: float
    """When a name server last confirmed the route; monotonic seconds."""
    source: str = ""
    """The name server that confirmed it."""
    number: int = 0
    """Sequence number of the acceptance, over all topics."""

    @cached_property
    def publish_queues(self) -> tuple[MessageQueue, ...]:
        """See :func:`to_publish_queues`. Empty while no broker is up, also of an order topic."""
        return () if self.route.absent_brokers else to_publish_queues(self.route)

    @cached_property
    def queue_weights(self) -> Mapping[BrokerKey, int]:
        """See :func:`to_queue_weights`."""
        return to_queue_weights(self.route)

    @cached_property
    def subscribe_queues(self) -> tuple[MessageQueue, ...]:
        """See :func:`to_subscribe_queues`."""
        return to_subscribe_queues(self.route)


class RouteTable:
    """Cached routes of at most ``max_topics`` topics; beyond that the least recently used one is evicted."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._cached: OrderedDict[str, CachedRoute] = OrderedDict()
        self.brokers = BrokerIndex()
        """The brokers of the cached routes."""
        self._dropped: list[str] = []
        self.accepted = 0
        """Number of accepted routes, over all topics."""

    def topics(self) -> list[str]:
        """Topics with a cached route, the least recently used first."""
        return list(self._cached)

    def find(self, topic: str) -> CachedRoute | None:
        """Return a cached route without counting it as use."""
        return self._cached.get(topic)

    def use(self, topic: str) -> CachedRoute | None:
        """Return a cached route and count it as use."""
        cached = self._cached.get(topic)
        if cached is not None:
            self._cached.move_to_end(topic)
        return cached

    def accept(
        self, route: TopicRoute, *, now: float, source: str = "", keep: Collection[str] = ()
    ) -> RouteChange | None:
        """Cache a route; return the change if it is new or differs. Topics in ``keep`` are never evicted."""
        old = self._cached.get(route.topic)
        self.accepted += 1
        if old is not None and old.route.is_same_as(route):
            old.route, old.confirmed_at, old.source, old.number = route, now, source, self.accepted
            self.brokers.confirm(route)
            return None
        self._cached[route.topic] = CachedRoute(route, now, source, self.accepted)
        self.brokers.replace(old.route if old else None, route)
        self._evict_surplus(route.topic, keep)
        return RouteChange(route.topic, old.route if old else None, route)

    def mark_stale(self, topic: str) -> RouteChange | None:
        """Mark a route on whose removal name servers disagree; it stays cached with its age."""
        cached = self._cached.get(topic)
        if cached is None or cached.route.stale:
            return None
        stale = as_stale(cached.route)
        self._cached[topic] = CachedRoute(stale, cached.confirmed_at, cached.source, cached.number)
        return RouteChange(topic, cached.route, stale)

    def drop(self, topic: str) -> RouteChange | None:
        """Remove a topic that no longer exists; return the change if it was cached."""
        cached = self._cached.get(topic)
        if cached is None:
            return None
        self._remove(topic)
        return RouteChange(topic, cached.route, None)

    def take_dropped(self) -> tuple[str, ...]:
        """Return the topics removed or evicted since the last call."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def take_removed_addrs(self) -> tuple[str, ...]:
        """See :meth:`BrokerIndex.take_removed`."""
        return self.brokers.take_removed()

    def brokers_of(self, topics: Iterable[str]) -> tuple[BrokerData, ...]:
        """Return the replica groups of these topics' cached routes, each once, sorted."""
        found = (self._cached.get(topic) for topic in topics)
        return self.brokers.of_routes(cached.route for cached in found if cached is not None)

    def _evict_surplus(self, newest: str, keep: Collection[str]) -> None:
        surplus = len(self._cached) - self._max_topics
        candidates = [topic for topic in self._cached if topic != newest and topic not in keep] if surplus > 0 else []
        for topic in candidates[: max(0, surplus)]:
            self._remove(topic)

    def _remove(self, topic: str) -> None:
        self.brokers.replace(self._cached.pop(topic).route, None)
        self._dropped.append(topic)
