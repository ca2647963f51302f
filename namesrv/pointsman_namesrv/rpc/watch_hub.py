"""Route watches: which client watches which routes, and how changes are pushed.

Each watched (topic, cluster, zone) has one current message: the state that its watchers are to receive. Every
``coalesce_seconds`` one task checks the watched topics that the route table touched since. It compares first by
revision counter, an integer, then by digest. A watcher has a slot for each of its topics, empty or full, and a full
slot is not filled again however often the route changes. So its memory is bounded by its topics, and a slow reader
delays no other.

Watches, watched topics and unread bytes are bounded for the node. At a bound, a watch that uses less than others ends
the latest watch of the peer that uses most.

Within a run the counters that a watcher receives for a topic increase: it remembers the last one, and only a change
above it fills a slot.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pointsman.clock import Clock
from pointsman.daemon.access.fair_bound import FairBound, Share
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman.daemon.subscriptions import OpenStream
from pointsman.v1.route_service_pb2 import KnownRoute, WatchTopicRoutesRequest
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.config import RoutesConfig
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import GroupKey, NodeState
from pointsman_namesrv.core.node_refusals import LimitExceeded, TopicNotFound
from pointsman_namesrv.core.route_table import RouteTable
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc import route_codec
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.slices import PAUSE_SECONDS, SLICE_SECONDS, Slices

FEW = 4
"""Up to this size a collection is a tuple: 48 bytes for one item, where a set or dictionary takes at least 216. There
is one for each watched topic."""
MAX_COMPARISONS = 64
"""Comparisons between two readings of the clock."""
MAX_WAKES = 100
"""Watchers woken in one step: each then writes for about 25 us before the loop does anything else."""
WAKE_SECONDS = 0.25
"""Longest time for which changes are found before watchers of the first ones are woken."""
SHORTEST_STEP_SECONDS = 0.001
PAUSE_RATIO = 3.0
"""Pause after a walk, as a multiple of its length: walks take at most a quarter of the loop."""
LONGEST_PAUSE_SECONDS = 1.0
"""A walk to a hundred thousand watches takes seconds, most of them for what the loop does in between."""
ALWAYS_OBSERVED = 256
OBSERVED_SHARE = 16
"""With more than ``ALWAYS_OBSERVED`` watchers, the lag of one in 16 writes is observed."""
MAX_SHOWN = 1_000
MAX_ABSENT = 10_000
"""Topics in one message: at most 1.3 MB."""
SMALL_MESSAGE_BYTES = 2_048
"""A message up to this size is written regardless of unread ones: 16 MiB in total for 8,000 watches."""
MAX_UNREAD_BYTES = 48 * 2**20
"""Bound on larger messages that gRPC has copied and clients have not read."""
ROOM_SECONDS = 10.0
"""How long a watch waits for other watches of its peer to read."""
ROOM_STEP_SECONDS = 0.02

NOTHING_SENT = -1
"""Counter of a watcher that has received nothing about a topic."""
NEVER = -1
"""Counter of a topic that must be checked again."""


@dataclass(slots=True, eq=False)
class _Watched:
    """One (topic, cluster, zone) and its current state for watchers."""

    topic: str
    place: _Place
    message: bytes = b""
    """The route as a message; empty if there is none."""
    counter: int = NOTHING_SENT
    digest: bytes | None = None
    """None while this node does not know whether the topic exists."""
    checked_at: int | None = NEVER
    """The topic's counter at the last check; None: no broker had the topic."""
    found_at: float = 0.0
    """When the change was found; monotonic seconds."""
    changed: int = NOTHING_SENT
    """The counter at the last change of the digest. A watcher that was sent it, or a later one, is up to date."""
    is_fresh: bool = False
    """Whether there is a change that watchers have not been notified of."""
    watchers: tuple[Watcher, ...] | dict[Watcher, int] = ()
    """With the counter that each was last sent; while there are few, ``counters`` has those."""
    counters: tuple[int, ...] = ()

    def join(self, watcher: Watcher) -> None:
        """Add a watcher that was sent nothing."""
        if isinstance(self.watchers, dict):
            self.watchers[watcher] = NOTHING_SENT
        elif len(self.watchers) < FEW:
            self.watchers, self.counters = (*self.watchers, watcher), (*self.counters, NOTHING_SENT)
        else:
            self.watchers = dict(zip(self.watchers, self.counters, strict=True))
            self.watchers[watcher] = NOTHING_SENT
            self.counters = ()

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        if isinstance(self.watchers, dict):
            self.watchers.pop(watcher, None)
        elif watcher in self.watchers:
            at = self.watchers.index(watcher)
            self.watchers = self.watchers[:at] + self.watchers[at + 1 :]
            self.counters = self.counters[:at] + self.counters[at + 1 :]

    def note_sent(self, watcher: Watcher) -> None:
        """Note that a watcher is sent the current state."""
        if isinstance(self.watchers, dict):
            self.watchers[watcher] = self.counter
        else:
            at = self.watchers.index(watcher)
            self.counters = (*self.counters[:at], self.counter, *self.counters[at + 1 :])


