"""Report queue statistics to every name server: once each, in parallel, each with a deadline. (Each measurement goes
with a heartbeat in addition, see :func:`to_live_message`.)

A report that a name server rejects is dropped and counted. It is not retried: the next report comes with the next
period, so a fleet whose reports are refused causes no extra load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent.core.measured_queue_stats import QueueStats
from pointsman_agent.queue_stats.collector import LiveQueues
from pointsman_agent.queue_stats.queue_stats_metrics import QueueStatsMetrics

MAX_LIVE_BYTES = 16 * 1024
"""Bound of `KeepAliveRequest.live_queues`; 80 entries with names of 20 characters take 5 kB."""
RECORDED = "recorded"
FAILED = "failed"

log = logging.getLogger(__name__)


class Listener(Protocol):
    """One name server, represented by its registration loop."""

    @property
    def name_server(self) -> str:
        """Its address."""
        ...

    async def report_queue_stats(self, stats: wire.QueueStats) -> wire.ReportQueueStatsResponse | None:
        """Send a report under the current registration; None if there is none. Raises AioRpcError."""
        ...


class Reporter:
    """Reports to the name servers that ``listeners`` returns; ``timeout`` seconds for each."""

    def __init__(
        self,
        listeners: Callable[[], Iterable[Listener]],
        *,
        clock: Clock,
        timeout: float,
        metrics: QueueStatsMetrics,
    ) -> None:
        self._listeners = listeners
        self._clock = clock
        self._timeout = timeout
        self._metrics = metrics
        self._results: dict[str, str] = {}

    async def report(self, stats: QueueStats) -> None:
        """Report once to each name server."""
        message, listeners = to_message(stats), list(self._listeners())
        # If a loop closes its connection in between, the call is cancelled and leaves no result.
        results = {listener.name_server: (FAILED, "the connection was closed") for listener in listeners}
        async with asyncio.TaskGroup() as tasks:
            for listener in listeners:
                tasks.create_task(self._report(listener, message, results))
        for name_server, (result, reason) in results.items():
            self._metrics.count_report(result)
            self._log(name_server, result, reason)
        self._results = {name_server: result for name_server, (result, _) in results.items()}

    async def _report(self, listener: Listener, message: wire.QueueStats, results: dict[str, tuple[str, str]]) -> None:
        try:
            response = await within(self._clock, self._timeout, listener.report_queue_stats(message))
        except TimeoutError:
            result = "timeout", f"no response within {self._timeout:g} s"
        except grpc.aio.AioRpcError as error:
            result = FAILED, f"{error.code().name}: {error.details()}"
        else:
            result = ("unregistered", "") if response is None else (from_status(response.status), response.holder_addr)
        results[listener.name_server] = result

    def _log(self, name_server: str, result: str, reason: str) -> None:
        """Log a result only when it changes: a permanent failure is one line, not one every ten minutes."""
        if result == self._results.get(name_server, RECORDED):
            return
        level = logging.INFO if result == RECORDED else logging.WARNING
        facts = {"name_server": name_server, "result": result, "reason": reason}
        log.log(level, "queue report result changed", extra={"facts": facts})


STATUSES = {
    wire.REPORT_QUEUE_STATS_STATUS_RECORDED: "recorded",
    wire.REPORT_QUEUE_STATS_STATUS_UNKNOWN_BROKER: "unknown_broker",
    wire.REPORT_QUEUE_STATS_STATUS_STALE_GENERATION: "stale_generation",
}


def to_message(stats: QueueStats) -> wire.QueueStats:
    """Build the message."""
    message = wire.QueueStats(
        queue_count=stats.queue_count,
        unmeasured_queue_count=stats.unmeasured_queue_count,
        topic_count=stats.topic_count,
        depth=stats.depth,
        put_rate=stats.put_rate,
        lag=stats.lag,
        top_put_rates=[
            wire.QueuePuts(
                topic=each.topic, queue_id=each.queue_id, put_rate=each.put_rate, depth=each.depth, bytes=each.bytes
            )
            for each in stats.top_put_rates
        ],
        top_lags=[
            wire.QueueLag(
                group=each.group,
                topic=each.topic,
                queue_id=each.queue_id,
                lag=each.lag,
                put_rate=each.put_rate,
                oldest_unread=None if each.oldest_unread is None else _duration(each.oldest_unread),
            )
            for each in stats.top_lags
        ],
        top_topics=[
            wire.TopicTotals(
                topic=each.topic,
                queue_count=each.queue_count,
                idle_queue_count=each.idle_queue_count,
                put_rate=each.put_rate,
                highest_put_rate=each.highest_put_rate,
                depth=each.depth,
                highest_depth=each.highest_depth,
            )
            for each in stats.top_topics
        ],
        top_groups=[
            wire.GroupTotals(
                group=each.group,
                topic=each.topic,
                queue_count=each.queue_count,
                lag=each.lag,
                highest_lag=each.highest_lag,
                member_count=each.member_count,
                put_rate=each.put_rate,
                commit_rate=each.commit_rate,
                behind_queue_count=each.behind_queue_count,
                stuck_queue_count=each.stuck_queue_count,
                membership_changes=each.membership_changes,
                membership_changes_in_hour=each.membership_changes_in_hour,
            )
            for each in stats.top_groups
        ],
    )
    message.period.FromMilliseconds(round(stats.period * 1000))
    return message


def to_live_message(live: LiveQueues, *, now: float) -> bytes:
    """Build what a heartbeat carries: without the ends of the lists, if names are too long for it to fit."""
    message = wire.LiveQueues(
        stats=to_message(live.stats),
        age=_duration(max(0.0, now - live.at)),
        interval=_duration(live.interval),
        is_warming=live.is_warming,
    )
    stats = message.stats
    while message.ByteSize() > MAX_LIVE_BYTES:
        for entries in (stats.top_put_rates, stats.top_lags, stats.top_topics, stats.top_groups):
            del entries[len(entries) // 2 :]
    return message.SerializeToString()


def _duration(seconds: float) -> Duration:
    message = Duration()
    message.FromMicroseconds(round(seconds * 1e6))
    return message


def from_status(status: wire.ReportQueueStatsStatus.ValueType) -> str:
    """Return the result of a report; an unknown status counts as failed."""
    return STATUSES.get(status, "failed")
