"""Who watches which routes, and how they learn of changes.

What is watched, (topic, cluster, zone), has one piece of news at a time, ready to send: the state that its watchers
are to have. Each ``coalesce_seconds`` one task looks at what the route table touched since, of the watched topics
alone, and compares: by revision counter, which is an integer, then by digest. A watcher has a slot for each of its
topics, full or empty, and a full one is filled once however often the route changes: its memory is bounded by its
topics, and a reader that does not read delays no other.

Watches, watched topics and unread bytes are bounded for the node. At the bound a watch that takes less than others ends
the latest of the peer that takes most.

Within a boot the counters that a watcher is sent for a topic rise: it remembers the last one, and a slot is filled only
by a change above it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from pointsman.service.fair_bound import FairBound, Share
from pointsman.service.rpc.calling_peer import Peer
from pointsman.service.rpc.handler_table import Ended, Write
from pointsman.v1.route_service_pb2 import KnownRoute, WatchTopicRoutesRequest
from pointsman.wire.clock import Clock
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import GroupKey, NodeState
from pointsman_namesrv.core.node_refusals import LimitExceeded, TopicNotFound
from pointsman_namesrv.core.route_table import RouteTable
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc import route_codec
from pointsman_namesrv.rpc.route_answers import RouteAnswers

SLICE_SECONDS = 0.003
"""How long the loop is held at once."""
FIRST_STATE_REST_SECONDS = 0.001
"""A real rest, as registrations have (``rpc/register_call.py``)."""
FEW = 4
"""Up to this number things stand in a tuple: 48 bytes for one, where a set or dictionary takes 216 and more. There are
as many of them as watched topics."""
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
MOST_ABSENT = 10_000
"""Topics in one message: at most 1.3 MB."""
LIGHT_BYTES = 2_048
"""A message up to this size is written whatever else is unread: together 16 MiB for 8,000 watches."""
MOST_UNREAD_BYTES = 48 * 2**20
"""Of larger messages that were handed to gRPC, which copies each, and not read."""
ROOM_SECONDS = 10.0
"""How long a watch waits for the other ones of its peer to read."""
ROOM_STEP_SECONDS = 0.02

UNSAID = -1
"""The counter of a watcher that has been told nothing of a topic."""
NEVER = -1
"""The counter of a topic that must be looked at again."""


@dataclass(slots=True, eq=False)
class _Watched:
    """One (topic, cluster, zone) and what its watchers are to know of it."""

    topic: str
    place: _Place
    news: bytes = b""
    """The route, ready to send; empty while there is none."""
    counter: int = UNSAID
    digest: bytes | None = None
    """None while this node does not know yet whether there is such a topic."""
    looked_at: int | None = NEVER
    """The topic's counter when it was last looked at; None: nobody had it."""
    found_at: float = 0.0
    """When the news was found; monotonic seconds."""
    changed: int = UNSAID
    """The counter at which the digest last became another: who was sent that or a later one knows it."""
    is_fresh: bool = False
    """Whether there is news that the watchers have not been told of."""
    watchers: tuple[Watcher, ...] | set[Watcher] = ()

    def join(self, watcher: Watcher) -> None:
        """Add a watcher."""
        if isinstance(self.watchers, set):
            self.watchers.add(watcher)
        elif len(self.watchers) < FEW:
            self.watchers = (*self.watchers, watcher)
        else:
            self.watchers = {*self.watchers, watcher}

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        if isinstance(self.watchers, set):
            self.watchers.discard(watcher)
        else:
            self.watchers = tuple(each for each in self.watchers if each is not watcher)


_Place = tuple[str, str]
"""Cluster and zone."""