_Place = tuple[str, str]
"""Cluster and zone."""


class _WatchedTable:
    """Watched topics by topic and place. The route table notes the changes of these topics."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[_Watched, ...] | dict[_Place, _Watched]] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def of(self, topic: str) -> tuple[_Watched, ...]:
        """Return all places in which a topic is watched."""
        found = self._topics.get(topic, ())
        return found if isinstance(found, tuple) else tuple(found.values())

    def at(self, topic: str, place: _Place) -> _Watched:
        """Return a topic at one place; it is added if it was missing."""
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


_NO_SLOTS: Final[dict[_Watched, float]] = {}
"""The slots of watchers for which nothing waits; never changed. An emptied dictionary would keep its size."""


@dataclass(slots=True, eq=False)
class Watcher:
    """One open watch: first a task that sends the state, then a :class:`Subscription` to its changes."""

    hub: WatchHub
    number: int
    addr: str
    key: str
    """Of its peer, for bounds."""
    opened_at: float
    """Monotonic seconds."""
    task: asyncio.Task[None] | None
    """While it sends the first state, or waits for others to read."""
    stream: OpenStream | None = None
    """After the first state."""
    watched: Sequence[_Watched] = ()
    """What it watches."""
    slots: dict[_Watched, float] = field(default_factory=lambda: _NO_SLOTS)
    """Changes not sent yet, with the time since when; the oldest first. While there are any, the stream is woken."""
    writing_since: float | None = None
    """The same for the message that is being written."""
    unread: Share | None = None
    """Of the bound on larger messages: for the one that is being written, or is to be."""
    why: Exception | None = None
    """Why this node ended it."""
    place: Share | None = None
    """Of the bound on watchers."""
    topics: Share | None = None
    """Of the bound on watched topics."""

    def waiting_since(self) -> float | None:
        """Return since when the oldest unread change waits; None if none waits."""
        if self.writing_since is not None:
            return self.writing_since
        return next(iter(self.slots.values()), None)

    # --- Subscription -----------------------------------------------------------------------------------------

    def attach(self, stream: OpenStream) -> None:
        """Begin to send changes."""
        self.task, self.stream = None, stream
        self.watched = tuple(self.watched)  # smaller than the list that it was

    def next_response(self) -> bytes | None:
        """Return the message of the oldest change; the previous one is written. The hot path of a change."""
        hub, since = self.hub, self.writing_since
        if since is not None:
            self.writing_since = None
            if self.unread is not None:
                hub.give_back_unread(self)
            hub.writes += 1
            if hub.writes % hub.observed_share == 0:
                hub.lag.observe(hub.clock.monotonic() - since)
        while self.slots and self.task is None:
            watched, since = next(iter(self.slots.items()))
            # A warming node may have lost the topic after this slot was filled; the next change fills it again.
            is_known = watched.digest is not None
            message = watched.message or (hub.message_of_gone(watched) if is_known else b"")
            if len(message) > SMALL_MESSAGE_BYTES and not hub.has_share(self, len(message)):
                return None
            if len(self.slots) > 1:
                del self.slots[watched]
            else:
                self.slots = _NO_SLOTS
            if is_known:
                watched.note_sent(self)
                self.writing_since = since
                return message
        if self.unread is not None:
            hub.give_back_unread(self)
        return None

    def close(self) -> None:
        """Remove the watch."""
        self.hub.remove(self)

    def end(self, why: Exception) -> None:
        """End it from this node's side."""
        if self.why is not None:
            return
        self.why = why
        if self.stream is not None:
            self.stream.end(why)
        elif self.task is not None:
            self.task.cancel()

    def __call__(self) -> None:
        """End it for another peer, which needs one of its shares. Not a method with a name: each share keeps it."""
        self.hub.end_for_another(self)


