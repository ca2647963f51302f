"""The name server client: looks up routes, caches them, and derives queues from them."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from pointsman.clock import Clock, SystemClock
from pointsman.names import ROCKETMQ_SCHEME, is_rocketmq
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.credentials import Credentials, CredentialsError
from pointsman.wire.json_document import Document
from pointsman_client.aio import Closing, LoopBinding
from pointsman_client.client_options import ClientOptions
from pointsman_client.core.cached_routes import CachedRoute
from pointsman_client.core.checks import check_name, check_seconds, to_list_url, to_name_servers
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.recheck_plan import RecheckPlan
from pointsman_client.core.route import BrokerData, ClusterData, TopicRoute
from pointsman_client.description import Descriptions, describe_route
from pointsman_client.errors import (
    ClientClosedError,
    InvalidOptionError,
    NameServersUnavailableError,
    TopicNotFoundError,
)
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.pointsman_grpc.agents.agent_coordination import agent_coordination
from pointsman_client.pointsman_grpc.grpc_routes import GrpcRoutes
from pointsman_client.pointsman_grpc.links import AgentLinks, NameServerLinks
from pointsman_client.pointsman_grpc.route_stream import RouteStream
from pointsman_client.ports.coordination import MakeCoordination
from pointsman_client.ports.route_source import RouteSource
from pointsman_client.rocketmq.rocketmq_routes import RocketmqRoutes
from pointsman_client.rocketmq.rocketmq_transport import RocketmqTransport
from pointsman_client.routes.failover import Failover
from pointsman_client.routes.name_server_list import NameServerList
from pointsman_client.routes.route_keeper import AddrsRemovedCallback, RouteKeeper
from pointsman_client.routes.route_tasks import RouteTasks
from pointsman_client.routes.route_watch import RouteChangeCallback, RouteChanges, RouteWatch

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT")

READY_POLL_SECONDS = 0.5
"""Interval between two attempts of :meth:`NameServerClient.wait_until_ready`."""


@dataclass(frozen=True, slots=True)
class ClientParts:
    """What producers and consumers take from the client that they use."""

    clock: Clock
    metrics_hook: MetricsHook
    default_transport: partial[RocketmqTransport] | None
    """With RocketMQ name servers: makes a transport with the client's TLS and account for them."""
    coordination: MakeCoordination
    """Of groups, by agents; for brokers that do not coordinate them."""
    first_addr: str
    """Of a name server, or of the server of their list."""


def parts_of(client: NameServerClient) -> ClientParts:
    """Return the parts of a client; they are not for applications."""
    return client._parts  # noqa: SLF001


