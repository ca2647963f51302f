"""The watch: one WatchTopicRoutes stream for all topics in use, at the name server that lookups use.

After a failure it goes through the others, and one is used instead of those that failed once it sends its state.

Changes arrive sooner than by polling, and the poll finds what the watch missed. On a new stream the server first sends
what differs from the client's revisions, so a reconnect is cheap and loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc
import grpc.aio

from pointsman.backoff import FullJitterBackoff
from pointsman.clock import Clock
from pointsman.v1 import route_service_pb2
from pointsman_client.aio import Wakeup
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.core.route import Revision, TopicRoute
from pointsman_client.errors import NameServerFailedError, RequestRejectedError
from pointsman_client.pointsman_grpc.codec import from_revision, to_revision, to_topic_route
from pointsman_client.pointsman_grpc.links import NameServerLinks
from pointsman_client.pointsman_grpc.status import details_of, grpc_errors_of

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.05
"""Topics first used within this time are added to the watch together."""
MAX_BACKOFF_SECONDS = 5.0
"""Maximum wait between two attempts while no name server can be watched."""
MAX_FIRST_STATE_SECONDS = 30.0
"""Maximum time that a server gets for the initial state; it doubles each time that was too short."""
WATCH_RETRY_SECONDS = 300.0
"""Wait before the next attempt at a server that rejected the watch; polling continues."""

UpdateHandler: TypeAlias = Callable[[str, str, Revision, TopicRoute | None], None]
"""Called with address, topic, revision, and the route; None: the topic was removed."""


class RouteStream:
    """Watches until cancelled; errors of servers are handled, not raised."""

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
        """``first_response_seconds``: first timeout of the initial state. After that a silent stream is healthy."""
        self._choice = choice
        self._links = links
        self._clock = clock
        self._topics = topics
        self._known = known
        self._on_update = on_update
        self._on_failure = on_failure
        self._first_response_seconds = first_response_seconds
        self._state_seconds = first_response_seconds
        """Timeout of the next initial state."""
        self._zone = zone
        self._backoff = FullJitterBackoff(rng.uniform, cap=MAX_BACKOFF_SECONDS)
        self._wakeup = Wakeup(clock)
        self._max_topics_per_stream: int | None = None
        """Limit reported by a server; None: no server has reported one."""
        self._logged_rejections: set[str] = set()
        self._logged_ends: set[str] = set()
        """Servers whose failure was logged and that have not been watched since."""
        self._watched: set[str] = set()
        self._failed: set[str] = set()
        """Servers that failed since the last initial state."""
        choice.on_move(self._wakeup.wake)

    @property
    def watched(self) -> frozenset[str]:
        """Topics whose state was received and whose changes the server pushes."""
        return frozenset(self._watched)

    def topics_changed(self) -> None:
        """Re-read the topics to watch."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            topics = frozenset(self._topics())
            if not topics or not self._choice.in_use:
                await self._changed()
                continue
            addr, started_at = self._next_server(), self._clock.monotonic()
            try:
                await self._watch(addr, topics)
            except RequestRejectedError as refusal:
                self._responded(addr)
                await self._pause(addr, refusal)
            except NameServerFailedError as failure:
                if failure.status is grpc.StatusCode.UNIMPLEMENTED:
                    self._responded(addr)
                    await self._pause(addr, failure)
                elif not self._learn_limit(failure, len(topics)):
                    self._log_end(addr, failure)
                    self._on_failure(addr)
                    self._failed.add(addr)
                    if failure.status is grpc.StatusCode.DEADLINE_EXCEEDED:
                        self._allow_more_time()
                    if self._clock.monotonic() - started_at > MAX_BACKOFF_SECONDS:
                        self._backoff.reset()
                    await self._clock.sleep(self._backoff.next_wait())

    def _next_server(self) -> str:
        in_order = self._choice.order()
        if self._failed.issuperset(in_order):
            self._failed.clear()
        return next(addr for addr in in_order if addr not in self._failed)

    def _responded(self, addr: str) -> None:
        self._choice.use(addr, instead_of=self._failed)
        self._failed.clear()
        self._state_seconds = self._first_response_seconds

    def _allow_more_time(self) -> None:
        # A server to which many clients have just moved stays slow if all of them give up and begin again.
        self._state_seconds = max(self._state_seconds, min(2 * self._state_seconds, MAX_FIRST_STATE_SECONDS))

    async def _watch(self, addr: str, topics: frozenset[str]) -> None:
        """Watch until the topics or the server in use change. Raises the error that ends a stream."""
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
        while self._choice.in_use in {addr, *self._failed} and topics == frozenset(self._topics()):
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
                    async with asyncio.timeout(seconds := self._state_seconds):
                        while not self._apply(addr, await call.read()):
                            pass
                except TimeoutError:
                    message = f"no complete initial state within {seconds:g} s"
                    raise NameServerFailedError(addr, grpc.StatusCode.DEADLINE_EXCEEDED, message) from None
                self._responded(addr)
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
        """Pass an event on; return whether it ends the initial state."""
        if not isinstance(response, route_service_pb2.WatchTopicRoutesResponse):
            # The end of the stream, or bytes that cannot be decoded.
            raise NameServerFailedError(addr, grpc.StatusCode.UNAVAILABLE, "the server ended the watch")
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
                # An event type that this version does not know.
                pass
        return False

    async def _pause(self, addr: str, error: NameServerFailedError | RequestRejectedError) -> None:
        """Rely on polling for a while: lookups work at this server, so another one would not be better."""
        if addr not in self._logged_rejections:
            self._logged_rejections.add(addr)
            logger.warning("cannot watch routes at %s; falling back to polling: %s", addr, error)
        paused_at = self._clock.monotonic()
        while addr == self._choice.in_use and self._clock.monotonic() - paused_at < WATCH_RETRY_SECONDS:
            await self._wakeup.wait(WATCH_RETRY_SECONDS)

    def _log_end(self, addr: str, failure: NameServerFailedError) -> None:
        """Log once per outage: an attempt every few seconds must not flood the log."""
        level = logging.DEBUG if addr in self._logged_ends else logging.INFO
        self._logged_ends.add(addr)
        logger.log(level, "route watch at %s failed; trying the next name server: %s", addr, failure)

    def _learn_limit(self, failure: NameServerFailedError, topics: int) -> bool:
        """Record the server's limit of topics per stream, if that was exceeded; return whether to retry with fewer."""
        if not isinstance(failure.__cause__, grpc.aio.AioRpcError):
            return False
        facts = details_of(failure.__cause__).facts
        limit = facts.get("bound", "")
        if facts.get("limit") != "topics_per_watch" or not (limit.isascii() and limit.isdigit() and int(limit)):
            return False
        is_lower = int(limit) < min(topics, self._max_topics_per_stream or topics)
        self._max_topics_per_stream = min(int(limit), self._max_topics_per_stream or int(limit))
        return is_lower