@dataclass(frozen=True, slots=True)
class WatcherFacts:
    """One open watch, for operators. Times are monotonic seconds."""

    peer: str
    opened_at: float
    topics: int
    pending: int
    """Topics with changes that this client has not read."""
    waiting_since: float | None
    """Since when the oldest of them waits; None: none."""


class WatchHub:
    """All open watches. :meth:`run` must run while there may be any."""

    def __init__(
        self,
        routes: RouteTable,
        responses: RouteResponses,
        config: RoutesConfig,
        *,
        lifecycle: NodeLifecycle,
        clock: Clock,
        metrics: Metrics,
        node: str,
    ) -> None:
        self._routes = routes
        self._responses = responses
        self._lifecycle = lifecycle
        self.clock = clock
        self._node = node
        self._step = max(config.watch_coalesce_seconds, SHORTEST_STEP_SECONDS)
        self._bounds = {
            "watchers": FairBound(config.max_watchers),
            "watched_topics": FairBound(config.max_watched_topics),
            "unread_watch_bytes": FairBound(MAX_UNREAD_BYTES),
        }
        self._room_queue = asyncio.Lock()
        self._max_topics = config.max_topics_per_watch
        self._watched = _WatchedTable()
        routes.touched.interest = self._watched
        self._watchers: set[Watcher] = set()
        self._numbers = itertools.count(1)
        self._full: list[Watcher] = []
        """Watchers with full slots that are not woken yet."""
        self._has_watchers = asyncio.Event()
        self.writes = 0
        """Changes that were written."""
        self.observed_share = 1
        """Of this number of writes, the lag of one is observed."""
        self._walked_in: NodeState | None = None
        """State at the last walk over all watched topics."""
        self._gauge, self._watched_gauge = metrics.watchers, metrics.watched_topics
        self.lag = metrics.watch_lag
        self._coalesced = metrics.watch_coalesced

    @property
    def count(self) -> int:
        """Return the number of open watches."""
        return len(self._watchers)

    # --- one watch --------------------------------------------------------------------------------------------

    @property
    def watched_count(self) -> int:
        """Return the number of topics of all watches together."""
        return self._bounds["watched_topics"].total

    def refuse_beyond_bounds(self, topics: int) -> None:
        """Raise LimitExceeded for a watch of more topics than it may have."""
        if topics > self._max_topics:
            raise LimitExceeded("topics_per_watch", self._max_topics, field="topics", value=topics)

    async def watch(self, request: WatchTopicRoutesRequest, write: Write, *, peer: Peer) -> Watcher:
        """Send the first state, and return the subscription to changes.

        The request is already checked. Raises LimitExceeded, and Ended when another peer needed its share or this node
        drains; then its subscription is closed.
        """
        self.refuse_beyond_bounds(len(request.topics))
        watcher = self._open(peer, len(request.topics))
        is_open = False
        try:
            await self._send_first_state(watcher, request, write)
            is_open = True
        except asyncio.CancelledError:
            # The client disconnected, or this node ended the watch.
            if watcher.why is not None:
                raise watcher.why from None
            raise
        finally:
            if not is_open:
                self.remove(watcher)
        return watcher

    def _open(self, peer: Peer, topics: int) -> Watcher:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of a listener runs in one
        watcher = Watcher(self, next(self._numbers), peer.addr, peer.key, self.clock.monotonic(), task)
        try:
            watcher.place = self._take("watchers", watcher, 1)
            watcher.topics = self._take("watched_topics", watcher, topics)
        except LimitExceeded:
            self._give_back(watcher)
            raise
        self._watchers.add(watcher)
        self._show_counts()
        self._has_watchers.set()
        return watcher

    def _take(self, limit: str, watcher: Watcher, amount: int) -> Share:
        bound = self._bounds[limit]
        share = bound.take(watcher.key, amount, watcher)
        if share is None:
            raise LimitExceeded(limit, bound.bound, field="topics", value=bound.total + amount)
        return share

    def end_for_another(self, watcher: Watcher) -> None:
        """End a watch one of whose shares another peer needs."""
        withdrawn = (limit for limit, share in self._shares_of(watcher) if not share.is_held)
        limit = next(withdrawn)
        self._give_back(watcher)
        note = "this watch was ended: its connection has the most watches, and another connection needs one"
        watcher.end(Ended(LimitExceeded(limit, self._bounds[limit].bound, note=note)))

    def _shares_of(self, watcher: Watcher) -> Iterator[tuple[str, Share]]:
        if watcher.place is not None:
            yield "watchers", watcher.place
        if watcher.topics is not None:
            yield "watched_topics", watcher.topics
        if watcher.unread is not None:
            yield "unread_watch_bytes", watcher.unread

    def _give_back(self, watcher: Watcher) -> None:
        for limit, share in self._shares_of(watcher):
            self._bounds[limit].give_back(share)

    def remove(self, watcher: Watcher) -> None:
        """Remove a watch that has ended."""
        if watcher.stream is not None and watcher.task is not None:
            watcher.task.cancel()
        self._give_back(watcher)
        self._watchers.discard(watcher)
        self._show_counts()
        for watched in watcher.watched:
            watched.remove(watcher)
            if not watched.watchers:
                self._watched.remove(watched)
        watcher.watched, watcher.slots = (), _NO_SLOTS
        # No cycles: those that exist when the collector's young generations are frozen are never freed.
        watcher.place = watcher.topics = watcher.unread = watcher.stream = watcher.why = None

    def _show_counts(self) -> None:
        self.observed_share = 1 if self.count <= ALWAYS_OBSERVED else OBSERVED_SHARE
        self._gauge.set(self.count)
        self._watched_gauge.set(self.watched_count)

    async def _send_first_state(self, watcher: Watcher, request: WatchTopicRoutesRequest, write: Write) -> None:
        unchanged, slices = 0, Slices(self.clock, pause=PAUSE_SECONDS)
        place, absent, absent_at = (request.cluster, request.zone), list[str](), NOTHING_SENT
        watcher.watched = joined = list[_Watched]()
        for known in request.topics:
            watched = self._join(watcher, known.topic, place, joined)
            if self._is_known(known, watched):
                unchanged += 1
            elif watched.digest == route_codec.GONE_DIGEST:
                looked_up_at = watched.counter
                # All of them share one revision: none may have returned before it.
                if absent and (looked_up_at != absent_at or len(absent) == MAX_ABSENT):
                    await self._write_absent(watcher, absent, absent_at, write)
                    absent = []
                absent.append(known.topic)
                absent_at = looked_up_at
            elif watched.message:
                await self._write(watcher, write, watched.message, since=self.clock.monotonic())
            # A write that does not block does not yield, and yielding alone does not let queries pass.
            if slices.is_over():
                await slices.pause()
        if absent:
            await self._write_absent(watcher, absent, absent_at, write)
        await write(route_codec.synced(node=self._node, unchanged=unchanged))

    async def _write_absent(self, watcher: Watcher, topics: list[str], counter: int, write: Write) -> None:
        message = route_codec.absent(topics, boot=self._responses.boot, counter=counter)
        await self._write(watcher, write, message, since=self.clock.monotonic())

    def _join(self, watcher: Watcher, topic: str, place: _Place, joined: list[_Watched]) -> _Watched:
        watched = self._watched.at(topic, place)
        joined.append(watched)
        watched.join(watcher)
        # The client may know of later changes than the last walk found.
        self._check(watched)
        if watched.digest == route_codec.GONE_DIGEST:
            self._renew_absent(watched)
        watched.note_sent(watcher)
        return watched

    def _is_known(self, known: KnownRoute, watched: _Watched) -> bool:
        revision = known.revision
        return (
            known.HasField("revision") and revision.boot == self._responses.boot and revision.digest == watched.digest
        )

    def give_back_unread(self, watcher: Watcher) -> None:
        """Release the share of a message that is written, or is not to be."""
        if watcher.unread is not None:
            self._bounds["unread_watch_bytes"].give_back(watcher.unread)
            watcher.unread = None

    def has_share(self, watcher: Watcher, size: int) -> bool:
        """Return whether a larger message may be written now; if not, a task waits for that."""
        bound = self._bounds["unread_watch_bytes"]
        if watcher.unread is not None and watcher.unread.amount < size:
            self.give_back_unread(watcher)  # the change was replaced by a larger one
        if watcher.unread is None:
            watcher.unread = bound.take(watcher.key, size, watcher)
        if watcher.unread is None:
            watcher.task = asyncio.create_task(self._wait_for_share(watcher, size))
        return watcher.unread is not None

    async def _wait_for_share(self, watcher: Watcher, size: int) -> None:
        try:
            watcher.unread = await self._acquire_share(watcher, size)
        except Ended as ended:
            watcher.task = None
            watcher.end(ended)
            return
        watcher.task = None
        if watcher.stream is not None:
            watcher.stream.wake()

    async def _write(self, watcher: Watcher, write: Write, message: bytes, *, since: float) -> None:
        """Write a message of the first state."""
        watcher.writing_since = since
        if len(message) > SMALL_MESSAGE_BYTES:
            watcher.unread = await self._acquire_share(watcher, len(message))
        await write(message)
        self.give_back_unread(watcher)
        watcher.writing_since = None

    async def _acquire_share(self, watcher: Watcher, size: int) -> Share:
        bound, until = self._bounds["unread_watch_bytes"], self.clock.monotonic() + ROOM_SECONDS
        take = partial(bound.take, watcher.key, size, watcher)
        share = take()
        if share is None:
            async with self._room_queue:
                while (share := take()) is None:
                    if self.clock.monotonic() >= until:
                        note = f"the watches of this connection have not read them for {ROOM_SECONDS:g} s"
                        raise Ended(LimitExceeded("unread_watch_bytes", bound.bound, note=note))
                    await self.clock.sleep(ROOM_STEP_SECONDS)
        return share

    # --- what changed -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Find changes and wake their watchers, until cancelled."""
        pause = self._step
        while True:
            if not self._watchers:
                self._has_watchers.clear()
                await self._has_watchers.wait()
            await self.clock.sleep(pause)
            started = self.clock.monotonic()
            state = self._lifecycle.state
            if state is not self._walked_in:
                self._walked_in = state
                self._routes.touched.take()
                await self._walk(list(self._watched))
                await self._wake()
            elif self._routes.touched:
                topics, groups = self._routes.touched.take()
                await self._walk(topics)
                for key in groups:
                    await self._walk_group(key)
                await self._wake()
            took = self.clock.monotonic() - started
            pause = max(self._step, min(PAUSE_RATIO * took, LONGEST_PAUSE_SECONDS))

    async def _walk_group(self, key: GroupKey) -> None:
        topics = self._routes.topics_of(key)
        await self._walk(topics if len(topics) <= len(self._watched) else list(self._watched))

    async def _walk(self, topics: Iterable[str]) -> None:
        """Check the watched topics among these. The loop runs in between: ``topics`` must not be altered."""
        paused_at, checks, woken_at = self.clock.monotonic(), 0, self.clock.monotonic()
        for topic in topics:
            for watched in self._watched.of(topic) or (None,):
                checks += 1
                was_slow = watched is not None and self._check(watched)
                if (was_slow or checks % MAX_COMPARISONS == 0) and self.clock.monotonic() - paused_at > SLICE_SECONDS:
                    await self.clock.sleep(0)
                    paused_at = self.clock.monotonic()
                if watched is not None and watched.is_fresh:
                    watched.is_fresh = False
                    await self._notify(watched)
                    if self.clock.monotonic() - woken_at > WAKE_SECONDS:
                        await self._wake()
                        woken_at = self.clock.monotonic()

    def _check(self, watched: _Watched) -> bool:
        """Update its message from the route table; return whether that took more than a comparison."""
        counter = self._routes.counter(watched.topic)
        if counter == watched.checked_at:
            return False
        watched.checked_at = counter
        try:
            response = self._responses.current(watched.topic, *watched.place)
        except TopicNotFound:
            if self._lifecycle.state is NodeState.WARMING:
                # Its broker may not have registered yet: nothing is sent until this node knows.
                watched.message, watched.digest, watched.checked_at, watched.is_fresh = b"", None, NEVER, False
            elif watched.digest != route_codec.GONE_DIGEST:
                self._renew_absent(watched)
                self._mark(watched, route_codec.GONE_DIGEST)
            return True
        # The same route at a later revision is not a change, but it is what a new watcher receives.
        watched.message, watched.counter = response.route, response.counter
        if response.digest != watched.digest:
            self._mark(watched, response.digest)
        return True

    def _mark(self, watched: _Watched, digest: bytes) -> None:
        watched.digest, watched.changed = digest, watched.counter
        watched.found_at = self.clock.monotonic()
        watched.is_fresh = True

    def _renew_absent(self, watched: _Watched) -> None:
        # It may have come and gone since the last check, and a client may have seen that.
        watched.counter = self._routes.change
        watched.message = b""

    def message_of_gone(self, watched: _Watched) -> bytes:
        """Return the message that a topic is gone, encoded once for all watchers."""
        watched.message = route_codec.gone(watched.topic, boot=self._responses.boot, counter=watched.counter)
        return watched.message

    async def _notify(self, watched: _Watched) -> None:
        """Fill a slot of each watcher; :meth:`_wake` wakes them."""
        paused_at, changed, since = self.clock.monotonic(), watched.changed, watched.found_at
        watchers = watched.watchers
        # Those of a few are ready before the loop does anything else; a dictionary stays the same one.
        sent = watchers if isinstance(watchers, dict) else dict(zip(watchers, watched.counters, strict=True))
        for number, watcher in enumerate(list(watchers), 1):
            if changed > sent.get(watcher, changed):
                slots = watcher.slots
                if not slots:
                    watcher.slots = {watched: since}
                    self._full.append(watcher)
                elif watched in slots:
                    self._coalesced.inc()
                else:
                    slots[watched] = since
            if number % MAX_COMPARISONS == 0 and self.clock.monotonic() - paused_at > SLICE_SECONDS:
                await self.clock.sleep(0)
                paused_at = self.clock.monotonic()

    async def _wake(self) -> None:
        """Wake the watchers with full slots. Not earlier: each then sends all its changes at the same time."""
        full, self._full = self._full, []
        for number, watcher in enumerate(full, 1):
            if watcher.stream is not None:
                watcher.stream.wake()
            if number % MAX_WAKES == 0:
                await self.clock.sleep(0)

    # --- operators and stop -----------------------------------------------------------------------------------

    def watchers(self, topic: str) -> tuple[list[WatcherFacts], int]:
        """Return the watchers of a topic, the oldest first, at most 1,000, and their total number."""
        found = {watcher for watched in self._watched.of(topic) for watcher in watched.watchers}
        oldest = heapq.nsmallest(MAX_SHOWN, found, key=lambda watcher: watcher.number)
        return [_facts_of(watcher) for watcher in oldest], len(found)

    def all_watchers(self) -> list[WatcherFacts]:
        """Return every open watch."""
        return [_facts_of(watcher) for watcher in self._watchers]

    async def drain(self, why: Refusal | None = None) -> None:
        """End every watch, also of clients that do not read; None: because this node drains."""
        ended = Ended(why or self._lifecycle.refusal())
        for number, watcher in enumerate(list(self._watchers), 1):
            watcher.end(ended)
            if number % MAX_WAKES == 0:
                await self.clock.sleep(0)

    def check_invariants(self) -> None:
        """Compare the watchers with the watched topics; for tests."""
        held = {(watcher, watched) for watcher in self._watchers for watched in watcher.watched}
        watched_now = [watched for topic in self._watched for watched in self._watched.of(topic)]
        assert held == {(w, watched) for watched in watched_now for w in watched.watchers}  # noqa: S101
        assert all(watched.watchers for watched in watched_now)  # noqa: S101
        assert self._bounds["watchers"].total == sum(w.why is None for w in self._watchers)  # noqa: S101
        assert self._watchers or not self._bounds["unread_watch_bytes"].total  # noqa: S101
        assert all(watcher.slots.keys() <= set(watcher.watched) for watcher in self._watchers)  # noqa: S101


def _facts_of(watcher: Watcher) -> WatcherFacts:
    return WatcherFacts(
        watcher.addr,
        watcher.opened_at,
        len(watcher.watched),
        len(watcher.slots) + (watcher.writing_since is not None),
        watcher.waiting_since(),
    )
