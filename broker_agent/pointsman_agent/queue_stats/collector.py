"""Measure all queues periodically, publish the metrics, and report to name servers: each measurement, to be seen now,
and averages at a longer interval, for the history.

It runs in its own task, requests some queues at a time, and pauses between slices of the work, so that many queues
do not delay heartbeats.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from pointsman.clock import Clock
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.measured_queue_stats import QueueEnd, QueueMeter, QueueStats, Tally
from pointsman_agent.core.membership_changes import ChangeCounts
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.queue_stats.ends import QueueContents, QueueEnds, QueueEndsError
from pointsman_agent.queue_stats.queue_stats_metrics import QueueStatsMetrics

REST_FOR_EACH_SECOND = 100.0
"""Time from the second of two long measurements to the next, as a multiple of what the shorter one took: with many
queues, or a slow broker, measurements use at most a hundredth of a core of the agent and of the broker."""
LONG_SECONDS = 0.3
"""A measurement that takes no longer is not long: it uses a hundredth of the default interval, and few queues take as
long on a busy machine."""
LONGEST_INTERVAL_SECONDS = 600.0
"""Longest interval that this leads to."""
MAX_QUEUES = 50_000
"""Of more queues only the first by name are measured; these use about 12 MB, and 0.35 s of Redis per measurement."""
BATCH_QUEUES = 500
SLICE = 1_000
"""Queues or commits processed before a pause; about two milliseconds."""

Commit = tuple[str, str, int, int]
"""Group, topic, queue id and the committed offset."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Readers(Protocol):
    """What the agent knows of the members of groups."""

    def member_counts(self) -> Mapping[str, int]:
        """Return the number of clients of each group; not changed while it is read."""
        ...

    def is_warming(self) -> bool:
        """Return whether some of them may not have sent a heartbeat since the agent started."""
        ...

    def stuck_counts(self) -> Mapping[tuple[str, str], int]:
        """Return by group and topic the number of queues in which a member is stuck."""
        ...

    def membership_changes(self) -> Mapping[str, ChangeCounts]:
        """Return by group how often its membership changed lately."""
        ...

    def waiting(self) -> Collection[OffsetKey]:
        """Return the queues in which a member has nothing to do now."""
        ...


class NoReaders:
    """For an agent that serves no clients."""

    def member_counts(self) -> Mapping[str, int]:
        """See :meth:`Readers.member_counts`."""
        return {}

    def is_warming(self) -> bool:
        """See :meth:`Readers.is_warming`."""
        return False

    def stuck_counts(self) -> Mapping[tuple[str, str], int]:
        """See :meth:`Readers.stuck_counts`."""
        return {}

    def membership_changes(self) -> Mapping[str, ChangeCounts]:
        """See :meth:`Readers.membership_changes`."""
        return {}

    def waiting(self) -> Collection[OffsetKey]:
        """See :meth:`Readers.waiting`."""
        return ()


class LiveQueues(NamedTuple):
    """The last measurement, to be seen now."""

    stats: QueueStats
    at: float
    """Monotonic seconds."""
    interval: float
    """Seconds between two measurements."""
    is_warming: bool
    """See :meth:`Readers.is_warming`."""


