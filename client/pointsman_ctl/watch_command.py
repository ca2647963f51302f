"""The command ``watch``: routes at one name server after another; when one ends, the next in the list takes over."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle

import click
import grpc
import grpc.aio
from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import route_service_pb2
from pointsman.wire.backoff import FullJitterBackoff
from pointsman.wire.json_document import Document, to_document, to_route_document
from pointsman_client import NameServerFailedError, NameServersUnavailableError
from pointsman_ctl.answer_layout import ALARM, show
from pointsman_ctl.command_options import duration_option, in_cluster, read_names
from pointsman_ctl.error_report import EXIT_OK, answer_words, failure_words
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.operator_texts import moment_text, printable, time_words
from pointsman_ctl.route_commands import route_parts
from pointsman_ctl.route_difference import DIFFERENCE_STYLES, route_difference
from pointsman_ctl.server_calls import Server, ToServer

LONGEST_WAIT_SECONDS = 2.0
"""Between two rounds over all servers while none answers."""
REMEMBERED_BOOTS = 16
"""Runs of name servers whose counters are remembered, for each topic."""


@click.command()
@click.argument("topics", nargs=-1, required=True, callback=read_names, metavar="TOPIC...")
@in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only groups of this zone, and those without a master.")
@duration_option("365d", help="End after this, as 10m; else at Ctrl-C.")
@pass_invocation
def watch(invocation: Invocation, topics: tuple[str, ...], cluster: str, zone: str, seconds: int | None) -> int:
    """Show where each TOPIC is, then each change as it comes.

    Watches at the first server in the list that answers; when that ends, it goes on at the next and shows only what is
    different there. Exits 0 when --for is over, 130 at Ctrl-C, 1 if no server answers from the start. With --output
    json each change is one object a line.

    \b
    JSON: at, addr, topic, revision.{boot, counter, digest},
          route.{as in route}; route is null while no broker has the topic

    \b
    Examples:
      pointsmanctl watch orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 watch orders payments --for 10m
      pointsmanctl -o json watch orders | jq -c '.route.brokerDatas'
    """

    def print_news(addr: str, news: RouteNews) -> None:
        at = datetime.now(UTC)
        if invocation.is_json:
            click.echo(json.dumps(to_news_document(addr, news, at=at)))
        else:
            show(news_parts(addr, news, at=at))

    def warn_of_failure(failure: NameServerFailedError, had_begun: bool) -> None:
        if had_begun:
            invocation.warn("WATCH_ENDED", f"the watch at {failure.addr} ended ({failure_words(failure)})", "going on")
        else:
            invocation.warn(failure.code, answer_words(failure.addr, failure), "going on")

    def warn_of_missing(addr: str, missing: list[str]) -> None:
        words = f"{addr} has just started and does not know yet where {', '.join(missing)} is"
        invocation.warn("TOPIC_NOT_KNOWN_YET", words, "waiting")

    watcher = RouteWatcher(
        invocation.name_servers,
        invocation.connections,
        topics,
        cluster=cluster,
        zone=zone,
        timeout_seconds=invocation.timeout_seconds,
        on_news=print_news,
        on_failure=warn_of_failure,
        on_missing=warn_of_missing,
        on_return=lambda addr: invocation.warn("WATCH_RESUMED", f"watching at {addr}"),
    )

    async def within() -> int:
        try:
            async with asyncio.timeout(seconds) as limit:
                await watcher.run()
        except TimeoutError:
            if not limit.expired():
                raise
        return EXIT_OK

    return asyncio.run(within())


def to_news_document(addr: str, news: RouteNews, *, at: datetime) -> Document:
    """Render a change."""
    return {
        "at": moment_text(at),
        "addr": addr,
        "topic": news.topic,
        "revision": to_document(news.revision),
        "route": to_route_document(news.new) if news.new else None,
    }


def news_parts(addr: str, news: RouteNews, *, at: datetime) -> Iterable[RenderableType]:
    """Show the route as it is the first time, then what changed."""
    yield Text(f"{time_words(at)}  {printable(news.topic)}  at {addr}, revision {news.revision.counter}", style="bold")
    if news.new is None:
        yield Text("no broker in the routes has it", style=ALARM)
    elif news.old is None:
        yield from route_parts(news.new)
    else:
        lines = route_difference(news.old, news.new)
        for line in lines:
            yield Text(line, style=DIFFERENCE_STYLES[line[0]])
        if not lines:
            yield Text("changed in what this pointsmanctl cannot read")
    yield ""


@dataclass(frozen=True, slots=True)
class RouteNews:
    """The route of a topic is now another."""

    topic: str
    revision: route_service_pb2.Revision
    old: route_service_pb2.TopicRoute | None
    """None when nothing was shown of the topic, or that it had no route."""
    new: route_service_pb2.TopicRoute | None
    """None: no broker in the routes has the topic."""


class WatchedRoutes:
    """What was shown of each topic. Pure.

    It never goes back to an older revision of the same boot, and never repeats what was shown last.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self._shown: dict[str, RouteNews | None] = dict.fromkeys(topics)
        self._counters: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        """By topic and boot."""

    def known(self) -> list[route_service_pb2.KnownRoute]:
        """Return what a server need not send again."""
        return [
            route_service_pb2.KnownRoute(topic=topic, revision=shown.revision if shown and shown.new else None)
            for topic, shown in self._shown.items()
        ]

    def missing(self) -> list[str]:
        """Return the topics of which nothing was received yet: a server that is WARMING does not know."""
        return [topic for topic, shown in self._shown.items() if shown is None]

    def accept(self, response: route_service_pb2.WatchTopicRoutesResponse) -> list[RouteNews]:
        """Take one response and return what is to be shown."""
        routes: list[tuple[str, route_service_pb2.Revision, route_service_pb2.TopicRoute | None]] = []
        match response.WhichOneof("news"):
            case "route":
                routes = [(response.route.topic, response.route.revision, response.route)]
            case "gone":
                routes = [(response.gone.topic, response.gone.revision, None)]
            case "absent":
                routes = [(topic, response.absent.revision, None) for topic in response.absent.topics]
        return [news for route in routes if (news := self._accept(*route)) is not None]

    def _accept(
        self, topic: str, revision: route_service_pb2.Revision, route: route_service_pb2.TopicRoute | None
    ) -> RouteNews | None:
        counters = self._counters.get(topic)
        if counters is None or revision.counter < counters.get(revision.boot, 0):
            return None
        counters.pop(revision.boot, None)
        counters[revision.boot] = revision.counter
        if len(counters) > REMEMBERED_BOOTS:
            del counters[next(iter(counters))]
        shown = self._shown[topic]
        news = RouteNews(topic, revision, shown.new if shown else None, route)
        self._shown[topic] = news
        return news if shown is None or not _same(news.old, news.new) else None


