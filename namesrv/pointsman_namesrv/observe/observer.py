"""The observer of one name server: polls it, and records each watch as a run with its own boot id."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Mapping
from datetime import date

from pointsman.backoff import FullJitterBackoff
from pointsman.clock import Clock
from pointsman.rocketmq.bodies import BadBodyError
from pointsman.rocketmq.codes import RequestCode
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import Position, Reason
from pointsman_namesrv.history import recorder_assembly
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.connection import Access, NameServerConnection, NoResponse, Refused, body_of, connected
from pointsman_namesrv.observe.fleet_view import (
    FleetView,
    Listed,
    Route,
    read_cluster_info,
    read_route,
    read_topic_list,
)
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observed_server import ObservedServer
from pointsman_namesrv.observe.observer_config import ObservedConfig
from pointsman_namesrv.observe.observer_metrics import ObserverMetrics
from pointsman_namesrv.observe.polled_events import SOURCE, Watch
from pointsman_namesrv.observe.route_differences import ABSENT, RouteDifferences
from pointsman_namesrv.observe.topic_round import RecordedTopics, TooManyTopics, TopicRound

ALIVE_SECONDS = 60.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 15.0
"""Pause between two attempts to connect, with jitter."""
EARLY_WALK_SECONDS = 10.0
"""Time from the arrival of a broker whose topics are unknown to the next walk: a fleet that starts is walked once."""
MAX_SHOWN = 20
"""Topics that a log line about differences names."""
STOP_SECONDS = 10.0

log = logging.getLogger(__name__)


_CHANGES = frozenset({
    EventKind.REGISTERED, EventKind.REREGISTERED, EventKind.EXPIRED, EventKind.UNREGISTERED, EventKind.ADDRESS_CHANGED,
    EventKind.ROLE_CHANGED,
})  # fmt: skip
"""Events after which the routes of a broker's topics are read again."""


