"""The name server client for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pointsman.wire.json_document import Document
from pointsman_client import client as async_client
from pointsman_client.client_options import ClientOptions, SharedOptions
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options, values_for
from pointsman_client.core.route import BrokerData, ClusterData, RouteChange, TopicRoute
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ownership import MessagingOptions
from pointsman_client.pointsman_grpc.links import OpenChannel
from pointsman_client.pointsman_grpc.thread_channel import open_thread_channel
from pointsman_client.routes.route_keeper import AddrsRemovedCallback
from pointsman_client.routes.route_watch import RouteChangeCallback
from pointsman_client.sync.facade import CallOptions, Facade


@dataclass(frozen=True, kw_only=True)
class SyncClientOptions(ClientOptions, CallOptions):
    """Options of :class:`NameServerClient`: those of the async one except ``open_channel``, and the call timeout."""

    open_channel: OpenChannel = field(default_factory=lambda: open_thread_channel, init=False)


class NameServerClient(Facade):
    """Routes of topics, from a list of name servers, with blocking calls.

    ::

        with NameServerClient(["10.0.0.1:9876", "10.0.0.2:9876"]) as client:
            queues = client.publish_queues("orders")

    The methods are those of :class:`pointsman_client.NameServerClient`, and raise the same. Share it between threads.
    """

    @takes_options(SyncClientOptions)
    def __init__(self, options: SyncClientOptions) -> None:
        """See :class:`pointsman_client.NameServerClient`."""
        self.inner = async_client.NameServerClient(**values_for(ClientOptions, options))
        """The async client; only usable in the background loop."""
        super().__init__(self.inner, call_timeout_seconds=options.call_timeout_seconds)

    def topic_route(self, topic: str) -> TopicRoute:
        """Return the topic's route, from the cache if possible."""
        return self._call(lambda: self.inner.topic_route(topic))

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that producers may write, sorted; those of an order topic in its configured order."""
        return self._call(lambda: self.inner.publish_queues(topic))

    def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that consumers may read, sorted."""
        return self._call(lambda: self.inner.subscribe_queues(topic))

    def refresh(self, topic: str) -> TopicRoute:
        """Look the route up now and return the cached route after the lookup."""
        return self._call(lambda: self.inner.refresh(topic))

    def broker(self, cluster: str, broker_name: str) -> BrokerData | None:
        """Return a replica group of the cached routes; None if no cached route has it."""
        return self._invoke(lambda: self.inner.broker(cluster, broker_name))

    def brokers_of(self, topics: Iterable[str]) -> tuple[BrokerData, ...]:
        """Return the replica groups of these topics' cached routes, each once, sorted."""
        return self._invoke(lambda: self.inner.brokers_of(topics))

    def on_addrs_removed(self, callback: AddrsRemovedCallback) -> Callable[[], None]:
        """Call ``callback(addrs)``, on a thread of this client, with addresses that no cached route has any longer."""
        remove = self._invoke(lambda: self.inner.on_addrs_removed(self._called_back(callback)))
        return lambda: self._invoke(remove)

    def route_age_seconds(self, topic: str) -> float | None:
        """Return the seconds since a name server last confirmed the cached route; None if no route is cached."""
        return self._invoke(lambda: self.inner.route_age_seconds(topic))

    def on_route_change(self, callback: RouteChangeCallback) -> Callable[[], None]:
        """Call ``callback(change)``, on a thread of this client, for each change of a route in use.

        Returns the function that removes the callback.
        """
        remove = self._invoke(lambda: self.inner.on_route_change(self._called_back(callback)))
        return lambda: self._invoke(remove)

    def route_changes(self, topic: str) -> RouteChanges:
        """Iterate over the topic's route: first the current one, as soon as there is one, then each change."""
        changes = self._invoke(lambda: self.inner.route_changes(topic))

        async def next_change() -> RouteChange | None:
            return await anext(changes, None)

        return RouteChanges(
            topic, next_change=lambda: self._wait(next_change), close=lambda: self._invoke(changes.close)
        )

    def wait_until_ready(self, topics: Collection[str] = (), *, timeout_seconds: float = 30.0) -> None:
        """Wait until each topic has a route, or without topics until a name server responds."""
        self._call(
            lambda: self.inner.wait_until_ready(topics, timeout_seconds=timeout_seconds), seconds=timeout_seconds
        )

    def fetch_route(self, topic: str, *, cluster: str = "", zone: str = "") -> TopicRoute:
        """Query a route past the cache, optionally only its brokers of one cluster or zone."""
        return self._call(lambda: self.inner.fetch_route(topic, cluster=cluster, zone=zone))

    def list_topics(self, cluster: str = "") -> tuple[str, ...]:
        """Return the names of all topics, or of those with queues in one cluster, sorted."""
        return self._call(lambda: self.inner.list_topics(cluster))

    def list_clusters(self, cluster: str = "") -> tuple[ClusterData, ...]:
        """Return the clusters, or one, with their replica groups."""
        return self._call(lambda: self.inner.list_clusters(cluster))

    def describe(self, topic: str) -> Document:
        """Return the client's state of a topic as a JSON document; makes no call."""
        return self._invoke(lambda: self.inner.describe(topic))

    def attach_description(self, name: str, function: Callable[[str], object]) -> Callable[[], None]:
        """Add ``function(topic)`` to ``describe(topic)`` under ``name``; return the function that removes it."""
        remove = self._invoke(lambda: self.inner.attach_description(name, function))
        return lambda: self._invoke(remove)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The configured servers, or those of the list at an address server; empty until it was read."""
        return self.inner.name_servers

    @property
    def is_rocketmq(self) -> bool:
        """Whether the name servers are RocketMQ's: their addresses begin with ``rocketmq://``."""
        return self.inner.is_rocketmq

    @property
    def zone(self) -> str:
        """The zone that its routes are limited to; empty: all zones."""
        return self.inner.zone

    @property
    def name_server_in_use(self) -> str:
        """The server that the next call tries first, and whose routes are watched; empty until there is one."""
        return self.inner.name_server_in_use


def client_for(options: MessagingOptions, *, zone: str, call_timeout_seconds: float) -> NameServerClient:
    """Return the client of a producer or consumer: the one that was passed in, or a new one."""
    given = options.name_servers
    if isinstance(given, NameServerClient):
        return given
    if isinstance(given, async_client.NameServerClient):
        problem = "belongs to an event loop: pass pointsman_client.sync.NameServerClient, or addresses"
        raise InvalidOptionError("name_servers", given, problem)
    shared = values_for(SharedOptions, options)
    return NameServerClient(given, zone=zone, call_timeout_seconds=call_timeout_seconds, **shared)


def inner_options(kind: type[MessagingOptions], options: MessagingOptions, client: NameServerClient) -> dict[str, Any]:
    """Return the options of the async producer or consumer that uses ``client``, from :func:`client_for`."""
    inner = values_for(kind, options) | {"name_servers": client.inner}
    if not isinstance(options.name_servers, NameServerClient):
        # They were passed to the client.
        inner |= {"credentials": None, "rocketmq_tls": None, "rocketmq_access_key": None}
    return inner


class RouteChanges:
    """Iterator over one topic's route: first the current one, then each change; ends when the client closes."""

    def __init__(self, topic: str, *, next_change: Callable[[], RouteChange | None], close: Callable[[], None]) -> None:
        self.topic = topic
        self._next_change = next_change
        self._close = close

    def __iter__(self) -> RouteChanges:
        return self

    def __next__(self) -> RouteChange:
        change = self._next_change()
        if change is None:
            raise StopIteration
        return change

    def close(self) -> None:
        """End the iteration."""
        self._close()
