"""Route cache updates: merges lookup responses and watch events, and notifies listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pointsman.clock import Clock
from pointsman_client.aio import Callbacks, SingleFlight
from pointsman_client.core.cached_routes import CachedRoute, RouteTable
from pointsman_client.core.message_queue import order_topic_surplus
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.core.recheck_plan import RecheckPlan, WantedTopics
from pointsman_client.core.route import Revision, RouteChange, TopicRoute
from pointsman_client.core.route_agreement import RevisionOrder, as_stale, judge, loss
from pointsman_client.errors import OrderTopicConfError, TopicNotFoundError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.route_source import RouteSource
from pointsman_client.routes.failover import Failover
from pointsman_client.routes.route_watch import RouteWatch

logger = logging.getLogger(__name__)

MAX_SIMILAR_CANDIDATES = 100
"""Most recently used topics that are searched for a similar name when a topic is unknown."""

AddrsRemovedCallback = Callable[[tuple[str, ...]], None]


@dataclass(frozen=True, slots=True)
class _Response:
    addr: str
    route: TopicRoute | None
    """None: not found."""


class RouteKeeper:
    """Owner and only writer of one client's route table."""

    def __init__(
        self,
        *,
        choice: NameServerChoice,
        failover: Failover,
        source: RouteSource,
        clock: Clock,
        hook: MetricsHook,
        listeners: RouteWatch,
        plan: RecheckPlan,
        max_topics: int,
        lookup_timeout_seconds: float,
        zone: str,
        on_work: Callable[[], None],
    ) -> None:
        """``on_work()`` is called when the recheck plan or the result of :meth:`topics` changes."""
        self._choice = choice
        self._failover = failover
        self._source = source
        self._clock = clock
        self._hook = hook
        self._listeners = listeners
        self._plan = plan
        self._lookup_timeout_seconds = lookup_timeout_seconds
        self._zone = zone
        self._on_work = on_work
        self.table = RouteTable(max_topics)
        # Larger than the table: an older response may still arrive for a topic that was just evicted.
        self._order = RevisionOrder(2 * max_topics)
        self._wanted = WantedTopics(max_topics)
        self.lookups: SingleFlight[CachedRoute] = SingleFlight()
        self._addrs_removed: Callbacks[tuple[str, ...]] = Callbacks()

    def on_addrs_removed(self, callback: AddrsRemovedCallback) -> Callable[[], None]:
        """Call ``callback(addrs)`` when no cached route has these addresses any longer; return its remover."""
        return self._addrs_removed.add(callback)

    def topics(self) -> list[str]:
        """Return the topics in use, also those without a route: cached, iterated over, or requested recently."""
        wanted = self._wanted.topics(now=self._clock.monotonic())
        return list(dict.fromkeys([*self.table.topics(), *sorted(self._listeners.topics()), *wanted]))

    def want(self, topic: str) -> None:
        """Record that the application requested a topic that has no route."""
        if self._wanted.want(topic, now=self._clock.monotonic()):
            self._on_work()

    def revision_of(self, topic: str) -> Revision | None:
        """Return the revision of the cached route."""
        route = self._route(topic)
        return None if route is None else route.revision

    # Lookups

    async def look_up(self, topic: str) -> CachedRoute:
        """Look the route up, or join a lookup in progress, and return the cached route after it.

        Raises TopicNotFoundError when no route is cached then.
        """
        return await self.lookups.do(topic, lambda: self._look_up(topic))

    async def look_up_again(self, topic: str) -> CachedRoute:
        """As :meth:`look_up`, but with a lookup that starts after this call."""
        return await self.lookups.rerun(topic, lambda: self._look_up(topic))

    async def _look_up(self, topic: str) -> CachedRoute:
        accepted_before = self.table.accepted

        async def attempt(addr: str, seconds: float) -> _Response:
            known = self._route(topic)
            try:
                route = await self._source.query_route(addr, topic, seconds, zone=self._zone, known=known)
                return _Response(addr, route)
            except TopicNotFoundError:
                return _Response(addr, None)

        def is_sufficient(responses: Sequence[_Response]) -> bool:
            all_queried = {each.addr for each in responses}.issuperset(self._choice.order())
            return judge(self._route(topic), [each.route for each in responses], all_queried=all_queried) is not None

        responses = await self._failover.call_until(
            is_sufficient, attempt, timeout_seconds=self._lookup_timeout_seconds
        )
        current = [response for response in responses if self._is_current(topic, response, accepted_before)]
        if len(current) < len(responses) and any(loss(self._route(topic), response.route) for response in current):
            # An outdated response cannot confirm a removal: query all servers again.
            self._schedule_recheck(topic)
        elif current:
            self._apply(topic, current)
        cached = self.table.find(topic)
        if cached is None:
            similar = get_close_matches(topic, self.table.topics()[-MAX_SIMILAR_CANDIDATES:], n=1)
            raise TopicNotFoundError(topic, addrs=[response.addr for response in responses], similar="".join(similar))
        return cached

    def _is_current(self, topic: str, response: _Response, accepted_before: int) -> bool:
        if response.route is not None:
            return self._order.admit(topic, response.route.revision)
        # "Not found" has no revision: a watch event received during the lookup is assumed to be newer.
        cached = self.table.find(topic)
        return cached is None or cached.number <= accepted_before

    def _apply(self, topic: str, responses: Sequence[_Response]) -> None:
        verdict = judge(self._route(topic), [response.route for response in responses], all_queried=True)
        assert verdict is not None  # noqa: S101  all_queried leaves no other
        if verdict.accepted is None:
            self._announce(self.table.mark_stale(topic))
        else:
            response = responses[verdict.accepted]
            self._accept(topic, response.route, source=response.addr, is_disputed=verdict.is_disputed)
        if verdict.is_disputed:
            self._schedule_recheck(topic)
        else:
            self._plan.settled(topic)

    def _schedule_recheck(self, topic: str) -> None:
        self._plan.disputed(topic, now=self._clock.monotonic())
        self._on_work()

    # Watch events

    def on_update(self, addr: str, topic: str, revision: Revision, route: TopicRoute | None) -> None:
        """Handle a watch event; ``route`` is None for a topic that was removed."""
        if not self._order.admit(topic, revision):
            return
        known = self._route(topic)
        if known is None and route is None:
            return
        if len(self._choice.order()) > 1 and loss(known, route):
            self._plan.doubted(topic, now=self._clock.monotonic())
            self._on_work()
            return
        self._accept(topic, route, source=addr, is_disputed=False)
        self._plan.settled(topic)

    # Cache updates and their consequences

    def _accept(self, topic: str, route: TopicRoute | None, *, source: str, is_disputed: bool) -> None:
        now = self._clock.monotonic()
        was_known = self.table.find(topic) is not None
        if route is None:
            change = self.table.drop(topic)
            if change is not None:
                self._wanted.want(topic, now=now)
        else:
            accepted = as_stale(route) if is_disputed else route
            change = self.table.accept(accepted, now=now, source=source, keep=self._listeners.topics())
            self._wanted.found(topic)
            self._hook.route_confirmed(topic=topic, at=now)
        for dropped in self.table.take_dropped():
            self._plan.settled(dropped)
            self._hook.route_dropped(topic=dropped)
        self._announce(change)
        addrs = self.table.take_removed_addrs()
        if addrs:
            self._addrs_removed.notify(addrs)
        if not was_known:
            self._on_work()

    def _announce(self, change: RouteChange | None) -> None:
        if change is not None:
            _warn_of_surplus(change)
            self._listeners.announce(change)

    def _route(self, topic: str) -> TopicRoute | None:
        cached = self.table.find(topic)
        return None if cached is None else cached.route


def _warn_of_surplus(change: RouteChange) -> None:
    """Log once when an order-topic configuration has queues that a broker does not have."""
    surplus = _surplus(change.new)
    if surplus and surplus != _surplus(change.old):
        logger.warning(
            "the order-topic configuration of %s has more queues than its brokers (%s); the surplus queues are not "
            "used; correct it with `pointsmanctl order-topic set`",
            change.topic,
            surplus,
        )


def _surplus(route: TopicRoute | None) -> str:
    try:
        return "" if route is None else order_topic_surplus(route)
    except OrderTopicConfError:  # a send raises it
        return ""