class _Run:
    """The history of one watch, from NAMESRV_STARTED to NAMESRV_STOPPED."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self.recorder = recorder
        self.day = clock.utc_now().date()
        self.alive_at = clock.monotonic()
        self.dropped = 0
        self.topics = RecordedTopics()
        self.round: TopicRound | None = None
        self.round_due_at = clock.monotonic()
        self.has_unknown = False
        """Whether a broker with unknown topics arrived since the walk began."""
        self.has_read_again = False
        """Whether the last request for topics was none of the walk."""


class Observer:
    """Polls one name server until it is cancelled; :meth:`close` writes the last rows."""

    def __init__(
        self,
        addr: str,
        *,
        history: HistoryConfig,
        settings: ObservedConfig,
        version: str,
        clock: Clock,
        metrics: Metrics,
        access: Access | None = None,
        listings: Listings | None = None,
        differences: RouteDifferences | None = None,
        observed: ObserverMetrics | None = None,
        server: ObservedServer | None = None,
    ) -> None:
        """``listings``, ``differences`` and ``server`` get what this name server lists.

        ``observed`` counts its responses.
        """
        self.addr = addr
        self._server = server or ObservedServer(addr, boot=secrets.randbits(64), now=clock.monotonic())
        self._access = access or Access()
        self._listings = listings or Listings([addr])
        self._differences = differences or RouteDifferences([addr])
        self._observed = observed
        self._history = history
        self._settings = settings
        self._version = version
        self._clock = clock
        self._metrics = metrics
        self._known: Mapping[Position, Listed] = {}
        self._watch: Watch | None = None
        self._running: _Run | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._last_body = b""
        self._last_view = FleetView({})
        self._skipped: tuple[str, ...] = ()
        self._is_reported_away = False
        self._is_reported_different = False
        self._next_topic_at = 0.0
        """The earliest time of the next request for topics."""

    def apply(self, settings: ObservedConfig) -> None:
        """Poll with these settings from now on."""
        self._settings = settings
        if self._watch is not None:
            self._watch.polled_every(settings.poll_seconds)
        if self._running is not None and not settings.topics_seconds:
            self._running.round = None
            self._differences.not_watched(self.addr)

    def check_folder(self) -> None:
        """Fail at the start, not at the first response. Raises OSError: HistoryInUse, or no folder."""
        recorder_assembly.check_folder(self._history, node=self.addr)

    async def run(self) -> None:
        """Poll until cancelled. Raises OSError when another process has taken over the folder of the history."""
        backoff = FullJitterBackoff(random.uniform, first=FIRST_WAIT_SECONDS, cap=LONGEST_WAIT_SECONDS)
        while True:
            try:
                async with connected(self.addr, self._access) as connection:
                    await self._poll(connection, backoff)
            except (NoResponse, Refused, BadBodyError) as error:
                await self._end(str(error))
            await self._clock.sleep(backoff.next_wait())
            await self._server.hooks.until_read()

    async def close(self) -> None:
        """Write the end of the run, if one was begun, also of one that was ending when :meth:`run` was cancelled."""
        await self._end("")
        if self._stopping is not None:
            await self._stopping

    async def _poll(self, connection: NameServerConnection, backoff: FullJitterBackoff) -> None:
        watch = self._watch = Watch(self._known, poll_seconds=self._settings.poll_seconds)
        while True:
            began = self._clock.monotonic()
            view = self._read(body_of(await connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO)))
            backoff.reset()
            now = self._clock.monotonic()
            if self._observed is not None:
                self._observed.responded(self.addr, now - began)
            had_begun = watch.is_ready
            events = watch.answered(view, now=now)
            if watch.is_ready and not had_begun:
                self._begin()
            elif not watch.is_ready:
                problem = f"{watch.expected} brokers known before are not listed again yet"
                self._server.not_watched(problem, now=now)
                if not self._is_reported_away:
                    self._report_unreachable(problem)
            if self._running is not None:
                if events:
                    self._listings.watched(self.addr, frozenset(watch.known), now=now)
                self._record(self._running, watch, events)
                self._run_timed_work(self._running, watch)
                self._report_differences()
                await self._read_topics(self._running, watch, connection, until=began + self._settings.poll_seconds)
            await self._clock.sleep(began + self._settings.poll_seconds - self._clock.monotonic())

    def _read(self, body: bytes) -> FleetView:
        # Equal bytes are the same view: a response of 1,000 brokers has 150 kB and rarely changes.
        if body != self._last_body:
            self._last_view, self._last_body = read_cluster_info(body), body
            if self._last_view.skipped not in {(), self._skipped}:
                facts = {"name_server": self.addr, "entries": self._last_view.skipped}
                log.warning("ignored brokers that the history cannot represent", extra={"facts": facts})
            self._skipped = self._last_view.skipped
        return self._last_view

    # --- the run ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        run = self._server.begin(now=self._clock.monotonic())
        recorder = recorder_assembly.recorder(
            self._history,
            node=self.addr,
            boot_id=f"{self._server.boot if run == 0 else secrets.randbits(64):016x}",
            clock=self._clock,
            metrics=self._metrics,
            recent=self._server.recent,
            run=run,
        )
        recorder.start()
        self._server.hooks.write_now = recorder.write_now
        self._running = _Run(recorder, self._clock)
        detail: dict[str, object] = {"source": SOURCE, "version": self._version, "alive_seconds": ALIVE_SECONDS}
        detail["watch"] = run + 1  # 1: the observer itself was started before it
        recorder.record([Event(kind=EventKind.NAMESRV_STARTED, detail=detail)])
        self._is_reported_away = False
        log.info("started watching a name server", extra={"facts": {"name_server": self.addr}})

    def _record(self, running: _Run, watch: Watch, events: list[Event]) -> None:
        if self._observed is not None:
            self._observed.happened(self.addr, events)
        for event in events:
            self._accept(running, event)
            if event.broker is None:
                continue
            if event.kind is EventKind.REGISTERED:
                topics = running.topics.returned(event.broker.identity.position, watch, now=self._clock.monotonic())
                if topics is not None:
                    self._accept(running, topics)
            if event.kind in _CHANGES:
                self._read_again(running, event.broker.identity.position)

    def _accept(self, running: _Run, event: Event) -> None:
        running.recorder.record([event])
        self._server.happened([event], now=self._clock.monotonic())

    async def _end(self, problem: str) -> None:
        running, self._running = self._running, None
        watch, self._watch = self._watch, None
        if watch is not None:
            self._known = watch.known
        self._listings.not_watched(self.addr, now=self._clock.monotonic())
        self._differences.not_watched(self.addr)
        self._differences.publish()
        self._is_reported_different = False
        if problem:
            self._server.not_watched(problem, now=self._clock.monotonic())
            await self._server.hooks.went_away()
        if problem and not self._is_reported_away:
            self._report_unreachable(problem)
        if running is None or watch is None:
            return
        running.recorder.record(watch.ended(problem))
        self._stopping = asyncio.create_task(self._stop(running.recorder))
        await asyncio.shield(self._stopping)

    async def _stop(self, recorder: Recorder) -> None:
        if not await asyncio.to_thread(recorder.stop, timeout=STOP_SECONDS):
            log.error(
                "history could not be written to its end; its last rows are lost",
                extra={"facts": {"name_server": self.addr}},
            )

    def _report_unreachable(self, problem: str) -> None:
        self._is_reported_away = True
        log.warning(
            "name server cannot be polled; the state of its brokers is unknown until it can be",
            extra={"facts": {"name_server": self.addr, "problem": problem}},
        )

    def _run_timed_work(self, running: _Run, watch: Watch) -> None:
        """Run timed work: a row every minute, checkpoints at midnight and after lost rows."""
        now, today, recorder = self._clock.monotonic(), self._clock.utc_now().date(), running.recorder
        if today > running.day:
            self._begin_day(running, today)
            recorder.record(watch.checkpoint(Reason.DAY, now=now))
        elif recorder.dropped > running.dropped and not recorder.is_pressed and not recorder.is_refused:
            running.dropped = recorder.dropped
            recorder.record(watch.checkpoint(Reason.DROPPED, now=now))
        if now - running.alive_at >= ALIVE_SECONDS:
            running.alive_at = now
            detail: dict[str, object] = {
                "source": SOURCE,
                "state": "READY",
                "brokers": {"UP": len(watch.known)},
                "rows_dropped": recorder.dropped,
            }
            recorder.record([Event(kind=EventKind.NAMESRV_ALIVE, detail=detail)])
            self._server.brokers.sweep(now=now)

    @staticmethod
    def _begin_day(running: _Run, today: date) -> None:
        running.day, running.dropped = today, running.recorder.dropped
        running.topics.reset()

    # --- topics -----------------------------------------------------------------------------------------------

    async def _read_topics(
        self, running: _Run, watch: Watch, connection: NameServerConnection, *, until: float
    ) -> None:
        """Request topics, evenly spaced, until the next poll is due: in turn of the walk, and those to read again."""
        while self._settings.topics_seconds:
            now = self._clock.monotonic()
            at = max(now, self._next_topic_at)
            if at >= until:
                return
            is_walking = now >= running.round_due_at
            again = None
            if not (is_walking and running.has_read_again):
                again = self._differences.next(self.addr, now=now)
            if again is None and not is_walking:
                return
            running.has_read_again = again is not None
            await self._clock.sleep(at - now)
            self._next_topic_at = at + 1.0 / self._settings.topic_requests_per_second
            if again is not None:
                await self._read_route(again, None, connection)
            else:
                await self._walk(running, watch, connection)

    async def _walk(self, running: _Run, watch: Watch, connection: NameServerConnection) -> None:
        """Make one request of the walk; record the result at its end."""
        try:
            if running.round is None:
                running.has_unknown = False
                running.round = await self._list_topics(connection)
                return
            topic = running.round.next()
            if topic is not None:
                await self._read_route(topic, running.round, connection)
                return
            await self._record_topics(running, watch, running.round)
        except (Refused, BadBodyError, TooManyTopics) as error:
            facts = {"name_server": self.addr, "problem": str(error)}
            log.warning(
                "topics cannot be read and are not recorded; retrying at the next reading of the topics",
                extra={"facts": facts},
            )
        running.round = None
        wait = EARLY_WALK_SECONDS if running.has_unknown else self._settings.topics_seconds
        running.round_due_at = self._clock.monotonic() + wait

    async def _list_topics(self, connection: NameServerConnection) -> TopicRound:
        asked_at = self._clock.monotonic()
        listed = await self._ask(connection, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = read_topic_list(body_of(listed))
        found = TopicRound(topics, began_at=asked_at)
        self._listings.lists_topics(self.addr, len(topics))
        self._differences.listed(self.addr, topics, asked_at=asked_at, now=self._clock.monotonic())
        return found

    async def _read_route(self, topic: str, found: TopicRound | None, connection: NameServerConnection) -> None:
        """Request one topic. One that cannot be read is skipped."""
        asked_at = self._clock.monotonic()
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            body = await self._ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
            route = read_route(body) if body is not None else Route([], ABSENT)
        except (Refused, BadBodyError) as error:
            log.debug(
                "ignored a topic whose route cannot be read", extra={"facts": {"topic": topic, "problem": str(error)}}
            )
            return
        self._differences.read(self.addr, topic, route.digest, asked_at=asked_at, now=self._clock.monotonic())
        if found is not None:
            found.add(topic, route.queues)

    async def _ask(
        self, connection: NameServerConnection, code: RequestCode, ext: Mapping[str, str] | None = None
    ) -> bytes | None:
        if self._observed is not None:
            self._observed.asked_for_topics(self.addr)
        return await connection.ask(code, ext)

    def _read_again(self, running: _Run, position: Position) -> None:
        """Read the topics of a broker that has changed; the walk begins early if they are unknown."""
        now = self._clock.monotonic()
        topics = running.topics.names(position)
        if topics is None:
            running.has_unknown = True
            running.round_due_at = min(running.round_due_at, now + EARLY_WALK_SECONDS)
        else:
            self._differences.read_again(self.addr, topics, now=now)

    def _report_differences(self) -> None:
        self._differences.publish()
        topics = self._differences.topics(self.addr)
        if topics and not self._is_reported_different:
            facts = {"name_server": self.addr, "count": len(topics), "topics": sorted(topics)[:MAX_SHOWN]}
            log.warning("routes of this name server differ from those of another", extra={"facts": facts})
        elif self._is_reported_different and not topics:
            log.info("routes of this name server differ no longer", extra={"facts": {"name_server": self.addr}})
        self._is_reported_different = bool(topics)

    async def _record_topics(self, running: _Run, watch: Watch, found: TopicRound) -> None:
        holders = list(watch.topic_holders())
        running.topics.bound(holders)
        for position in holders:
            # A broker that was absent for a part of the walk may have topics that were not seen.
            if not watch.was_listed(position, since=found.began_at):
                continue
            event = running.topics.take(position, found.topics_of(position), watch, now=self._clock.monotonic())
            if event is not None:
                self._accept(running, event)
                await self._clock.sleep(0)  # a set of 10,000 topics takes some milliseconds
        self._server.topics_walked_at = self._clock.monotonic()