class _WatchedTable:
    """What is watched, by topic and place. Of its topics the route table notes the changes."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[_Watched, ...] | dict[_Place, _Watched]] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def of(self, topic: str) -> tuple[_Watched, ...]:
        """All places in which a topic is watched."""
        found = self._topics.get(topic, ())
        return found if isinstance(found, tuple) else tuple(found.values())

    def at(self, topic: str, place: _Place) -> _Watched:
        """A topic at one place, from now on if it was not there."""
        found = self._topics.get(topic, ())
        if isinstance(found, dict):
            watched = found.get(place)
        else:
            watched = next((each for each in found if each.place == place), None)
        if watched is None:
            watched = _Watched(topic, place)
            if isinstance(found, dict):
                found[place] = watched
            elif len(found) < FEW:
                self._topics[topic] = (*found, watched)
            else:
                self._topics[topic] = {each.place: each for each in (*found, watched)}
        return watched

    def remove(self, watched: _Watched) -> None:
        """Remove a topic at its place."""
        found = self._topics[watched.topic]
        if isinstance(found, dict):
            del found[watched.place]
        else:
            self._topics[watched.topic] = found = tuple(each for each in found if each is not watched)
        if not found:
            del self._topics[watched.topic]


@dataclass(slots=True, eq=False)
class Watcher:
    """One open watch."""

    number: int
    peer: Peer
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
    refusal: LimitExceeded | None = None
    """The bound at which it was ended."""
    shares: list[tuple[FairBound, Share]] = field(default_factory=list)

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
        max_watched: int,
        max_topics: int,
    ) -> None:
        self._routes = routes
        self._answers = answers
        self._lifecycle = lifecycle
        self._clock = clock
        self._node = node
        self._step = max(coalesce_seconds, SHORTEST_STEP_SECONDS)
        self._bounds = {
            "watchers": FairBound(max_watchers),
            "watched_topics": FairBound(max_watched),
            "unread_watch_bytes": FairBound(MOST_UNREAD_BYTES),
        }
        self._line_for_room = asyncio.Lock()
        self._max_topics = max_topics
        self._watched = _WatchedTable()
        routes.touched.interest = self._watched
        self._watchers: set[Watcher] = set()
        self._numbers = itertools.count(1)
        self._somebody = asyncio.Event()
        self._writes = 0
        self._walked_in: NodeState | None = None
        """State at the last walk over all that is watched."""
        self._gauge, self._watched_gauge = metrics.watchers, metrics.watched_topics
        self._lag = metrics.watch_lag
        self._coalesced = metrics.watch_coalesced

    @property
    def count(self) -> int:
        """Open watches."""
        return len(self._watchers)

    # --- one watch --------------------------------------------------------------------------------------------

    @property
    def watched_count(self) -> int:
        """Topics of all watches together."""
        return self._bounds["watched_topics"].total

    def refuse_beyond_bounds(self, topics: int) -> None:
        """Raise LimitExceeded for a watch of more topics than it may have."""
        if topics > self._max_topics:
            raise LimitExceeded("topics_per_watch", self._max_topics, field="topics", value=topics)

    async def watch(self, request: WatchTopicRoutesRequest, write: Write, *, peer: Peer) -> None:
        """Send the first state and then each change, until the client goes or :meth:`drain` ends it; then return.

        The request is checked. Raises LimitExceeded, and Ended when the room was needed for another peer.
        """
        self.refuse_beyond_bounds(len(request.topics))
        watcher = self._open(peer, len(request.topics))
        try:
            await self._send_first_state(watcher, request, write)
            while True:
                await self._send_news(watcher, write)
                watcher.woken.clear()
                await watcher.woken.wait()
        except asyncio.CancelledError:
            # Either the client is gone, or we are draining, or there is no longer room for it.
            if watcher.refusal is not None:
                raise Ended(watcher.refusal) from None
            if not watcher.is_ended:
                raise
        finally:
            self._close(watcher)

    def _open(self, peer: Peer, topics: int) -> Watcher:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of grpc.aio runs in one
        watcher = Watcher(next(self._numbers), peer, self._clock.monotonic(), task)
        for limit, amount in (("watchers", 1), ("watched_topics", topics)):
            bound = self._bounds[limit]
            share = bound.take(peer.key, amount, partial(self._end_for_another, watcher, limit))
            if share is None:
                self._give_back(watcher)
                raise LimitExceeded(limit, bound.bound, field="topics", value=bound.total + amount)
            watcher.shares.append((bound, share))
        self._watchers.add(watcher)
        self._show_counts()
        self._somebody.set()
        return watcher

    def _end_for_another(self, watcher: Watcher, limit: str) -> None:
        self._give_back(watcher)
        note = "this watch was ended, because its connection has the most of them and another needs some"
        watcher.refusal = LimitExceeded(limit, self._bounds[limit].bound, note=note)
        watcher.task.cancel()

    def _give_back(self, watcher: Watcher) -> None:
        for bound, share in watcher.shares:
            bound.give_back(share)

    def _close(self, watcher: Watcher) -> None:
        self._give_back(watcher)
        self._watchers.discard(watcher)
        self._show_counts()
        for watched in watcher.told:
            watched.leave(watcher)
            if not watched.watchers:
                self._watched.remove(watched)
        watcher.told.clear()
        watcher.slots.clear()

    def _show_counts(self) -> None:
        self._gauge.set(self.count)
        self._watched_gauge.set(self.watched_count)

    async def _send_first_state(self, watcher: Watcher, request: WatchTopicRoutesRequest, write: Write) -> None:
        unchanged, rested_at = 0, self._clock.monotonic()
        place, absent, absent_at = (request.cluster, request.zone), list[str](), UNSAID
        for known in request.topics:
            watched = self._join(watcher, known.topic, place)
            if self._is_known(known, watched):
                unchanged += 1
            elif watched.digest == route_codec.GONE_DIGEST:
                looked_up_at = watched.counter
                # One revision stands for all of them: none may have come back before it.
                if absent and (looked_up_at != absent_at or len(absent) == MOST_ABSENT):
                    await self._write_absent(watcher, absent, absent_at, write)
                    absent = []
                absent.append(known.topic)
                absent_at = looked_up_at
            elif watched.news:
                await self._write(watcher, write, watched.news, since=self._clock.monotonic())
            # A write that finds room at once does not yield, and yielding is not enough for queries to pass.
            if self._clock.monotonic() - rested_at > SLICE_SECONDS:
                await self._clock.sleep(FIRST_STATE_REST_SECONDS)
                rested_at = self._clock.monotonic()
        if absent:
            await self._write_absent(watcher, absent, absent_at, write)
        await write(route_codec.synced(node=self._node, unchanged=unchanged))

    async def _write_absent(self, watcher: Watcher, topics: list[str], counter: int, write: Write) -> None:
        message = route_codec.absent(topics, boot=self._answers.boot, counter=counter)
        await self._write(watcher, write, message, since=self._clock.monotonic())

    def _join(self, watcher: Watcher, topic: str, place: _Place) -> _Watched:
        watched = self._watched.at(topic, place)
        watched.join(watcher)
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
            if watched.digest is None:
                # A warming node lost it after this slot was filled; what it says next fills the slot again.
                continue
            watcher.told[watched] = watched.counter
            await self._write(watcher, write, watched.news or self._gone(watched), since=since)
            self._writes += 1
            if self.count <= ALWAYS_OBSERVED or self._writes % OBSERVED_SHARE == 0:
                self._lag.observe(self._clock.monotonic() - since)

    async def _write(self, watcher: Watcher, write: Write, message: bytes, *, since: float) -> None:
        watcher.writing_since = since
        if len(message) <= LIGHT_BYTES:
            await write(message)
        else:
            share = await self._take_room(watcher, len(message))
            try:
                await write(message)
            finally:
                self._bounds["unread_watch_bytes"].give_back(share)
        watcher.writing_since = None

    async def _take_room(self, watcher: Watcher, size: int) -> Share:
        limit = "unread_watch_bytes"
        bound, until = self._bounds[limit], self._clock.monotonic() + ROOM_SECONDS
        take = partial(bound.take, watcher.peer.key, size, partial(self._end_for_another, watcher, limit))
        share = take()
        if share is None:
            async with self._line_for_room:
                while (share := take()) is None:
                    if self._clock.monotonic() >= until:
                        note = f"the watches of this connection have not read them for {ROOM_SECONDS:g} s"
                        raise Ended(LimitExceeded(limit, bound.bound, note=note))
                    await self._clock.sleep(ROOM_STEP_SECONDS)
        return share

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
            state = self._lifecycle.state
            if state is not self._walked_in:
                self._walked_in = state
                self._routes.touched.take()
                await self._walk(list(self._watched))
            elif self._routes.touched:
                topics, groups = self._routes.touched.take()
                await self._walk(topics)
                for key in groups:
                    await self._walk_group(key)
            pause = max(self._step, REST_SHARE * (self._clock.monotonic() - started))

    async def _walk_group(self, key: GroupKey) -> None:
        topics = self._routes.topics_of(key)
        await self._walk(topics if len(topics) <= len(self._watched) else list(self._watched))

    async def _walk(self, topics: Iterable[str]) -> None:
        """Look at what is watched of these topics. The loop runs meanwhile: they must not be altered."""
        rested_at, looks = self._clock.monotonic(), 0
        for topic in topics:
            for watched in self._watched.of(topic) or (None,):
                looks += 1
                took_more = watched is not None and self._look(watched)
                if (took_more or looks % LOOKS_AT_ONCE == 0) and self._clock.monotonic() - rested_at > SLICE_SECONDS:
                    await self._clock.sleep(0)
                    rested_at = self._clock.monotonic()
                if watched is not None and watched.is_fresh:
                    watched.is_fresh = False
                    await self._tell(watched)

    def _look(self, watched: _Watched) -> bool:
        """Bring its news in line with the route table; return whether that took more than a comparison."""
        counter = self._routes.counter(watched.topic)
        if counter == watched.looked_at:
            return False
        watched.looked_at = counter
        try:
            answer = self._answers.current(watched.topic, *watched.place)
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
        watched.news = b""

    def _gone(self, watched: _Watched) -> bytes:
        return route_codec.gone(watched.topic, boot=self._answers.boot, counter=watched.counter)

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
        found = {watcher for watched in self._watched.of(topic) for watcher in watched.watchers}
        oldest = heapq.nsmallest(MOST_SHOWN, found, key=lambda watcher: watcher.number)
        return [
            WatcherFacts(
                watcher.peer.addr,
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
        watched_now = [watched for topic in self._watched for watched in self._watched.of(topic)]
        assert held == {(w, watched) for watched in watched_now for w in watched.watchers}  # noqa: S101
        assert all(watched.watchers for watched in watched_now)  # noqa: S101
        assert self._bounds["watchers"].total == sum(w.refusal is None for w in self._watchers)  # noqa: S101
        assert self._watchers or not self._bounds["unread_watch_bytes"].total  # noqa: S101
        assert all(watcher.slots.keys() <= watcher.told.keys() for watcher in self._watchers)  # noqa: S101
