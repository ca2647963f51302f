"""Who watches which routes, and how they learn of changes.

What is watched, (topic, cluster, zone), has one piece of news at a time, ready to send: the state that its watchers
are to have. One task compares it with the route table each ``coalesce_seconds``: by revision counter, which is an
integer, then by digest. It looks at the table's number of changes instead of being told, so that no change can be
missed. A watcher has a slot for each of its topics, full or empty, and a full one is filled once however often the
route changes: its memory is bounded by its topics, and a reader that does not read holds up nobody.

Within a boot the counters that a watcher is sent for a topic rise: it remembers the last one, and a slot is filled only
by a change above it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from namesrv.core.errors import LimitExceeded, TopicNotFound
from namesrv.core.lifecycle import NodeLifecycle
from namesrv.core.model import NodeState
from namesrv.core.route_table import RouteTable
from namesrv.metrics import Metrics
from namesrv.rpc import route_codec
from namesrv.rpc.route_answers import RouteAnswers
from pointsman.service.clock import Clock
from pointsman.v1.route_service_pb2 import KnownRoute, WatchTopicRoutesRequest

SLICE_SECONDS = 0.003
"""How long the loop is held at once."""
LOOKS_AT_ONCE = 64
"""Comparisons between two looks at the clock."""
WAKES_AT_ONCE = 100
"""Watchers woken at once: each of them then writes, for about 25 us, before the loop does anything else."""
SHORTEST_STEP_SECONDS = 0.001
REST_SHARE = 3.0
"""A walk over what is watched is followed by a rest of so many times its length: at most a quarter of the loop."""
ALWAYS_OBSERVED = 256
OBSERVED_SHARE = 16
"""With more watchers than that, the lag of one in so many writes is observed."""
MOST_SHOWN = 1_000

UNSAID = -1
"""The counter of a watcher that has been told nothing of a topic."""
NEVER = -1
"""The counter of a topic that must be looked at again."""

Write = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _Watched:
    """One (topic, cluster, zone) and what its watchers are to know of it."""

    topic: str
    cluster: str
    zone: str
    news: bytes = b""
    """Ready to send; empty while this node does not know yet whether there is such a topic."""
    counter: int = UNSAID
    digest: bytes | None = None
    looked_at: int | None = NEVER
    """The topic's counter when it was last looked at; None: nobody had it."""
    found_at: float = 0.0
    """When the news was found; monotonic seconds."""
    changed: int = UNSAID
    """The counter at which the digest last became another: who was sent that or a later one knows it."""
    is_fresh: bool = False
    """Whether there is news that the watchers have not been told of."""
    watchers: set[Watcher] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Watcher:
    """One open watch."""

    number: int
    peer: str
    """Address of the client's connection."""
    opened_at: float
    """Monotonic seconds."""
    task: asyncio.Task[None]
    told: dict[_Watched, int] = field(default_factory=dict)
    """What it watches, with the counter of what it was last sent."""
    slots: dict[_Watched, float] = field(default_factory=dict)
    """What it has not been sent yet, with the time since when; the one that waits longest first."""
    writing_since: float | None = None
    """The same of what is being written."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_ended: bool = False
    """Whether this node ended it."""

    def waiting_since(self) -> float | None:
        """Since when the oldest news waits for this client to read; None when nothing waits."""
        if self.writing_since is not None:
            return self.writing_since
        return next(iter(self.slots.values()), None)


@dataclass(frozen=True, slots=True)
class WatcherFacts:
    """One open watch as operators see it. Times are monotonic seconds."""

    peer: str
    opened_at: float
    topics: int
    pending: int
    """Topics whose news this client has not read."""
    waiting_since: float | None
    """Since when the oldest of them waits."""


class WatchHub:
    """All open watches. :meth:`run` must run as long as there may be any."""

    def __init__(
        self,
        routes: RouteTable,
        answers: RouteAnswers,
        *,
        lifecycle: NodeLifecycle,
        clock: Clock,
        metrics: Metrics,
        node: str,
        coalesce_seconds: float,
        max_watchers: int,
        max_topics: int,
    ) -> None:
        self._routes = routes
        self._answers = answers
        self._lifecycle = lifecycle
        self._clock = clock
        self._node = node
        self._step = max(coalesce_seconds, SHORTEST_STEP_SECONDS)
        self._max_watchers = max_watchers
        self._max_topics = max_topics
        self._watched: dict[tuple[str, str, str], _Watched] = {}
        self._watchers: set[Watcher] = set()
        self._numbers = itertools.count(1)
        self._somebody = asyncio.Event()
        self._writes = 0
        self._walked_at: tuple[int, NodeState] | None = None
        """Changes of the table and state at the last walk; None: there must be another."""
        self._gauge = metrics.watchers
        self._lag = metrics.watch_lag
        self._coalesced = metrics.watch_coalesced

    @property
    def count(self) -> int:
        """Open watches."""
        return len(self._watchers)

    # --- one watch --------------------------------------------------------------------------------------------

    def refuse_beyond_bounds(self, topics: int) -> None:
        """Raise LimitExceeded for a watch of so many topics, or for any when there is no room."""
        if topics > self._max_topics:
            raise LimitExceeded("topics_per_watch", self._max_topics, field="topics", value=topics)
        if self.count >= self._max_watchers:
            raise LimitExceeded("watchers", self._max_watchers)

    async def watch(self, request: WatchTopicRoutesRequest, write: Write, *, peer: str) -> None:
        """Send the first state and then each change, until the client goes or :meth:`drain` ends it; then return.

        The request is checked. Raises LimitExceeded.
        """
        self.refuse_beyond_bounds(len(request.topics))
        watcher = self._open(peer)
        try:
            await self._send_first_state(watcher, request, write)
            while True:
                await self._send_news(watcher, write)
                watcher.woken.clear()
                await watcher.woken.wait()
        except asyncio.CancelledError:
            # Either the client is gone, or we are draining.
            if not watcher.is_ended:
                raise
        finally:
            self._close(watcher)

    def _open(self, peer: str) -> Watcher:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of grpc.aio runs in one
        watcher = Watcher(next(self._numbers), peer, self._clock.monotonic(), task)
        self._watchers.add(watcher)
        self._gauge.set(self.count)
        self._somebody.set()
        return watcher

    def _close(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        self._gauge.set(self.count)
        for watched in watcher.told:
            watched.watchers.discard(watcher)
            if not watched.watchers:
                del self._watched[watched.topic, watched.cluster, watched.zone]
        watcher.told.clear()
        watcher.slots.clear()

    async def _send_first_state(self, watcher: Watcher, request: WatchTopicRoutesRequest, write: Write) -> None:
        unchanged, rested_at = 0, self._clock.monotonic()
        for known in request.topics:
            watched = self._join(watcher, known.topic, request.cluster, request.zone)
            if self._is_known(known, watched):
                unchanged += 1
            elif watched.news:
                watcher.writing_since = self._clock.monotonic()
                await write(watched.news)
                watcher.writing_since = None
            # A write that finds room at once does not yield for long enough.
            if self._clock.monotonic() - rested_at > SLICE_SECONDS:
                await self._clock.sleep(0)
                rested_at = self._clock.monotonic()
        await write(route_codec.synced(node=self._node, unchanged=unchanged))

    def _join(self, watcher: Watcher, topic: str, cluster: str, zone: str) -> _Watched:
        key = (topic, cluster, zone)
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = _Watched(topic, cluster, zone)
        watched.watchers.add(watcher)
        watcher.told[watched] = UNSAID
        # Its client may know of later changes than the last walk found.
        self._look(watched)
        if watched.digest == route_codec.GONE_DIGEST:
            self._renew_gone(watched)
        watcher.told[watched] = watched.counter
        return watched

    def _is_known(self, known: KnownRoute, watched: _Watched) -> bool:
        revision = known.revision
        return known.HasField("revision") and revision.boot == self._answers.boot and revision.digest == watched.digest

    async def _send_news(self, watcher: Watcher, write: Write) -> None:
        while watcher.slots:
            watched = next(iter(watcher.slots))
            since = watcher.slots.pop(watched)
            if not watched.news:
                # A warming node lost it after this slot was filled; what it says next fills the slot again.
                continue
            watcher.told[watched] = watched.counter
            watcher.writing_since = since
            await write(watched.news)
            watcher.writing_since = None
            self._writes += 1
            if self.count <= ALWAYS_OBSERVED or self._writes % OBSERVED_SHARE == 0:
                self._lag.observe(self._clock.monotonic() - since)

    # --- what changed -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Find changes and wake their watchers, for ever."""
        pause = self._step
        while True:
            if not self._watchers:
                self._somebody.clear()
                await self._somebody.wait()
            await self._clock.sleep(pause)
            started = self._clock.monotonic()
            now = (self._routes.change, self._lifecycle.state)
            if now != self._walked_at:
                self._walked_at = now
                await self._walk()
            pause = max(self._step, REST_SHARE * (self._clock.monotonic() - started))

    async def _walk(self) -> None:
        rested_at = self._clock.monotonic()
        for number, watched in enumerate(list(self._watched.values())):
            if (self._look(watched) or number % LOOKS_AT_ONCE == 0) and (
                self._clock.monotonic() - rested_at > SLICE_SECONDS
            ):
                await self._clock.sleep(0)
                rested_at = self._clock.monotonic()
            if watched.is_fresh:
                watched.is_fresh = False
                await self._tell(watched)

    def _look(self, watched: _Watched) -> bool:
        """Bring its news in line with the route table; return whether that took more than a comparison."""
        counter = self._routes.counter(watched.topic)
        if counter == watched.looked_at:
            return False
        watched.looked_at = counter
        try:
            answer = self._answers.current(watched.topic, watched.cluster, watched.zone)
        except TopicNotFound:
            if self._lifecycle.state is NodeState.WARMING:
                # It may only not have been heard of yet: nothing is said until this node knows.
                watched.news, watched.digest, watched.looked_at, watched.is_fresh = b"", None, NEVER, False
            elif watched.digest != route_codec.GONE_DIGEST:
                self._renew_gone(watched)
                self._mark(watched, route_codec.GONE_DIGEST)
            return True
        # The same route at a later revision is no news, and yet what a new watcher is sent.
        watched.news, watched.counter = answer.route, answer.counter
        if answer.digest != watched.digest:
            self._mark(watched, answer.digest)
        return True

    def _mark(self, watched: _Watched, digest: bytes) -> None:
        watched.digest, watched.changed = digest, watched.counter
        watched.found_at = self._clock.monotonic()
        watched.is_fresh = True

    def _renew_gone(self, watched: _Watched) -> None:
        # It may have come and gone since the last look, and somebody may have seen that.
        watched.counter = self._routes.change
        watched.news = route_codec.gone(watched.topic, boot=self._answers.boot, counter=watched.counter)

    async def _tell(self, watched: _Watched) -> None:
        for number, watcher in enumerate(list(watched.watchers), 1):
            if watched.changed > watcher.told.get(watched, watched.changed):
                if watched in watcher.slots:
                    self._coalesced.inc()
                else:
                    watcher.slots[watched] = watched.found_at
                    watcher.woken.set()
            if number % WAKES_AT_ONCE == 0:
                await self._clock.sleep(0)

    # --- for operators, and the end ---------------------------------------------------------------------------

    def watchers(self, topic: str) -> tuple[list[WatcherFacts], int]:
        """The watchers of a topic, the oldest first, at most 1,000, and how many there are."""
        found = {
            watcher for watched in self._watched.values() if watched.topic == topic for watcher in watched.watchers
        }
        oldest = heapq.nsmallest(MOST_SHOWN, found, key=lambda watcher: watcher.number)
        return [
            WatcherFacts(
                watcher.peer,
                watcher.opened_at,
                len(watcher.told),
                len(watcher.slots) + (watcher.writing_since is not None),
                watcher.waiting_since(),
            )
            for watcher in oldest
        ], len(found)

    async def drain(self) -> None:
        """End every watch, one that does not read included."""
        for number, watcher in enumerate(list(self._watchers), 1):
            watcher.is_ended = True
            watcher.task.cancel()
            if number % WAKES_AT_ONCE == 0:
                await self._clock.sleep(0)

    def check_invariants(self) -> None:
        """Hold watchers and what they watch against each other; for tests."""
        held = {(watcher, watched) for watcher in self._watchers for watched in watcher.told}
        assert held == {(w, watched) for watched in self._watched.values() for w in watched.watchers}  # noqa: S101
        assert all(watcher.slots.keys() <= watcher.told.keys() for watcher in self._watchers)  # noqa: S101