class NameServerClient:
    """Routes of topics, from a list of name servers.

    ::

        async with NameServerClient(["10.0.0.1:9876", "10.0.0.2:9876"]) as client:
            queues = await client.publish_queues("orders")

    The constructor opens and starts nothing. One client belongs to one event loop; share it between tasks. Routes are
    cached, watched and polled in the background, so a known topic needs no call, also while all name servers are down.
    The removal of a topic or broker is accepted when two name servers confirm it, or when no other one responds. No
    call waits longer than ``lookup_timeout_seconds``.

    The name servers are Pointsman's, or with ``rocketmq://`` addresses RocketMQ's, whose routes are polled only. With
    the URL of their list at an address server it is read every 30 s, and an unreadable one changes nothing.

    With ``zone`` a cached route has only the replica groups of that zone, and groups without a master of any zone. If
    no group remains, the route is empty; there is no fallback to another zone.
    """

    @takes_options(ClientOptions)
    def __init__(self, options: ClientOptions) -> None:
        """Check and store the options: see :class:`~pointsman_client.client_options.ClientOptions`.

        Raises :class:`InvalidAddressError` or :class:`InvalidOptionError`.
        """
        list_url, scheme = to_list_url(options.name_servers)
        self._configured = () if list_url else to_name_servers(options.name_servers)
        self._is_rocketmq = is_rocketmq(self._configured[0] if self._configured else scheme)
        if self.is_rocketmq:
            options = replace(options, watch_routes=False)
            if options.credentials is not None:
                problem = f"are not for {ROCKETMQ_SCHEME} addresses: use rocketmq_tls and rocketmq_access_key"
                raise InvalidOptionError("credentials", options.credentials, problem)
        for option in ("rocketmq_tls", "rocketmq_access_key"):
            value = getattr(options, option)
            if value is not None and not self.is_rocketmq:
                problem = f"is for {ROCKETMQ_SCHEME} addresses only: use credentials"
                # Not its value, which may be the secret.
                raise InvalidOptionError(option, type(value), problem)
        self._options = options
        self._clock: Clock = options.clock or SystemClock()
        self._hook = options.metrics_hook or MetricsHook()
        self._rng = options.rng or random.Random()  # noqa: S311  it spreads load and guards no secret
        tried_in_order = list(self._configured)
        self._arrange(tried_in_order)
        self._choice = NameServerChoice(tried_in_order)
        opener = self._opener = _opener_of(options.credentials)
        links = NameServerLinks(options.open_channel, opener)
        self._source: RouteSource = GrpcRoutes(links)
        default_transport: partial[RocketmqTransport] | None = None
        if self.is_rocketmq:
            tls, access_key = options.rocketmq_tls, options.rocketmq_access_key
            self._source = RocketmqRoutes(self._clock, tls=tls, access_key=access_key)
            default_transport = partial(RocketmqTransport, tls=tls, access_key=access_key)
        self._list = self._listed(list_url, scheme) if list_url else None
        self._failover = Failover(
            self._choice,
            self._clock,
            on_failure=self._note_failure,
            first_list=None if self._list is None else self._list.first,
        )
        self._watch = RouteWatch()
        self._plan = RecheckPlan(self._rng.uniform)
        self._keeper = RouteKeeper(
            choice=self._choice,
            failover=self._failover,
            source=self._source,
            clock=self._clock,
            hook=self._hook,
            listeners=self._watch,
            plan=self._plan,
            max_topics=options.max_topics,
            lookup_timeout_seconds=options.lookup_timeout_seconds,
            zone=options.zone,
            on_work=self._wake_tasks,
        )
        self._table = self._keeper.table
        self._lookups = self._keeper.lookups
        self._descriptions = Descriptions()
        self._binding = LoopBinding("NameServerClient")
        self._closing = Closing()
        watcher = RouteStream(
            choice=self._choice,
            links=links,
            clock=self._clock,
            rng=self._rng,
            topics=self._keeper.topics,
            known=self._keeper.revision_of,
            on_update=self._keeper.on_update,
            on_failure=self._note_failure,
            first_response_seconds=options.lookup_timeout_seconds,
            zone=options.zone,
        )
        self._tasks = RouteTasks(
            keeper=self._keeper,
            plan=self._plan,
            watcher=watcher if options.watch_routes else None,
            follow_credentials=lambda: opener.follow(
                self._clock, on_reload=lambda result: self._hook.credentials_reloaded(result=result)
            ),
            follow_list=None if self._list is None else self._list.run,
            clock=self._clock,
            rng=self._rng,
            interval_seconds=options.poll_name_server_interval_seconds,
            jitter=options.poll_jitter,
            concurrency=options.poll_concurrency,
        )
        self._parts = ClientParts(
            clock=self._clock,
            metrics_hook=self._hook,
            default_transport=default_transport,
            coordination=lambda request: agent_coordination(request, AgentLinks(options.open_channel, opener)),
            first_addr=self._configured[0] if self._configured else urlsplit(list_url).netloc,
        )

    def _arrange(self, servers: list[str]) -> None:
        if self._options.shuffle_name_servers:
            self._rng.shuffle(servers)

    def _listed(self, url: str, scheme: str) -> NameServerList:
        """Return the list at an address server. Raises InvalidOptionError for one that must not be followed."""
        # Few clients have such a list, and urllib takes long to import.
        from pointsman.name_servers.list_sources import HttpNameServers, forgeable_list_problem  # noqa: PLC0415

        credentials = self._options.credentials or Credentials()
        if problem := forgeable_list_problem(url, credentials):
            raise InvalidOptionError("name_servers", url, problem)
        return NameServerList(
            url,
            HttpNameServers(url, credentials=credentials, tls=self._options.rocketmq_tls),
            self._choice,
            self._source,
            scheme=scheme,
            arrange=self._arrange,
            clock=self._clock,
            rng=self._rng,
            hook=self._hook,
            longest_call_seconds=self._options.lookup_timeout_seconds,
        )

    # Start and close

    async def start(self) -> Self:
        """Bind the client to the running event loop and start to watch and poll; a second call does nothing.

        Does not wait for a name server: the first lookup shows whether one responds.
        """
        if not self._binding.is_bound:
            self._binding.bind()
            self._binding.check()
            self._tasks.start()
        self._binding.check()
        return self

    async def close(self) -> None:
        """Stop watching and polling, end calls and iterators, close connections.

        Waits at most ``close_timeout_seconds``.
        """
        self._binding.check(to_close=True)
        self._binding.close()
        await self._closing.do(self._close)

    async def _close(self) -> None:
        self._watch.close()
        share = self._options.close_timeout_seconds / 3
        await self._tasks.close(timeout_seconds=share)
        await self._lookups.close(timeout_seconds=share)
        await self._source.close(timeout_seconds=share)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Routes in use: cached, watched and polled

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the topic's route, from the cache if possible; the topic is then cached, watched and polled.

        Raises :class:`TopicNotFoundError` and :class:`NameServersUnavailableError` only while no route is cached.
        """
        return (await self._cached(topic)).route

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that producers may write, sorted; those of an order topic in its configured order.

        Empty while no writable broker has a master. Raises as :meth:`topic_route`, and :class:`OrderTopicConfError`.
        """
        return (await self._cached(topic)).publish_queues

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that consumers may read, sorted. Raises as :meth:`topic_route`."""
        return (await self._cached(topic)).subscribe_queues

    async def refresh(self, topic: str) -> TopicRoute:
        """Look the route up now, for instance after a failed send, and return the cached route after the lookup.

        Joins a lookup in progress. If name servers contradict each other, the cached route stays and is marked stale.
        Raises :class:`NameServersUnavailableError` when none responds; the cached route then stays unchanged. Raises
        :class:`TopicNotFoundError` when the removal of the topic is accepted.
        """
        self._binding.check()
        check_name("topic", topic)
        return (await self._look_up(topic)).route

    def cached_route(self, topic: str) -> CachedRoute | None:
        """Return the cached route and count it as use, without a wait; None: :meth:`topic_route` looks it up."""
        self._binding.check()
        return self._table.use(topic)

    def broker(self, cluster: str, broker_name: str) -> BrokerData | None:
        """Return a replica group of the cached routes in its latest version; None if no cached route has it."""
        return self._table.brokers.groups.get((cluster, broker_name))

    def brokers_of(self, topics: Iterable[str]) -> tuple[BrokerData, ...]:
        """Return the replica groups of these topics' cached routes, each once, sorted by cluster and name."""
        return self._table.brokers_of(topics)

    def on_addrs_removed(self, callback: AddrsRemovedCallback) -> Callable[[], None]:
        """Call ``callback(addrs)`` with addresses of brokers that no cached route has any longer.

        Returns the function that removes the callback. See RocketMQ's ``cleanOfflineBroker``.
        """
        return self._keeper.on_addrs_removed(callback)

    def route_age_seconds(self, topic: str) -> float | None:
        """Return the seconds since a name server last confirmed the cached route; None if no route is cached."""
        cached = self._table.find(topic)
        return None if cached is None else self._clock.monotonic() - cached.confirmed_at

    def on_route_change(self, callback: RouteChangeCallback) -> Callable[[], None]:
        """Call ``callback(change)`` for each change of a route in use; return the function that removes it."""
        return self._watch.on_change(callback)

    def route_changes(self, topic: str) -> RouteChanges:
        """Iterate over the topic's route: first the current one, as soon as there is one, then each change.

        Waits, without an error, while the topic is unknown or no name server responds.
        """
        self._binding.check()
        check_name("topic", topic)
        reader = RouteChanges(
            topic, current=lambda: self._known_route(topic), look_up=lambda: self._look_up_if_possible(topic)
        )
        self._watch.add(reader)
        self._tasks.wake()
        return reader

    async def wait_until_ready(self, topics: Collection[str] = (), *, timeout_seconds: float = 30.0) -> None:
        """Wait until each topic has a route, or without topics until a name server responds; for a service's start.

        Raises the error of the last attempt after the timeout: :class:`TopicNotFoundError` or
        :class:`NameServersUnavailableError`.
        """
        check_seconds("timeout_seconds", timeout_seconds)
        deadline = self._clock.monotonic() + timeout_seconds
        while True:
            try:
                for topic in topics:
                    await self.topic_route(topic)
                if not topics:
                    await self._query(self._source.ping)
            except (TopicNotFoundError, NameServersUnavailableError):
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise
                await self._clock.sleep(min(READY_POLL_SECONDS, left))
            else:
                return

    # Queries past the cache

    async def fetch_route(self, topic: str, *, cluster: str = "", zone: str = "") -> TopicRoute:
        """Query a route past the cache, optionally only its brokers of one cluster or zone.

        The client's own zone is ignored. The first response of a name server is returned. Raises as
        :meth:`topic_route`.
        """
        self._binding.check()
        check_name("topic", topic)
        if cluster:
            check_name("cluster", cluster)
        return await self._query(
            lambda addr, seconds: self._source.query_route(addr, topic, seconds, cluster=cluster, zone=zone)
        )

    async def list_topics(self, cluster: str = "") -> tuple[str, ...]:
        """Return the names of all topics, or of those with queues in one cluster, sorted.

        All pages are from one name server. Raises :class:`ClusterNotFoundError`.
        """
        self._binding.check()
        if cluster:
            check_name("cluster", cluster)
        return await self._query(lambda addr, seconds: self._source.query_topics(addr, seconds, cluster=cluster))

    async def list_clusters(self, cluster: str = "") -> tuple[ClusterData, ...]:
        """Return the clusters, or one, with their replica groups. Raises :class:`ClusterNotFoundError`."""
        self._binding.check()
        if cluster:
            check_name("cluster", cluster)
        return await self._query(lambda addr, seconds: self._source.query_clusters(addr, seconds, cluster=cluster))

    async def _query(self, query: Callable[[str, float], Awaitable[ResponseT]]) -> ResponseT:
        return await self._failover.call(query, timeout_seconds=self._options.lookup_timeout_seconds)

    # State

    def describe(self, topic: str) -> Document:
        """Return the client's state of a topic as a JSON document; makes no call.

        ``topic``; ``zone`` of the client, empty: all; ``route`` with RocketMQ's keys, as ``pointsmanctl route`` prints
        it, or None; ``revision``; ``ageSeconds`` since a name server, ``sourceNode``, last confirmed it; ``stale``;
        ``watched``: whether a watch reports changes; ``nameServers`` and ``nameServerInUse``; and attached sections.
        ``pointsmanctl diff --client`` reads it.
        """
        check_name("topic", topic)
        cached = self._table.find(topic)
        return {
            **describe_route(topic, cached, now=self._clock.monotonic()),
            "zone": self._options.zone,
            "watched": topic in self._tasks.watched,
            "nameServers": list(self.name_servers),
            "nameServerInUse": self._choice.in_use,
            **self._descriptions.of(topic),
        }

    def attach_description(self, name: str, function: Callable[[str], object]) -> Callable[[], None]:
        """Add ``function(topic)`` to ``describe(topic)`` under ``name``; return the function that removes it."""
        return self._descriptions.attach(name, function)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The configured servers, or those of the list at an address server; empty until it was read."""
        return self._configured if self._list is None else tuple(sorted(self._choice.order()))

    @property
    def is_rocketmq(self) -> bool:
        """Whether the name servers are RocketMQ's: their addresses begin with ``rocketmq://``."""
        return self._is_rocketmq

    @property
    def zone(self) -> str:
        """The zone that its routes are limited to; empty: all zones."""
        return self._options.zone

    @property
    def name_server_in_use(self) -> str:
        """The server that the next call tries first, and whose routes are watched; empty until there is one."""
        return self._choice.in_use

    async def _cached(self, topic: str) -> CachedRoute:
        self._binding.check()
        check_name("topic", topic)
        return self._table.use(topic) or await self._look_up(topic)

    async def _look_up(self, topic: str) -> CachedRoute:
        try:
            return await self._keeper.look_up(topic)
        except (TopicNotFoundError, NameServersUnavailableError):
            if self._table.find(topic) is None:
                self._keeper.want(topic)
            raise

    async def _look_up_if_possible(self, topic: str) -> None:
        if self._table.find(topic) is not None:
            return
        try:
            await self._keeper.look_up(topic)
        except (TopicNotFoundError, NameServersUnavailableError, ClientClosedError) as error:
            logger.info("topic %s has no route yet; waiting for one: %s", topic, error)

    def _known_route(self, topic: str) -> TopicRoute | None:
        cached = self._table.find(topic)
        return None if cached is None else cached.route

    def _note_failure(self, addr: str) -> None:
        self._hook.name_server_failed(addr=addr)

    def _wake_tasks(self) -> None:
        self._tasks.wake()


def _opener_of(credentials: Credentials | None) -> ChannelOpener:
    try:
        return ChannelOpener(credentials)
    except CredentialsError as error:
        raise InvalidOptionError("credentials", credentials, str(error)) from error