class QueueStatsCollector:
    """Measures every ``live_interval`` seconds until cancelled.

    ``committed`` returns all committed offsets, which it may not change while they are read. ``report`` is called every
    ``interval`` seconds (0: never) and must return in bounded time. ``contents``: None, the broker cannot be asked.
    ``draw(a, b)`` is ``random.uniform`` in production.
    """

    live: LiveQueues | None = None
    """The last measurement; None: none succeeded yet."""

    def __init__(
        self,
        source: QueueEnds,
        *,
        topics: Callable[[], TopicSet],
        committed: Callable[[], Iterable[Commit]],
        readers: Readers,
        contents: QueueContents | None = None,
        report: Callable[[QueueStats], Awaitable[None]],
        interval: float,
        live_interval: float,
        clock: Clock,
        metrics: QueueStatsMetrics,
        meter: QueueMeter,
        progress: ProgressMeter,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._source = source
        self._topics = topics
        self._committed = committed
        self._readers = readers
        self._contents = contents
        self._report_to = report
        self._interval = interval
        self._live_interval = min(live_interval, interval or live_interval)
        self._clock = clock
        self._metrics = metrics
        self._draw = draw
        self._took_before = 0.0
        self._meter = meter
        self._progress = progress
        self._unmeasured = 0
        self._is_failing = False

    async def run(self) -> None:
        """Measure until cancelled; the first report has a random delay, so that a fleet does not report together."""
        report_at = self._clock.monotonic() + self._interval * self._draw(0.5, 1.0)
        pause = self._live_interval
        while True:
            began = self._clock.monotonic()
            if await self._measure():
                stats = await self._add_up(self._meter.last_rate, is_live=True)
                now = self._clock.monotonic()
                pause = self._pace(now - began)
                self.live = LiveQueues(await self._with_contents(stats), now, pause, self._readers.is_warming())
                self._metrics.show(self.live.stats, took=now - began, interval=pause)
                if self._interval and self._clock.monotonic() >= report_at and await self._report():
                    report_at += self._interval * max(1, 1 + (began - report_at) // self._interval)
            await self._clock.sleep(max(0.0, began + pause - self._clock.monotonic()))

    def _pace(self, took: float) -> float:
        """Return the seconds from the begin of a measurement that took this long to that of the next."""
        # One long measurement alone is a busy moment of the machine or of the broker.
        usual, self._took_before = min(took, self._took_before), took
        if usual <= LONG_SECONDS:
            return self._live_interval
        return max(self._live_interval, min(REST_FOR_EACH_SECOND * usual, LONGEST_INTERVAL_SECONDS))

    async def _with_contents(self, stats: QueueStats) -> QueueStats:
        """Add the memory of the busiest queues, and the age of the oldest unread messages, if the broker has them."""
        contents = self._contents
        if contents is None:
            return stats
        puts = [QueueKey(each.topic, each.queue_id) for each in stats.top_put_rates]
        unread = [(QueueKey(each.topic, each.queue_id), each.committed) for each in stats.top_lags]
        try:
            sizes, born_at = await contents.bytes_of(puts), await contents.born_at(unread)
        except QueueEndsError as error:
            log.debug("contents of queues are not known", extra={"facts": {"reason": str(error)}})
            return stats
        now = self._clock.utc_now().timestamp()
        return replace(
            stats,
            top_put_rates=tuple(
                replace(each, bytes=sizes.get(queue, 0)) for each, queue in zip(stats.top_put_rates, puts, strict=True)
            ),
            top_lags=tuple(
                replace(each, oldest_unread=max(0.0, now - born_at[message]) if message in born_at else None)
                for each, message in zip(stats.top_lags, unread, strict=True)
            ),
        )

    async def _measure(self) -> bool:
        """Measure every queue; return whether the broker responded for all."""
        topics = self._topics()
        count = sum(_queue_count(each) for each in topics.topics)
        measured = set[QueueKey]()
        for batch in slices(islice(_queues(topics), MAX_QUEUES), BATCH_QUEUES):
            ends = await self._query(batch)
            if ends is None:
                self._metrics.count_measurement("failed")
                return False
            self._meter.take(ends, now=self._clock.monotonic())
            measured.update(ends)
            await self._clock.sleep(0)
        self._meter.keep_only(measured)
        self._unmeasured = count - len(measured)
        self._metrics.count_measurement("measured")
        if self._is_failing:
            log.info("queue measurement recovered")
        self._is_failing = False
        return True

    async def _query(self, batch: list[QueueKey]) -> Mapping[QueueKey, QueueEnd] | None:
        try:
            return await self._source.ends(batch)
        except QueueEndsError as error:
            if not self._is_failing:
                log.warning(
                    "queue measurement failed; queue statistics are out of date",
                    extra={"facts": {"reason": str(error)}},
                )
        except Exception:  # foreign code that speaks to foreign programs: its failure must not stop heartbeats
            if not self._is_failing:
                log.exception("queue measurement raised an unexpected exception; queue statistics are out of date")
        self._is_failing = True
        return None

    async def _report(self) -> bool:
        """Report the averages since the last report; return False when there are none yet."""
        stats = await self._add_up(self._meter.average_rate)
        if not stats.period:
            return False
        self._meter.begin_period()
        await self._report_to(stats)
        return True

    async def _add_up(self, rate_of: Callable[[QueueKey], float], *, is_live: bool = False) -> QueueStats:
        """Add up the last measurement; ``is_live``: and how groups advance."""
        meter, progress, tally = self._meter, self._progress, Tally()
        waiting, stuck = (self._readers.waiting(), self._readers.stuck_counts()) if is_live else ((), {})
        for queues in slices(meter, SLICE):
            for queue in queues:
                end = meter.end_of(queue)
                if end is not None:
                    seconds = meter.measured_seconds(queue)
                    tally.add_queue(queue, depth=end.depth, put_rate=rate_of(queue), seconds=seconds)
            await self._clock.sleep(0)
        for commits in slices(self._committed(), SLICE):
            for group, topic, queue_id, committed in commits:
                queue = QueueKey(topic, queue_id)
                end = meter.end_of(queue)
                if end is None:
                    continue
                key, commit_rate = OffsetKey(group, topic, queue_id), None
                if is_live:
                    now = self._clock.monotonic()
                    commit_rate = progress.take(key, committed, max_offset=end.max_offset, now=now).commit_rate
                tally.add_commit(
                    group,
                    queue,
                    committed,
                    max_offset=end.max_offset,
                    put_rate=rate_of(queue),
                    commit_rate=commit_rate,
                    is_waiting=key in waiting,
                )
            await self._clock.sleep(0)
        if is_live:
            progress.end_round(tally.loads(stuck))
        return tally.finish(
            unmeasured=self._unmeasured,
            members=self._readers.member_counts(),
            changes=self._readers.membership_changes(),
            stuck=stuck,
        )


def _queues(topics: TopicSet) -> Iterator[QueueKey]:
    for each in topics.topics:
        for queue_id in range(_queue_count(each)):
            yield QueueKey(each.topic, queue_id)


def _queue_count(topic: TopicConfig) -> int:
    return max(topic.read_queue_nums, topic.write_queue_nums)


def slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most ``size``, for work with pauses."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part
