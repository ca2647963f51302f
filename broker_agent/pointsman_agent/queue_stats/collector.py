"""Measure all queues periodically, publish the metrics, and report to name servers at a longer interval.

It runs in its own task, requests some queues at a time, and pauses between slices of the work, so that many queues
do not delay heartbeats.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from pointsman.clock import Clock
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.measured_queue_stats import QueueEnd, QueueMeter, QueueStats, Tally
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError
from pointsman_agent.queue_stats.queue_stats_metrics import QueueStatsMetrics

POLL_INTERVAL_SECONDS = 60.0
"""Measurement interval, unless reports are more frequent."""
MAX_QUEUES = 50_000
"""Of more queues only the first by name are measured; these use about 12 MB, and 0.35 s of Redis per measurement."""
BATCH_QUEUES = 500
SLICE = 1_000
"""Queues or commits processed before a pause; about two milliseconds."""

Commit = tuple[str, str, int, int]
"""Group, topic, queue id and the committed offset."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def _no_members() -> Mapping[str, int]:
    return {}


class QueueStatsCollector:
    """Measures until cancelled.

    ``committed`` returns all committed offsets, ``members`` the number of clients of each group; neither may change the
    returned object while it is read. ``report`` is called every ``interval`` seconds (0: never) and must return in
    bounded time. ``draw(a, b)`` is ``random.uniform`` in production.
    """

    def __init__(
        self,
        source: QueueEnds,
        *,
        topics: Callable[[], TopicSet],
        committed: Callable[[], Iterable[Commit]],
        members: Callable[[], Mapping[str, int]] = _no_members,
        report: Callable[[QueueStats], Awaitable[None]],
        interval: float,
        clock: Clock,
        metrics: QueueStatsMetrics,
        meter: QueueMeter,
        progress: ProgressMeter,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._source = source
        self._topics = topics
        self._committed = committed
        self._members = members
        self._report_to = report
        self._interval = interval
        self._clock = clock
        self._metrics = metrics
        self._draw = draw
        self._meter = meter
        self._progress = progress
        self._unmeasured = 0
        self._is_failing = False

    async def run(self) -> None:
        """Measure until cancelled; the first report has a random delay, so that a fleet does not report together."""
        pause = min(POLL_INTERVAL_SECONDS, self._interval or POLL_INTERVAL_SECONDS)
        report_at = self._clock.monotonic() + self._interval * self._draw(0.5, 1.0)
        while True:
            began = self._clock.monotonic()
            if await self._measure():
                self._metrics.show(await self._add_up(self._meter.last_rate, self._progress))
                self._progress.end_round()
                if self._interval and self._clock.monotonic() >= report_at and await self._report():
                    report_at += self._interval * max(1, 1 + (began - report_at) // self._interval)
            await self._clock.sleep(max(0.0, began + pause - self._clock.monotonic()))

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

    async def _add_up(self, rate_of: Callable[[QueueKey], float], progress: ProgressMeter | None = None) -> QueueStats:
        """Add up the last measurement; ``progress`` takes the committed offsets of it."""
        meter, tally = self._meter, Tally()
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
                tally.add_commit(group, queue, committed, max_offset=end.max_offset, put_rate=rate_of(queue))
                if progress is not None:
                    key = OffsetKey(group, topic, queue_id)
                    progress.take(key, committed, max_offset=end.max_offset, now=self._clock.monotonic())
            await self._clock.sleep(0)
        return tally.finish(unmeasured=self._unmeasured, members=self._members())


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
