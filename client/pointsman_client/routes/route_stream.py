"""The watch: one WatchTopicRoutes stream for all topics in use, at the name server that look-ups use, too.

It brings news sooner than the poll; what it misses the poll finds. A server says with its first words what differs from
the revisions that the client has, so a reconnect costs little and loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc
import grpc.aio

from pointsman.v1 import route_service_pb2
from pointsman.wire.backoff import FullJitterBackoff
from pointsman.wire.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.core.route import Revision, TopicRoute
from pointsman_client.errors import NameServerFailedError, RequestRejectedError
from pointsman_client.routes.codec import from_revision, to_revision, to_topic_route
from pointsman_client.routes.failover import NameServerChoice
from pointsman_client.rpc.links import NameServerLinks
from pointsman_client.rpc.status import details_of, grpc_errors_of

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.05
"""Topics that come into use within this time are watched together."""
MAX_BACKOFF_SECONDS = 5.0
"""Between two tries while no name server can be watched."""
WATCH_RETRY_SECONDS = 300.0
"""Until a server that cannot or will not be watched is asked again; the poll goes on meanwhile."""

UpdateHandler: TypeAlias = Callable[[str, str, Revision, TopicRoute | None], None]
"""Called with address, topic, revision, and the route or None for a topic that is gone."""


class RouteStream:
    """Watches until cancelled. It never raises for what a server does."""

    def __init__(
        self,
        *,
        choice: NameServerChoice,
        links: NameServerLinks,
        clock: Clock,
        rng: random.Random,
        topics: Callable[[], Sequence[str]],
        known: Callable[[str], Revision | None],
        on_update: UpdateHandler,
        on_failure: Callable[[str], None],
        first_response_seconds: float,
        zone: str,
    ) -> None:
        """``first_response_seconds``: timeout of the initial state. After that a silent stream is healthy."""
        self._choice = choice
        self._links = links
        self._clock = clock
        self._topics = topics
        self._known = known
        self._on_update = on_update
        self._on_failure = on_failure
        self._first_response_seconds = first_response_seconds
        self._zone = zone
        self._backoff = FullJitterBackoff(rng.uniform, cap=MAX_BACKOFF_SECONDS)
        self._wakeup = Wakeup(clock)
        self._max_topics_per_stream: int | None = None
        """Topics that one stream may have, as far as a server has said."""
        self._logged_rejections: set[str] = set()
        self._logged_ends: set[str] = set()
        """Servers whose failure was told, and that could not be watched since."""
        self._watched: set[str] = set()
        choice.on_move(self._wakeup.wake)

    @property
    def watched(self) -> frozenset[str]:
        """Topics of which the server has told the state, and will tell each change."""
        return frozenset(self._watched)

    def topics_changed(self) -> None:
        """Look again which topics are to be watched."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Watch what there is to watch."""
        while True:
            topics = frozenset(self._topics())
            if not topics:
                await self._changed()
                continue
            addr, started_at = self._choice.in_use, self._clock.monotonic()
            try:
                await self._watch(addr, topics)
            except RequestRejectedError as refusal:
                await self._pause(addr, refusal)
            except NameServerFailedError as failure:
                if failure.status is grpc.StatusCode.UNIMPLEMENTED:
                    await self._pause(addr, failure)
                elif not self._learn_limit(failure, len(topics)):
                    self._log_end(addr, failure)
                    self._on_failure(addr)
                    self._choice.move_on_from(addr)
                    if self._clock.monotonic() - started_at > MAX_BACKOFF_SECONDS:
                        self._backoff.reset()
                    await self._clock.sleep(self._backoff.next_wait())

    async def _watch(self, addr: str, topics: frozenset[str]) -> None:
        """Watch until other topics, or another server, are to be watched. Raises what ends a stream."""
        in_order = sorted(topics)
        size = self._max_topics_per_stream or len(in_order)
        tasks = [
            asyncio.create_task(self._read(addr, in_order[start : start + size]), name="pointsman-route-watch")
            for start in range(0, len(in_order), size)
        ]
        tasks.append(asyncio.create_task(self._until_outdated(addr, topics), name="pointsman-route-watch"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._watched.clear()

    async def _until_outdated(self, addr: str, topics: frozenset[str]) -> None:
        while addr == self._choice.in_use and topics == frozenset(self._topics()):
            await self._changed()

    async def _changed(self) -> None:
        await self._wakeup.wait(WATCH_RETRY_SECONDS)
        await self._clock.sleep(COALESCE_SECONDS)

    async def _read(self, addr: str, topics: Sequence[str]) -> None:
        link = self._links.to(addr)
        known = [self._known_route(topic) for topic in topics]
        request = route_service_pb2.WatchTopicRoutesRequest(topics=known, zone=self._zone)
        with grpc_errors_of(addr):
            call = link.routes.WatchTopicRoutes(request)
            try:
                try:
                    async with asyncio.timeout(self._first_response_seconds):
                        while not self._apply(addr, await call.read()):
                            pass
                except TimeoutError:
                    message = "no whole state in time"
                    raise NameServerFailedError(addr, grpc.StatusCode.DEADLINE_EXCEEDED, message) from None
                self._watched.update(topics)
                self._logged_ends.discard(addr)
                while True:
                    self._apply(addr, await call.read())
            finally:
                call.cancel()

    def _known_route(self, topic: str) -> route_service_pb2.KnownRoute:
        revision = self._known(topic)
        return route_service_pb2.KnownRoute(topic=topic, revision=None if revision is None else from_revision(revision))

    def _apply(self, addr: str, response: object) -> bool:
        """Pass news on; return whether they end the first state."""
        if not isinstance(response, route_service_pb2.WatchTopicRoutesResponse):
            # The end of the stream, or bytes that are no message.
            raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, "it ended the watch")
        match response.WhichOneof("news"):
            case "route":
                route = to_topic_route(response.route)
                self._on_update(addr, route.topic, route.revision, route)
            case "gone":
                self._on_update(addr, response.gone.topic, to_revision(response.gone.revision), None)
            case "absent":
                revision = to_revision(response.absent.revision)
                for topic in response.absent.topics:
                    self._on_update(addr, topic, revision, None)
            case "synced":
                return True
            case _:
                # News of a kind that is younger than this client.
                pass
        return False

    async def _pause(self, addr: str, error: NameServerFailedError | RequestRejectedError) -> None:
        """Leave it to the poll for a while: look-ups work there, so another server is not better."""
        if addr not in self._logged_rejections:
            self._logged_rejections.add(addr)
            logger.warning("routes of %s cannot be watched, they are polled alone: %s", addr, error)
        rested_at = self._clock.monotonic()
        while addr == self._choice.in_use and self._clock.monotonic() - rested_at < WATCH_RETRY_SECONDS:
            await self._wakeup.wait(WATCH_RETRY_SECONDS)

    def _log_end(self, addr: str, failure: NameServerFailedError) -> None:
        """Once an outage: a try every few seconds must not fill a log."""
        level = logging.DEBUG if addr in self._logged_ends else logging.INFO
        self._logged_ends.add(addr)
        logger.log(level, "routes are not watched at %s now, another name server is tried: %s", addr, failure)

    def _learn_limit(self, failure: NameServerFailedError, topics: int) -> bool:
        """Note how many topics a stream may have, if that was refused; return whether less is worth a try."""
        if not isinstance(failure.__cause__, grpc.aio.AioRpcError):
            return False
        facts = details_of(failure.__cause__).facts
        bound = facts.get("bound", "")
        if facts.get("limit") != "topics_per_watch" or not (bound.isascii() and bound.isdigit() and int(bound)):
            return False
        is_less = int(bound) < min(topics, self._max_topics_per_stream or topics)
        self._max_topics_per_stream = min(int(bound), self._max_topics_per_stream or int(bound))
        return is_less
