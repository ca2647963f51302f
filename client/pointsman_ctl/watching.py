"""Watch routes at one name server after another: whichever ends, the next in the list takes over.

What is shown never goes back to an older revision of the same boot, and never repeats what was shown last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from pointsman.v1 import route_service_pb2
from pointsman.wire.backoff import FullJitterBackoff
from pointsman_client.core.route import Revision, TopicRoute
from pointsman_client.core.route_agreement import RevisionOrder
from pointsman_client.errors import NameServerFailedError, NameServersUnavailableError
from pointsman_client.routes.codec import from_revision, to_revision, to_topic_route
from pointsman_client.routes.failover import NameServerChoice
from pointsman_client.rpc.name_server_link import NameServerLink, NameServerLinks
from pointsman_client.rpc.status import grpc_errors_of
from pointsman_ctl.node import CLOSE_SECONDS

LONGEST_WAIT_SECONDS = 2.0
"""Between two rounds over all servers while none answers."""


@dataclass(frozen=True, slots=True)
class RouteNews:
    """The route of a topic is now another."""

    topic: str
    revision: Revision
    old: TopicRoute | None
    """None when nothing was shown of the topic, or that it had no route."""
    new: TopicRoute | None
    """None: no broker in the routes has the topic."""
    is_first: bool


class WatchedRoutes:
    """What was shown of each topic. Pure."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._shown: dict[str, RouteNews | None] = dict.fromkeys(topics)
        self._order = RevisionOrder(len(topics))

    def known(self) -> list[route_service_pb2.KnownRoute]:
        """Return what a server need not send again."""
        known = []
        for topic, shown in self._shown.items():
            route = route_service_pb2.KnownRoute(topic=topic)
            if shown is not None and shown.new is not None:
                route.revision.CopyFrom(from_revision(shown.revision))
            known.append(route)
        return known

    def untold(self) -> list[str]:
        """Return the topics of which nothing was said yet: a server that is WARMING does not know."""
        return [topic for topic, shown in self._shown.items() if shown is None]

    def accept(self, response: route_service_pb2.WatchTopicRoutesResponse) -> RouteNews | None:
        """Take one piece of news and return what is to be shown, if anything."""
        kind = response.WhichOneof("news")
        if kind == "route":
            route = to_topic_route(response.route)
            return self._accept(route.topic, route.revision, route)
        if kind == "gone":
            return self._accept(response.gone.topic, to_revision(response.gone.revision), None)
        return None

    def _accept(self, topic: str, revision: Revision, route: TopicRoute | None) -> RouteNews | None:
        if topic not in self._shown:
            return None
        if not self._order.admit(topic, revision):
            return None
        shown = self._shown[topic]
        news = RouteNews(topic, revision, shown.new if shown else None, route, is_first=shown is None)
        self._shown[topic] = news
        return news if news.is_first or not _same(news.old, news.new) else None


def _same(old: TopicRoute | None, new: TopicRoute | None) -> bool:
    return old is new if old is None or new is None else old.is_same_as(new)


class RouteWatcher:
    """Watches until it is cancelled."""

    def __init__(
        self,
        addrs: Sequence[str],
        topics: Sequence[str],
        *,
        cluster: str,
        zone: str,
        timeout_seconds: float,
        on_news: Callable[[str, RouteNews], None],
        on_failure: Callable[[NameServerFailedError, bool], None],
        on_return: Callable[[str], None],
        on_untold: Callable[[str, list[str]], None],
    ) -> None:
        """``timeout_seconds`` bounds the wait for a server's first word; later it is silent while nothing changes.

        ``on_failure`` is told whether the server had said anything before it failed.
        """
        self._choice = NameServerChoice(addrs)
        self._servers = len(addrs)
        self._routes = WatchedRoutes(topics)
        self._cluster = cluster
        self._zone = zone
        self._timeout_seconds = timeout_seconds
        self._on_news = on_news
        self._on_failure = on_failure
        self._on_return = on_return
        self._on_untold = on_untold
        self._first_failures: list[NameServerFailedError] = []
        self._was_synced = False
        self._has_begun = False
        self._told = 0

    async def run(self) -> None:
        """Watch for ever.

        Raises NameServersUnavailableError when no server answers from the start; afterwards it goes on asking.
        """
        links = NameServerLinks()
        loop = asyncio.get_running_loop()
        backoff = FullJitterBackoff(random.uniform, cap=LONGEST_WAIT_SECONDS)
        short_tries = 0
        try:
            while True:
                addr, started_at = self._choice.in_use, loop.time()
                self._has_begun = False
                try:
                    await self._watch(links.to(addr))
                except NameServerFailedError as failure:
                    self._note(failure)
                if loop.time() - started_at > LONGEST_WAIT_SECONDS:
                    short_tries = 0
                    backoff.reset()
                short_tries += 1
                self._choice.move_on_from(addr)
                if short_tries % self._servers == 0:
                    await asyncio.sleep(backoff.next_wait())
        finally:
            await links.close(timeout_seconds=CLOSE_SECONDS)

    def _note(self, failure: NameServerFailedError) -> None:
        if not self._was_synced:
            self._first_failures.append(failure)
            if len(self._first_failures) == self._servers:
                raise NameServersUnavailableError(self._first_failures) from failure
        if self._told < self._servers:
            # Each once: what goes on failing is no news.
            self._told += 1
            self._on_failure(failure, self._has_begun)

    async def _watch(self, link: NameServerLink) -> None:
        request = route_service_pb2.WatchTopicRoutesRequest(
            topics=self._routes.known(), cluster=self._cluster, zone=self._zone
        )
        with grpc_errors_of(link.addr):
            call = link.routes.WatchTopicRoutes(request)
            try:
                self._take(link.addr, await self._first(link.addr, call))
                while True:
                    self._take(link.addr, await call.read())
            finally:
                call.cancel()

    async def _first(
        self,
        addr: str,
        call: grpc.aio.UnaryStreamCall[
            route_service_pb2.WatchTopicRoutesRequest, route_service_pb2.WatchTopicRoutesResponse
        ],
    ) -> object:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await call.read()
        except TimeoutError:
            raise NameServerFailedError(addr, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    def _take(self, addr: str, response: object) -> None:
        if not isinstance(response, route_service_pb2.WatchTopicRoutesResponse):
            # The end of the stream, or bytes that are no message.
            raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, "it ended the watch")
        self._has_begun = True
        if response.WhichOneof("news") == "synced":
            if self._told:
                self._on_return(addr)
            self._was_synced, self._told = True, 0
            untold = self._routes.untold()
            if untold:
                self._on_untold(addr, untold)
        news = self._routes.accept(response)
        if news is not None:
            self._on_news(addr, news)
