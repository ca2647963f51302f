"""Cached routes by topic, and the brokers that they name."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pointsman_client.core.message_queue import MessageQueue, to_publish_queues, to_subscribe_queues
from pointsman_client.core.route import BrokerData, BrokerKey, RouteChange, TopicRoute
from pointsman_client.core.route_agreement import as_stale

KeyT = TypeVar("KeyT", BrokerKey, str)


class BrokerIndex:
    """Follows the cached routes. Of a group that stands in several routes the one heard of last counts."""

    def __init__(self) -> None:
        self._groups: dict[BrokerKey, BrokerData] = {}
        self._routes_with: Counter[BrokerKey] = Counter()
        self._routes_naming: Counter[str] = Counter()
        self._removed: set[str] = set()

    def replace(self, old: TopicRoute | None, new: TopicRoute | None) -> None:
        """Take ``new`` for ``old``; None: none was cached, or none is any more."""
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
        """Note that a cached route is still what it was: its groups were heard of last."""
        for data in route.broker_datas:
            self._groups[data.key] = data

    def find(self, cluster: str, broker_name: str) -> BrokerData | None:
        """Return a group that some cached route has."""
        return self._groups.get((cluster, broker_name))

    def of_routes(self, routes: Iterable[TopicRoute]) -> tuple[BrokerData, ...]:
        """Return the groups of these cached routes, each once, sorted by cluster and name."""
        keys = {data.key for route in routes for data in route.broker_datas}
        return tuple(self._groups[key] for key in sorted(keys))

    def take_removed(self) -> tuple[str, ...]:
        """Return the addresses of brokers that no cached route has any more; each is told once."""
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
    """A route with its queues, which are made when first asked for and kept while the route stays the same."""

    route: TopicRoute
    confirmed_at: float
    """When a name server last said that this is the route; monotonic seconds."""
    source: str = ""
    """The name server that said it."""
    number: int = 0
    """Of the acceptance, over all topics: a higher one was later."""

    @cached_property
    def publish_queues(self) -> tuple[MessageQueue, ...]:
        """See :func:`to_publish_queues`. Empty while no broker is up, also for an order topic."""
        return () if self.route.absent_brokers else to_publish_queues(self.route)

    @cached_property
    def subscribe_queues(self) -> tuple[MessageQueue, ...]:
        """See :func:`to_subscribe_queues`."""
        return to_subscribe_queues(self.route)


class RouteTable:
    """Topic to cached route, at most ``max_topics`` of them; the topic unused for longest makes room."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._cached: OrderedDict[str, CachedRoute] = OrderedDict()
        self.brokers = BrokerIndex()
        """The brokers of the cached routes."""
        self._dropped: list[str] = []
        self.accepted = 0
        """How often a route was accepted, over all topics."""

    def topics(self) -> list[str]:
        """Topics with a cached route, the one unused for longest first."""
        return list(self._cached)

    def find(self, topic: str) -> CachedRoute | None:
        """Look without counting it as use."""
        return self._cached.get(topic)

    def use(self, topic: str) -> CachedRoute | None:
        """Look on behalf of the application, which keeps the topic in the table."""
        cached = self._cached.get(topic)
        if cached is not None:
            self._cached.move_to_end(topic)
        return cached

    def accept(
        self, route: TopicRoute, *, now: float, source: str = "", keep: Collection[str] = ()
    ) -> RouteChange | None:
        """Take an answer; return the change if the route is new or differs. Topics in ``keep`` never make room."""
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
        """Note that name servers contradict each other on what is gone: the last route stays, with its age."""
        cached = self._cached.get(topic)
        if cached is None or cached.route.stale:
            return None
        stale = as_stale(cached.route)
        self._cached[topic] = CachedRoute(stale, cached.confirmed_at, cached.source, cached.number)
        return RouteChange(topic, cached.route, stale)

    def drop(self, topic: str) -> RouteChange | None:
        """Take the topic out, since it is gone; return the change if it was there."""
        cached = self._cached.get(topic)
        if cached is None:
            return None
        self._remove(topic)
        return RouteChange(topic, cached.route, None)

    def take_dropped(self) -> tuple[str, ...]:
        """Return the topics whose route is no longer kept; each is told once."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def take_removed_addrs(self) -> tuple[str, ...]:
        """Return the addresses of brokers that no cached route has any more; each is told once."""
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