def _same(old: route_service_pb2.TopicRoute | None, new: route_service_pb2.TopicRoute | None) -> bool:
    if old is None or new is None:
        return old is new
    digests = old.revision.digest, new.revision.digest
    return digests[0] == digests[1] if all(digests) else not route_difference(old, new)


class RouteWatcher:
    """Watches until it is cancelled."""

    def __init__(
        self,
        addrs: Sequence[str],
        connections: Callable[[], AbstractAsyncContextManager[ToServer]],
        topics: Sequence[str],
        *,
        cluster: str,
        zone: str,
        timeout_seconds: float,
        on_news: Callable[[str, RouteNews], None],
        on_failure: Callable[[NameServerFailedError, bool], None],
        on_return: Callable[[str], None],
        on_missing: Callable[[str, list[str]], None],
    ) -> None:
        """``timeout_seconds`` bounds the wait for a server's first response; later it is silent while nothing changes.

        ``on_failure`` gets whether the server had answered before it failed.
        """
        self._addrs = addrs
        self._connections = connections
        self._routes = WatchedRoutes(topics)
        self._cluster = cluster
        self._zone = zone
        self._timeout_seconds = timeout_seconds
        self._on_news = on_news
        self._on_failure = on_failure
        self._on_return = on_return
        self._on_missing = on_missing
        self._first_failures: list[NameServerFailedError] = []
        self._was_synced = False
        self._has_begun = False
        self._reported = 0

    async def run(self) -> None:
        """Watch until cancelled.

        Raises NameServersUnavailableError when no server answers from the start; later it retries.
        """
        loop = asyncio.get_running_loop()
        backoff = FullJitterBackoff(random.uniform, cap=LONGEST_WAIT_SECONDS)
        short_tries = 0
        async with self._connections() as to:
            for addr in cycle(self._addrs):
                started_at = loop.time()
                self._has_begun = False
                try:
                    await self._watch(to(addr))
                except NameServerFailedError as failure:
                    self._note(failure)
                if loop.time() - started_at > LONGEST_WAIT_SECONDS:
                    short_tries = 0
                    backoff.reset()
                short_tries += 1
                if short_tries % len(self._addrs) == 0:
                    await asyncio.sleep(backoff.next_wait())

    def _note(self, failure: NameServerFailedError) -> None:
        if not self._was_synced:
            self._first_failures.append(failure)
            if len(self._first_failures) == len(self._addrs):
                raise NameServersUnavailableError(self._first_failures) from failure
        if self._reported < len(self._addrs):
            # Each once, not at every retry.
            self._reported += 1
            self._on_failure(failure, self._has_begun)

    async def _watch(self, server: Server) -> None:
        request = route_service_pb2.WatchTopicRoutesRequest(
            topics=self._routes.known(), cluster=self._cluster, zone=self._zone
        )
        with server.errors():
            call = server.routes.WatchTopicRoutes(request)
            try:
                self._take(server.addr, await self._first(server.addr, call))
                while True:
                    self._take(server.addr, await call.read())
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
            if self._reported:
                self._on_return(addr)
            self._was_synced, self._reported = True, 0
            missing = self._routes.missing()
            if missing:
                self._on_missing(addr, missing)
        for news in self._routes.accept(response):
            self._on_news(addr, news)


COMMANDS = (watch,)
