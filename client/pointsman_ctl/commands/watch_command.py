"""The command ``watch``: route changes from one name server; if it fails, from the next in the list."""

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

from pointsman.backoff import FullJitterBackoff
from pointsman.names import printable
from pointsman.v1 import route_service_pb2
from pointsman.wire.json_document import Document, to_document, to_route_document
from pointsman.wire.operator_texts import moment_text, time_text
from pointsman_client import NameServerFailedError, NameServersUnavailableError
from pointsman_ctl.commands.route_commands import route_parts
from pointsman_ctl.options.command_options import duration_option, in_cluster, read_names
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_OK, failure_sentence, failure_text
from pointsman_ctl.output.output_layout import ALARM, show
from pointsman_ctl.output.route_difference import DIFFERENCE_STYLES, route_difference
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.server_calls import To

LONGEST_WAIT_SECONDS = 2.0
"""Longest pause between two rounds over all servers while none responds."""
REMEMBERED_BOOTS = 16
"""Runs of name servers whose counters are kept, per topic."""


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, callback=read_names, shell_complete=complete_topics, metavar="TOPIC..."
)
@in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only brokers of this zone, and those without a master.")
@duration_option("365d", help="Stop after this time, e.g. 10m (default: Ctrl-C).")
@pass_invocation
def watch(invocation: Invocation, topics: tuple[str, ...], cluster: str, zone: str, seconds: int | None) -> int:
    """Print the route of each TOPIC, then every change.

    Watches at the first server in the list that responds. If it fails, the watch continues at the next server and
    prints only differences. Exits 0 after --for, 130 on Ctrl-C, 1 if no server responds at the start. With --output
    json each change is one object per line.

    \b
    JSON: at, addr, topic, revision.{boot, counter, digest},
          route.{as in route}; route is null while no broker has the topic

    \b
    Examples:
      pointsmanctl watch orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 watch orders payments --for 10m
      pointsmanctl -o json watch orders | jq -c '.route.brokerDatas'
    """

    def print_change(addr: str, change: RouteChange) -> None:
        at = datetime.now(UTC)
        if invocation.is_json:
            click.echo(json.dumps(to_change_document(addr, change, at=at)))
        else:
            show(change_parts(addr, change, at=at))

    def warn_of_failure(failure: NameServerFailedError, had_begun: bool) -> None:
        if had_begun:
            invocation.warn("WATCH_ENDED", f"the watch at {failure.addr} ended ({failure_text(failure)})", "continuing")
        else:
            invocation.warn(failure.code, failure_sentence(failure.addr, failure), "continuing")

    def warn_of_missing(addr: str, missing: list[str]) -> None:
        text = f"{addr} is WARMING and does not know the route of {', '.join(missing)} yet"
        invocation.warn("TOPIC_NOT_KNOWN_YET", text, "waiting")

    watcher = RouteWatcher(
        invocation.name_servers,
        invocation.connections,
        topics,
        cluster=cluster,
        zone=zone,
        timeout_seconds=invocation.timeout_seconds,
        on_change=print_change,
        on_failure=warn_of_failure,
        on_missing=warn_of_missing,
        on_resume=lambda addr: invocation.warn("WATCH_RESUMED", f"watching at {addr}"),
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


def to_change_document(addr: str, change: RouteChange, *, at: datetime) -> Document:
    """Render a change."""
    return {
        "at": moment_text(at),
        "addr": addr,
        "topic": change.topic,
        "revision": to_document(change.revision),
        "route": to_route_document(change.new) if change.new else None,
    }


def change_parts(addr: str, change: RouteChange, *, at: datetime) -> Iterable[RenderableType]:
    """Show the complete route the first time, then what changed."""
    yield Text(
        f"{time_text(at)}  {printable(change.topic)}  at {addr}, revision {change.revision.counter}", style="bold"
    )
    if change.new is None:
        yield Text("no routed broker has the topic", style=ALARM)
    elif change.old is None:
        yield from route_parts(change.new)
    else:
        lines = route_difference(change.old, change.new)
        for line in lines:
            yield Text(line, style=DIFFERENCE_STYLES[line[0]])
        if not lines:
            yield Text("changed in fields unknown to this version of pointsmanctl")
    yield ""


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A change of a route."""

    topic: str
    revision: route_service_pb2.Revision
    old: route_service_pb2.TopicRoute | None
    """None: the topic was not shown yet, or had no route."""
    new: route_service_pb2.TopicRoute | None
    """None: no routed broker has the topic."""


class WatchedRoutes:
    """The last shown route of each topic. Pure.

    Older revisions of the same boot and unchanged routes are not shown.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self._shown: dict[str, RouteChange | None] = dict.fromkeys(topics)
        self._counters: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        """By topic and boot."""

    def known(self) -> list[route_service_pb2.KnownRoute]:
        """Return the revisions that a server does not need to send again."""
        return [
            route_service_pb2.KnownRoute(topic=topic, revision=shown.revision if shown and shown.new else None)
            for topic, shown in self._shown.items()
        ]

    def missing(self) -> list[str]:
        """Return the topics without a response: a WARMING server may not know them."""
        return [topic for topic, shown in self._shown.items() if shown is None]

    def accept(self, response: route_service_pb2.WatchTopicRoutesResponse) -> list[RouteChange]:
        """Apply one response and return the changes to show."""
        routes: list[tuple[str, route_service_pb2.Revision, route_service_pb2.TopicRoute | None]] = []
        match response.WhichOneof("news"):
            case "route":
                routes = [(response.route.topic, response.route.revision, response.route)]
            case "gone":
                routes = [(response.gone.topic, response.gone.revision, None)]
            case "absent":
                routes = [(topic, response.absent.revision, None) for topic in response.absent.topics]
        return [change for route in routes if (change := self._accept(*route)) is not None]

    def _accept(
        self, topic: str, revision: route_service_pb2.Revision, route: route_service_pb2.TopicRoute | None
    ) -> RouteChange | None:
        counters = self._counters.get(topic)
        if counters is None or revision.counter < counters.get(revision.boot, 0):
            return None
        counters.pop(revision.boot, None)
        counters[revision.boot] = revision.counter
        if len(counters) > REMEMBERED_BOOTS:
            del counters[next(iter(counters))]
        shown = self._shown[topic]
        change = RouteChange(topic, revision, shown.new if shown else None, route)
        self._shown[topic] = change
        return change if shown is None or not _same(change.old, change.new) else None


def _same(old: route_service_pb2.TopicRoute | None, new: route_service_pb2.TopicRoute | None) -> bool:
    if old is None or new is None:
        return old is new
    digests = old.revision.digest, new.revision.digest
    return digests[0] == digests[1] if all(digests) else not route_difference(old, new)


class RouteWatcher:
    """Watches routes until cancelled."""

    def __init__(
        self,
        addrs: Sequence[str],
        connections: Callable[[], AbstractAsyncContextManager[To[PointsmanNameServer]]],
        topics: Sequence[str],
        *,
        cluster: str,
        zone: str,
        timeout_seconds: float,
        on_change: Callable[[str, RouteChange], None],
        on_failure: Callable[[NameServerFailedError, bool], None],
        on_resume: Callable[[str], None],
        on_missing: Callable[[str, list[str]], None],
    ) -> None:
        """``timeout_seconds`` limits the wait for a server's first response; later ones come only with changes.

        ``on_failure`` receives the failure, and whether the server had responded before.
        """
        self._addrs = addrs
        self._connections = connections
        self._routes = WatchedRoutes(topics)
        self._cluster = cluster
        self._zone = zone
        self._timeout_seconds = timeout_seconds
        self._on_change = on_change
        self._on_failure = on_failure
        self._on_resume = on_resume
        self._on_missing = on_missing
        self._first_failures: list[NameServerFailedError] = []
        self._has_responded = False
        """Whether any server has, since the start."""
        self._has_begun = False
        """Whether the present one has."""
        self._reported = 0

    async def run(self) -> None:
        """Watch until cancelled.

        Raises NameServersUnavailableError if no server responds at the start; later it retries.
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
        if not self._has_responded:
            self._first_failures.append(failure)
            if len(self._first_failures) == len(self._addrs):
                raise NameServersUnavailableError(self._first_failures) from failure
        if self._reported < len(self._addrs):
            # Once per server, not at every retry.
            self._reported += 1
            self._on_failure(failure, self._has_begun)

    async def _watch(self, server: PointsmanNameServer) -> None:
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
            # The end of the stream, or a response that cannot be decoded.
            raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, "the server ended the watch")
        self._has_responded = self._has_begun = True
        if response.WhichOneof("news") == "synced":
            if self._reported:
                self._on_resume(addr)
            self._reported = 0
            missing = self._routes.missing()
            if missing:
                self._on_missing(addr, missing)
        for change in self._routes.accept(response):
            self._on_change(addr, change)
