"""The client of the name servers: looks routes up, keeps them, and turns them into queues."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import grpc

from pointsman.v1 import route_service_pb2
from pointsman_client.address import check_name, to_name_servers
from pointsman_client.channel import NameServerLinks
from pointsman_client.clock import Clock, SystemClock
from pointsman_client.codec import to_cluster_data, to_topic_route
from pointsman_client.errors import (
    ClientClosedError,
    ClientNotStartedError,
    ClusterNotFoundError,
    NameServerFailedError,
    NameServersUnavailableError,
    TopicNotFoundError,
    WrongEventLoopError,
)
from pointsman_client.failover import Failover, NameServerChoice
from pointsman_client.message_queue import MessageQueue
from pointsman_client.options import ClientOptions
from pointsman_client.poller import RoutePoller
from pointsman_client.route import ClusterData, RouteChange, TopicRoute
from pointsman_client.route_table import CachedRoute, RouteTable
from pointsman_client.route_watch import RouteChangeCallback, RouteChanges, RouteWatch
from pointsman_client.single_flight import SingleFlight

logger = logging.getLogger(__name__)

TOPICS_PER_PAGE = 10_000
"""The most that ListTopics allows; 127 characters each stay well under gRPC's 4 MiB."""


class NameServerClient:
    """Routes of topics from a list of name servers.

    ::

        async with NameServerClient(["10.0.0.1:9876", "10.0.0.2:9876"]) as client:
            queues = await client.publish_queues("orders")

    The constructor opens nothing and starts nothing. One client belongs to one event loop; share it between tasks.
    Routes are cached: a known topic is answered without a call, also while all name servers are down, and polled in
    the background. No call waits longer than ``lookup_timeout_seconds``.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        poll_name_server_interval_seconds: float = 30.0,
        poll_jitter: float = 0.1,
        lookup_timeout_seconds: float = 3.0,
        close_timeout_seconds: float = 2.0,
        max_topics: int = 1_000,
        poll_concurrency: int = 8,
        shuffle_name_servers: bool = True,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Check and keep the settings (see :class:`~pointsman_client.options.ClientOptions`).

        Raises :class:`InvalidAddressError` or :class:`InvalidOptionError`.
        """
        self._options = ClientOptions(
            poll_name_server_interval_seconds=poll_name_server_interval_seconds,
            poll_jitter=poll_jitter,
            lookup_timeout_seconds=lookup_timeout_seconds,
            close_timeout_seconds=close_timeout_seconds,
            max_topics=max_topics,
            poll_concurrency=poll_concurrency,
            shuffle_name_servers=shuffle_name_servers,
        )
        self._name_servers = to_name_servers(name_servers)
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311  it spreads load and guards no secret
        tried_in_order = list(self._name_servers)
        if shuffle_name_servers:
            self._rng.shuffle(tried_in_order)
        self._choice = NameServerChoice(tried_in_order)
        self._failover = Failover(self._choice, self._clock)
        self._links = NameServerLinks()
        self._table = RouteTable(max_topics)
        self._watch = RouteWatch()
        self._lookups: SingleFlight[CachedRoute] = SingleFlight()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poll_task: asyncio.Task[None] | None = None
        self._closed = False

    # Life

    async def start(self) -> Self:
        """Bind the client to the running event loop and begin to poll; a second call changes nothing.

        Waits for no name server: whether one answers shows at the first lookup.
        """
        if self._closed:
            raise ClientClosedError
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            poller = RoutePoller(
                clock=self._clock,
                rng=self._rng,
                interval_seconds=self._options.poll_name_server_interval_seconds,
                jitter=self._options.poll_jitter,
                concurrency=self._options.poll_concurrency,
                topics=self._polled_topics,
                look_up=self._look_up,
            )
            self._poll_task = asyncio.create_task(poller.run(), name="pointsman-route-poll")
            self._poll_task.add_done_callback(_log_end_of_poll)
        self._check_usable()
        return self

    async def close(self) -> None:
        """Stop polling, end calls and iterators, close connections; takes at most ``close_timeout_seconds``."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise WrongEventLoopError
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        share = self._options.close_timeout_seconds / 3
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.wait([self._poll_task], timeout=share)
        await self._lookups.close(timeout_seconds=share)
        await self._links.close(timeout_seconds=share)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Routes in use: cached and polled

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the topic's route, from the cache if it is there.

        Raises :class:`TopicNotFoundError` and :class:`NameServersUnavailableError` only while none is cached.
        """
        return (await self._cached(topic)).route

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that producers may write, sorted; those of an order topic as its configuration has them.

        Empty while no writable broker has its master. Raises as :meth:`topic_route`, and
        :class:`OrderTopicConfError`.
        """
        return (await self._cached(topic)).publish_queues

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that consumers may read, sorted. Raises as :meth:`topic_route`."""
        return (await self._cached(topic)).subscribe_queues

    async def refresh(self, topic: str) -> TopicRoute:
        """Ask for the route now, for instance after a failed send, and return what is known then.

        Joins a lookup that is under way. A route that was known stays whatever happens: marked stale when the topic is
        not found any more; when no name server answers, :class:`NameServersUnavailableError` says so.
        """
        self._check_usable()
        check_name("topic", topic)
        return (await self._look_up(topic)).route

    def route_age_seconds(self, topic: str) -> float | None:
        """Return how long ago a name server last confirmed the cached route; None when none is cached."""
        cached = self._table.find(topic)
        return None if cached is None else self._clock.monotonic() - cached.confirmed_at

    def on_route_change(self, callback: RouteChangeCallback) -> Callable[[], None]:
        """Call ``callback(change)`` for each change of a route in use; returns the function that ends it."""
        return self._watch.on_change(callback)

    def route_changes(self, topic: str) -> RouteChanges:
        """Iterate over the topic's route: first as it is, as soon as there is one, then each change.

        Waits, without an error, while the topic is unknown or no name server answers.
        """
        self._check_usable()
        check_name("topic", topic)
        reader = RouteChanges(
            topic, current=lambda: self._known_route(topic), look_up=lambda: self._look_up_if_possible(topic)
        )
        self._watch.add(reader)
        return reader

    # Questions that are asked once: nothing is cached

    async def fetch_route(self, topic: str, *, cluster: str = "", zone: str = "") -> TopicRoute:
        """Ask for a route past the cache, if wanted only its brokers of one cluster or zone."""
        self._check_usable()
        check_name("topic", topic)
        if cluster:
            check_name("cluster", cluster)

        async def attempt(addr: str, seconds: float) -> TopicRoute:
            link = self._links.to(addr)
            response = await link.call(
                link.routes.GetTopicRoute,
                route_service_pb2.GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone),
                timeout_seconds=seconds,
                not_found=lambda: TopicNotFoundError(topic, cluster=cluster, zone=zone),
            )
            if response.route.topic != topic:
                message = f"answered for topic {response.route.topic!r}"
                raise NameServerFailedError(addr, grpc.StatusCode.INTERNAL, message)
            return to_topic_route(response.route)

        return await self._failover.ask(attempt, timeout_seconds=self._options.lookup_timeout_seconds)

    async def list_topics(self, cluster: str = "") -> tuple[str, ...]:
        """Return the names of all topics, or of those with queues in one cluster, sorted.

        All pages come from one name server. Raises :class:`ClusterNotFoundError`.
        """
        self._check_usable()
        if cluster:
            check_name("cluster", cluster)

        async def attempt(addr: str, seconds: float) -> tuple[str, ...]:
            link, deadline = self._links.to(addr), self._clock.monotonic() + seconds
            topics: list[str] = []
            request = route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE)
            while True:
                page = await link.call(
                    link.routes.ListTopics,
                    request,
                    timeout_seconds=max(0.0, deadline - self._clock.monotonic()),
                    not_found=lambda: ClusterNotFoundError(cluster),
                )
                topics += page.topics
                if not page.next_page_token:
                    return tuple(topics)
                request.page_token = page.next_page_token

        return await self._failover.ask(attempt, timeout_seconds=self._options.lookup_timeout_seconds)

    async def list_clusters(self, cluster: str = "") -> tuple[ClusterData, ...]:
        """Return the clusters, or one, with their replica groups. Raises :class:`ClusterNotFoundError`."""
        self._check_usable()
        if cluster:
            check_name("cluster", cluster)

        async def attempt(addr: str, seconds: float) -> tuple[ClusterData, ...]:
            link = self._links.to(addr)
            response = await link.call(
                link.routes.GetClusterInfo,
                route_service_pb2.GetClusterInfoRequest(cluster=cluster),
                timeout_seconds=seconds,
                not_found=lambda: ClusterNotFoundError(cluster),
            )
            return tuple(to_cluster_data(data) for data in response.clusters)

        return await self._failover.ask(attempt, timeout_seconds=self._options.lookup_timeout_seconds)

    # What is in use

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The servers as they were given."""
        return self._name_servers

    @property
    def name_server_in_use(self) -> str:
        """The server that the next call asks first."""
        return self._choice.in_use

    def _check_usable(self) -> None:
        if self._closed:
            raise ClientClosedError
        if self._loop is None:
            raise ClientNotStartedError
        if self._loop is not asyncio.get_running_loop():
            raise WrongEventLoopError

    async def _cached(self, topic: str) -> CachedRoute:
        self._check_usable()
        check_name("topic", topic)
        return self._table.use(topic) or await self._look_up(topic)

    async def _look_up(self, topic: str) -> CachedRoute:
        return await self._lookups.do(topic, lambda: self._fetch_into_table(topic))

    async def _fetch_into_table(self, topic: str) -> CachedRoute:
        change: RouteChange | None
        try:
            route = await self.fetch_route(topic)
        except TopicNotFoundError:
            change = self._table.mark_stale(topic)
            if self._table.find(topic) is None:
                raise
        else:
            change = self._table.accept(route, now=self._clock.monotonic(), keep=self._watch.topics())
        if change is not None:
            self._watch.announce(change)
        cached = self._table.find(topic)
        assert cached is not None  # noqa: S101  accepted or kept above, and the table never drops the newest
        return cached

    async def _look_up_if_possible(self, topic: str) -> None:
        if self._table.find(topic) is not None:
            return
        try:
            await self._look_up(topic)
        except (TopicNotFoundError, NameServersUnavailableError, ClientClosedError) as error:
            logger.info("no route of %s yet: %s", topic, error)

    def _known_route(self, topic: str) -> TopicRoute | None:
        cached = self._table.find(topic)
        return None if cached is None else cached.route

    def _polled_topics(self) -> list[str]:
        return list(dict.fromkeys([*self._table.topics(), *sorted(self._watch.topics())]))


def _log_end_of_poll(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("routes are polled no more", exc_info=error)
