"""A measurement of 10,000 queues that are Redis streams: its time, and what it costs the agent and Redis."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from pointsman.clock import SystemClock
from pointsman.redis_queues import stream_key
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.measured_queue_stats import QueueMeter, QueueStats
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.queue_stats.collector import Commit, NoReaders, QueueStatsCollector
from pointsman_agent.queue_stats.queue_stats_metrics import QueueStatsMetrics
from pointsman_agent.queue_stats.redis_queue_ends import RedisQueueEnds
from tests.bench.report import Report
from tests.kit.broker.redis.process import HOST, redis_process
from tests.kit.waiting import running

TOPICS, QUEUES = 1_000, 10
GROUPS = 2
"""That read every queue."""
BODY = b"x" * 256
ROUNDS = 13
LIVE_INTERVAL_SECONDS = 30.0
"""The default; the agent measures less often where a measurement takes long."""
TARGET_SHARE = 0.01
"""Of a core."""


class _Round(NamedTuple):
    seconds: float
    interval: float
    agent_cpu: float
    redis_cpu: float


async def measure(report: Report) -> None:
    """Print the figures."""
    streams = TOPICS * QUEUES
    report.subject(f"A measurement of {streams:,} queues in Redis, read by {GROUPS} groups, one message in each")
    topics = TopicSet.from_content(
        (TopicConfig(f"topic-{number:04}", QUEUES, QUEUES, perm=6) for number in range(TOPICS)), state_version=1
    )
    commits = [
        (f"group-{group}", topic.topic, queue_id, 0)
        for group in range(GROUPS)
        for topic in topics.topics
        for queue_id in range(QUEUES)
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with (
            redis_process(Path(folder), options=("--appendonly", "no")) as server,
            Redis(host=HOST, port=server.port) as redis,
        ):
            report.progress("filling the queues")
            await _fill(redis, topics)
            ends = RedisQueueEnds(server.addr, clock=SystemClock(), timeout=5.0)
            rounds = [await _round(ends, redis, topics, commits) for _ in range(ROUNDS + 1)][1:]
            await redis.config_resetstat()
            await _round(ends, redis, topics, commits)
            calls = await redis.info("commandstats")
            await ends.close()
    took, interval, agent, at_redis = (statistics.median(column) for column in zip(*rounds, strict=True))
    report.figure(
        "time of a measurement",
        f"{took * 1e3:.0f} ms, {took / streams * 1e6:.1f} us per queue; repeated after {interval:.0f} s",
    )
    for who, cpu in (("the agent", agent), ("Redis", at_redis)):
        share = cpu / interval
        report.figure(
            f"share of a core that {who} uses",
            f"{share:.2%} ({cpu * 1e3:.0f} ms)",
            target=f"{TARGET_SHARE:.0%}",
            is_met=share <= TARGET_SHARE,
        )
    script = calls["cmdstat_eval_ro"]
    report.figure(
        "Redis serves no other client for", f"{script['usec_per_call'] / 1e3:.2f} ms, {script['calls']} times in each"
    )


async def _fill(redis: Redis, topics: TopicSet) -> None:
    for topic in topics.topics:
        pipeline = redis.pipeline(transaction=False)
        for queue_id in range(topic.read_queue_nums):
            pipeline.xadd(stream_key(topic.topic, queue_id), {"body": BODY, "born_at": "1760000000000"}, id="0-*")
        await pipeline.execute()


async def _round(ends: RedisQueueEnds, redis: Redis, topics: TopicSet, commits: list[Commit]) -> _Round:
    """Measure once, as the agent does, with all that follows from it."""
    shown = _Shown()
    collector = QueueStatsCollector(
        ends,
        topics=lambda: topics,
        committed=lambda: commits,
        readers=NoReaders(),
        contents=ends,
        report=_never,
        interval=0.0,
        live_interval=LIVE_INTERVAL_SECONDS,
        clock=SystemClock(),
        metrics=shown,
        meter=QueueMeter(),
        progress=ProgressMeter(),
    )
    at_redis, cpu = await _redis_cpu(redis), time.process_time()
    async with running(collector.run()):
        took, interval = await shown.took
    cpu = time.process_time() - cpu
    return _Round(took, interval, cpu, await _redis_cpu(redis) - at_redis)


class _Shown(QueueStatsMetrics):
    """Metrics that say when a measurement is complete: its seconds, and those to the next."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.took: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()

    def show(self, stats: QueueStats, *, took: float, interval: float) -> None:
        super().show(stats, took=took, interval=interval)
        self.took.set_result((took, interval))


async def _never(_: QueueStats) -> None:
    """Report nothing."""


async def _redis_cpu(redis: Redis) -> float:
    """Return the CPU seconds that the server has used."""
    used = await redis.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])
