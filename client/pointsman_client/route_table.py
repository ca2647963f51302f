"""The routes that the client knows, and how old each one is. Pure: ``now`` is the caller's monotonic seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from pointsman_client.message_queue import MessageQueue, to_publish_queues, to_subscribe_queues
from pointsman_client.route import RouteChange, TopicRoute


@dataclass
class CachedRoute:
    """A route with its queues, which are made when first asked for and kept while the route stays the same."""

    route: TopicRoute
    confirmed_at: float
    """When a name server last said that this is the route; monotonic seconds."""

    @cached_property
    def publish_queues(self) -> tuple[MessageQueue, ...]:
        """See :func:`to_publish_queues`."""
        return to_publish_queues(self.route)

    @cached_property
    def subscribe_queues(self) -> tuple[MessageQueue, ...]:
        """See :func:`to_subscribe_queues`."""
        return to_subscribe_queues(self.route)


class RouteTable:
    """Topic to cached route, at most ``max_topics`` of them; the topic unused for longest makes room."""

    def __init__(self, max_topics: int) -> None:
        self._max_topics = max_topics
        self._cached: OrderedDict[str, CachedRoute] = OrderedDict()

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

    def accept(self, route: TopicRoute, *, now: float, keep: Collection[str] = ()) -> RouteChange | None:
        """Take an answer; return the change if the route is new or differs. Topics in ``keep`` never make room."""
        old = self._cached.get(route.topic)
        if old is not None and old.route.is_same_as(route):
            old.route, old.confirmed_at = route, now
            return None
        self._cached[route.topic] = CachedRoute(route, now)
        self._make_room(route.topic, keep)
        return RouteChange(route.topic, old.route if old else None, route)

    def mark_stale(self, topic: str) -> RouteChange | None:
        """Note that the topic was not found: the last route stays, since one node's word may be wrong."""
        cached = self._cached.get(topic)
        if cached is None or cached.route.stale:
            return None
        stale = replace(cached.route, stale=True)
        self._cached[topic] = CachedRoute(stale, cached.confirmed_at)
        return RouteChange(topic, cached.route, stale)

    def _make_room(self, newest: str, keep: Collection[str]) -> None:
        surplus = len(self._cached) - self._max_topics
        candidates = [topic for topic in self._cached if topic != newest and topic not in keep] if surplus > 0 else []
        for topic in candidates[: max(0, surplus)]:
            del self._cached[topic]
