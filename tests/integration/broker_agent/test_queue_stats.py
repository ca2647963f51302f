"""Queue statistics of an agent: real Redis streams, a broker that fails or hangs, name servers that listen or not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.redis_queues import entry_id, id_before, stream_key
from pointsman.v1 import registration_service_pb2 as messages
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.measured_queue_stats import QueueEnd, QueueMeter, QueueStats, Tally
from pointsman_agent.core.membership_changes import ChangeCounts
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.queue_stats import collector
from pointsman_agent.queue_stats.collector import Commit, NoReaders, QueueStatsCollector
from pointsman_agent.queue_stats.ends import QueueContents, QueueEnds, QueueEndsError, UnknownQueueEnds
from pointsman_agent.queue_stats.queue_stats_metrics import QueueStatsMetrics
from pointsman_agent.queue_stats.redis_queue_ends import BATCH_QUEUES, RedisQueueEnds
from pointsman_agent.queue_stats.reporter import Reporter
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.history.rows import rows_in
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually, pause

ORDERS = QueueKey("orders", 0)
MEGABYTE = "x" * 1_000_000


@asynccontextmanager
async def asking(redis: RedisProcess, *, seconds: float = 10.0, **user: str) -> AsyncIterator[RedisQueueEnds]:
    """Query a server during the block."""
    ends = RedisQueueEnds(redis.addr, clock=SystemClock(), timeout=seconds, **user)
    try:
        yield ends
    finally:
        await ends.close()


async def put(redis: RedisProcess, queue: QueueKey, count: int = 1, *, entry_id: str = "0-*", body: str = "m") -> None:
    """Add messages as a producer does."""
    for _ in range(count):
        assert not (await redis.command("XADD", stream_key(*queue), entry_id, "body", body)).startswith("-")


@pytest.mark.redis
async def test_a_queue_begins_at_offset_0_and_keeps_its_end_while_it_is_trimmed(tmp_path: Path) -> None:
    seen = []
    async with redis_process(tmp_path) as redis, asking(redis) as ends:
        for change in ("", "put", "MAXLEN 1", "MAXLEN 0", "put"):
            if change == "put":
                await put(redis, ORDERS, 3)
            elif change:
                await redis.command("XTRIM", stream_key(*ORDERS), *change.split())
            seen.append((await ends.ends([ORDERS]))[ORDERS])
        assert await ends.max_offsets([ORDERS]) == {ORDERS: 6}

    assert seen == [QueueEnd(0, 0, 0), QueueEnd(0, 3, 3), QueueEnd(2, 3, 1), QueueEnd(3, 3, 0), QueueEnd(3, 6, 3)]


@pytest.mark.redis
async def test_an_offset_is_the_id_after_which_its_message_is_read(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        for body in ("first", "second"):
            await put(redis, ORDERS, body=body)
        async with Redis(port=redis.port, decode_responses=True) as client:
            read = await client.xread({stream_key(*ORDERS): id_before(1)})

    assert read == [[stream_key(*ORDERS), [(entry_id(1), {"body": "second"})]]]


@pytest.mark.redis
async def test_a_key_that_is_not_a_queue_has_no_end(tmp_path: Path) -> None:
    text, foreign, mixed = (QueueKey("odd", number) for number in range(3))
    async with redis_process(tmp_path) as redis, asking(redis) as ends:
        await redis.command("SET", stream_key(*text), "x")
        await put(redis, foreign, entry_id="*")
        await put(redis, mixed)
        await put(redis, mixed, entry_id="*")
        await put(redis, ORDERS)

        assert await ends.max_offsets([text, foreign, mixed, ORDERS]) == {ORDERS: 1}


@pytest.mark.redis
async def test_of_many_queues_each_has_its_own_end_with_concurrent_queries(tmp_path: Path) -> None:
    queues = [QueueKey("orders", number) for number in range(2 * BATCH_QUEUES + 10)]
    async with redis_process(tmp_path) as redis, asking(redis) as ends:
        for queue in queues[::100]:
            await put(redis, queue, queue.queue_id // 100 + 1)
        answers = await asyncio.gather(*(ends.max_offsets(queues) for _ in range(20)))
        assert await ends.ends([]) == {}

    expected = {queue: 0 if queue.queue_id % 100 else queue.queue_id // 100 + 1 for queue in queues}
    assert answers == [expected] * 20


@pytest.mark.redis
async def test_no_message_body_is_transferred(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis, asking(redis) as ends, Redis(port=redis.port) as client:
        await put(redis, ORDERS, 2, body=MEGABYTE)
        before = (await client.info("stats"))["total_net_output_bytes"]
        assert await ends.max_offsets([ORDERS]) == {ORDERS: 2}
        after = (await client.info("stats"))["total_net_output_bytes"]

    assert after - before < 50_000


@pytest.mark.redis
async def test_memory_of_queues_and_the_time_of_the_first_message_from_an_offset(tmp_path: Path) -> None:
    other, missing = QueueKey("orders", 1), QueueKey("missing", 0)
    async with redis_process(tmp_path) as redis, asking(redis) as ends, Redis(port=redis.port) as client:
        for number in range(4):
            born_at = (1_700_000_000 + number) * 1_000
            await redis.command("XADD", stream_key(*ORDERS), "0-*", "body", MEGABYTE, "born_at", str(born_at))
        await put(redis, other)
        await redis.command("XTRIM", stream_key(*ORDERS), "MAXLEN", "2")
        before = (await client.info("stats"))["total_net_output_bytes"]
        sizes = await ends.bytes_of([ORDERS, other, missing])
        found = await ends.born_at([(ORDERS, 0), (ORDERS, 3), (ORDERS, 4), (other, 0), (missing, 0)])
        after = (await client.info("stats"))["total_net_output_bytes"]
        assert (await ends.bytes_of([]), await ends.born_at([])) == ({}, {})

    assert found == {(ORDERS, 0): 1_700_000_002.0, (ORDERS, 3): 1_700_000_003.0}
    assert set(sizes) == {ORDERS, other}
    assert sizes[ORDERS] > 2_000_000 > sizes[other] > 0
    assert after - before < 50_000


@pytest.mark.redis
async def test_a_user_without_scripting_permission_gets_the_same_result(tmp_path: Path) -> None:
    missing, text = QueueKey("missing", 0), QueueKey("text", 0)
    async with redis_process(tmp_path) as redis:
        await redis.command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "+@all", "-@scripting")
        await put(redis, ORDERS, 3, body="\udcff".encode("utf-8", "surrogateescape").decode("latin-1"))
        await redis.command("XTRIM", stream_key(*ORDERS), "MAXLEN", "2")
        await redis.command("SET", stream_key(*text), "x")
        async with asking(redis) as scripts, asking(redis, username="plain", password="secret") as plain:
            ends = await plain.ends([ORDERS, missing, text])
            assert ends == await scripts.ends([ORDERS, missing, text])
            assert set(await plain.bytes_of([ORDERS])) == {ORDERS}
            assert await plain.born_at([(ORDERS, 1)]) == {}

    assert ends == {ORDERS: QueueEnd(1, 3, 2), missing: QueueEnd(0, 0, 0)}


@pytest.mark.redis
@pytest.mark.parametrize(
    ("user", "message"),
    [
        pytest.param(["~*", "+@all", "-@stream", "-@scripting"], "permission", id="may-not-ask"),
        pytest.param(["~other*", "+@all"], "permission", id="may-not-see-the-key"),
        pytest.param(["off"], "invalid username-password", id="may-not-come-in"),
    ],
)
async def test_a_user_without_read_permission_gets_an_error_that_names_the_cause(
    tmp_path: Path, user: list[str], message: str
) -> None:
    async with redis_process(tmp_path) as redis:
        await redis.command("ACL", "SETUSER", "poor", "on", ">secret", *user)
        await put(redis, ORDERS)
        async with asking(redis, username="poor", password="secret") as ends:
            with pytest.raises(QueueEndsError, match=rf"redis {redis.addr}: .*(?i:{message})"):
                await ends.ends([ORDERS])


@pytest.mark.redis
async def test_a_server_that_was_down_is_queried_again_after_its_return(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis, asking(redis) as ends:
        await put(redis, ORDERS, 2)
        assert await ends.max_offsets([ORDERS]) == {ORDERS: 2}
        redis.kill()
        with pytest.raises(QueueEndsError, match=f"redis {redis.addr}: "):
            await ends.max_offsets([ORDERS])
        await redis.restart()
        assert await ends.max_offsets([ORDERS]) == {ORDERS: 2}


@pytest.mark.redis
async def test_a_server_that_hangs_times_out_and_its_late_responses_reach_no_other_query(tmp_path: Path) -> None:
    other = QueueKey("other", 0)
    async with redis_process(tmp_path) as redis, asking(redis, seconds=0.3) as ends:
        await put(redis, ORDERS, 2)
        await ends.max_offsets([ORDERS])
        assert redis._process is not None
        pause(redis._process.pid)
        try:
            late = await asyncio.gather(*(ends.max_offsets([ORDERS]) for _ in range(6)), return_exceptions=True)
        finally:
            os.kill(redis._process.pid, signal.SIGCONT)
        assert [str(error) for error in late] == [f"redis {redis.addr}: no response within 0.3 s"] * 6
        assert {type(error) for error in late} == {QueueEndsError}
        for _ in range(6):
            assert await ends.max_offsets([other]) == {other: 0}


# --- the collector ---------------------------------------------------------------------------------------------


class ScriptedEnds:
    """A broker whose queue ends the test sets; ``fault`` is raised, with ``hangs`` it never responds."""

    def __init__(self) -> None:
        self.held: dict[QueueKey, int] = {}
        self.fault: Exception | None = None
        self.hangs = False
        self.waits: Callable[[], Awaitable[None]] | None = None
        self.asked = 0

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        self.asked += 1
        if self.waits is not None:
            await self.waits()
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
        return {queue: QueueEnd(0, self.held[queue], self.held[queue]) for queue in queues if queue in self.held}

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        raise NotImplementedError


def topic_set(**queue_nums: int) -> TopicSet:
    """Topics by name, with the number of queues of each."""
    return TopicSet.from_content((TopicConfig(name, nums, 1, 6) for name, nums in queue_nums.items()), state_version=0)


class ScriptedReaders(NoReaders):
    """Three members of one group, which wait in its queue 7."""

    def member_counts(self) -> Mapping[str, int]:
        return {"g": 3}

    def membership_changes(self) -> Mapping[str, ChangeCounts]:
        return {"g": ChangeCounts(4, 9)}

    def waiting(self) -> Collection[OffsetKey]:
        return {OffsetKey("g", "orders", 7)}


class Collecting:
    """A collector with a scripted broker, and what it reported."""

    def __init__(
        self,
        clock: ManualClock,
        *,
        source: QueueEnds | None = None,
        contents: QueueContents | None = None,
        interval: float = 600.0,
        live_interval: float = 60.0,
    ) -> None:
        self.clock = clock
        self.broker = ScriptedEnds()
        self.topics = topic_set(orders=2)
        self.commits: list[Commit] = []
        self.reported: list[QueueStats] = []
        self.registry = CollectorRegistry()
        self.metrics = QueueStatsMetrics(self.registry)
        self.progress = ProgressMeter()
        self.collector = QueueStatsCollector(
            source or self.broker,
            topics=lambda: self.topics,
            committed=lambda: list(self.commits),
            readers=ScriptedReaders(),
            contents=contents,
            report=self._report,
            interval=interval,
            live_interval=live_interval,
            clock=clock,
            metrics=self.metrics,
            meter=QueueMeter(),
            progress=self.progress,
            draw=lambda _, most: most,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let it run for the length of the block."""
        task = asyncio.create_task(self.collector.run())
        try:
            await self.clock.advance(0)
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def metric(self, name: str, **labels: str) -> float | None:
        """A value as it is scraped."""
        return self.registry.get_sample_value(name, labels)

    async def _report(self, stats: QueueStats) -> None:
        self.reported.append(stats)


async def test_metrics_show_the_last_minute_and_reports_the_full_period(clock: ManualClock) -> None:
    collecting = Collecting(clock)
    held = collecting.broker.held
    held |= {QueueKey("orders", 0): 100, QueueKey("orders", 1): 0}
    collecting.commits = [("g", "orders", 0, 40), ("g", "orders", 1, 0), ("g", "gone", 0, 7)]
    async with collecting.running():
        for minute in range(1, 11):
            held[QueueKey("orders", 1)] += 60 * minute
            await clock.advance(60)
            assert collecting.metric("pointsman_agent_queue_puts_per_second") == pytest.approx(minute)
        assert collecting.metric(
            "pointsman_agent_top_queue_puts_per_second", topic="orders", queue="1"
        ) == pytest.approx(10)
        assert collecting.metric("pointsman_agent_top_queue_puts_per_second", topic="orders", queue="0") is None
        assert collecting.metric("pointsman_agent_queue_depth_messages") == 3_400
        assert collecting.metric("pointsman_agent_top_queue_lag_messages", group="g", topic="orders", queue="0") == 60
        assert collecting.metric("pointsman_agent_group_lag_messages", group="g", topic="orders") == 3_360
        assert collecting.metric("pointsman_agent_queue_measurements_total", result="measured") == 11

    (stats,) = collecting.reported
    assert (stats.period, stats.put_rate, stats.depth, stats.lag) == (600.0, 5.5, 3_400, 3_360)
    (group,) = stats.top_groups
    assert (group.group, group.queue_count, group.highest_lag, group.member_count) == ("g", 2, 3_300, 3)
    assert (group.membership_changes, group.membership_changes_in_hour) == (4, 9)


class ScriptedContents:
    """A broker that knows queue 0 of orders alone; with ``fault`` it does not respond."""

    def __init__(self) -> None:
        self.fault: QueueEndsError | None = None

    async def bytes_of(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        if self.fault is not None:
            raise self.fault
        return {ORDERS: 4_096} if ORDERS in queues else {}

    async def born_at(self, messages: Collection[tuple[QueueKey, int]]) -> Mapping[tuple[QueueKey, int], float]:
        return {(ORDERS, 40): 1_000.0} if (ORDERS, 40) in messages else {}


async def test_the_last_measurement_can_be_seen_with_how_groups_advance_and_what_queues_hold(
    clock: ManualClock,
) -> None:
    contents = ScriptedContents()
    collecting = Collecting(clock, contents=contents)
    collecting.broker.held |= {ORDERS: 100, QueueKey("orders", 1): 0}
    collecting.commits = [("g", "orders", 0, 40), ("lonely", "orders", 1, 0)]
    now = clock.utc_now().timestamp()
    async with collecting.running():
        first = collecting.collector.live
        assert first is not None
        assert (first.stats.lag, first.stats.top_groups[0].commit_rate, first.interval) == (60, None, 60.0)
        (lag,) = first.stats.top_lags
        assert lag.oldest_unread == pytest.approx(now - 1_000.0)
        collecting.broker.held[ORDERS] += 6_000
        collecting.commits[0] = ("g", "orders", 0, 340)
        await clock.advance(60)
        live = collecting.collector.live
        assert live is not None
        contents.fault = QueueEndsError("gone")
        await clock.advance(60)
        assert collecting.metric("pointsman_agent_top_queue_bytes", topic="orders", queue="0") is None

    assert live.at == first.at + 60.0
    (queue,), (group, lonely) = live.stats.top_put_rates, live.stats.top_groups
    assert (queue.put_rate, queue.bytes) == (100.0, 4_096)
    assert (group.lag, group.put_rate, group.commit_rate, group.behind_queue_count) == (5_760, 100.0, 5.0, 0)
    assert (lonely.group, lonely.commit_rate, lonely.member_count) == ("lonely", 0.0, 0)
    assert collecting.progress.loads["g"].lag == 5_760
    assert collecting.metric("pointsman_agent_group_commits_per_second", group="g", topic="orders") == 0.0
    assert collecting.metric("pointsman_agent_group_members", group="lonely") == 0.0


async def test_measurements_that_take_long_become_rare(clock: ManualClock) -> None:
    collecting = Collecting(clock)
    collecting.broker.held[ORDERS] = 1
    collecting.broker.waits = lambda: clock.sleep(2.0)
    async with collecting.running():
        await clock.advance(2.0)
        assert collecting.broker.asked == 1
        assert collecting.metric("pointsman_agent_queue_measurement_seconds") == 2.0
        assert collecting.metric("pointsman_agent_queue_measurement_interval_seconds") == 60.0, "one alone"
        await clock.advance(60.0)
        assert collecting.broker.asked == 2
        assert collecting.metric("pointsman_agent_queue_measurement_interval_seconds") == 200.0
        await clock.advance(197.9)
        assert collecting.broker.asked == 2
        collecting.broker.waits = None
        await clock.advance(0.1)
        assert collecting.broker.asked == 3
        assert collecting.metric("pointsman_agent_queue_measurement_interval_seconds") == 60.0
        collecting.broker.waits = lambda: clock.sleep(20.0)
        await clock.advance(140.0)
        assert collecting.metric("pointsman_agent_queue_measurement_interval_seconds") == 600.0


async def test_a_short_interval_is_kept_while_measurements_are_not_long(clock: ManualClock) -> None:
    collecting = Collecting(clock, live_interval=1.0)
    collecting.broker.held[ORDERS] = 1
    collecting.broker.waits = lambda: clock.sleep(0.25)
    async with collecting.running():
        await clock.advance(0.25)
        assert collecting.metric("pointsman_agent_queue_measurement_interval_seconds") == 1.0
        collecting.broker.waits = lambda: clock.sleep(0.5)
        await clock.advance(2.25)
        assert collecting.metric("pointsman_agent_queue_measurement_interval_seconds") == 50.0


async def test_each_period_is_reported_once_and_contains_nothing_before_it(clock: ManualClock) -> None:
    collecting = Collecting(clock)
    collecting.broker.held[ORDERS] = 0
    async with collecting.running():
        collecting.broker.held[ORDERS] = 600
        await clock.advance(600)
        await clock.advance(1_200)

    assert [(stats.period, stats.put_rate) for stats in collecting.reported] == [
        (600.0, 1.0),
        (600.0, 0.0),
        (600.0, 0.0),
    ]


async def test_a_queue_that_drops_out_of_the_top_is_removed_from_the_metrics(clock: ManualClock) -> None:
    collecting = Collecting(clock)
    collecting.topics = topic_set(orders=40)
    queues = [QueueKey("orders", number) for number in range(40)]
    collecting.broker.held |= dict.fromkeys(queues, 0)

    def shown() -> set[str]:
        return {
            sample.labels["queue"]
            for family in collecting.registry.collect()
            for sample in family.samples
            if sample.name in {"pointsman_agent_top_queue_puts_per_second", "pointsman_agent_top_queue_lag_messages"}
        }

    async with collecting.running():
        for filled in (queues[:25], queues[30:]):
            for queue in filled:
                collecting.broker.held[queue] += 5
            collecting.commits = [("g", *queue, 0) for queue in filled]
            await clock.advance(60)
            assert shown() == {str(queue.queue_id) for queue in filled[:20]}
        collecting.commits = []
        await clock.advance(60)
        assert shown() == set()


@pytest.mark.parametrize("fault", [QueueEndsError("redis h:1: gone"), KeyError("length")], ids=["known", "of-its-own"])
async def test_a_broker_that_does_not_respond_is_counted_and_the_report_waits_for_it(
    clock: ManualClock, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pointsman_agent.queue_stats")
    collecting = Collecting(clock)
    collecting.broker.held[ORDERS] = 0
    async with collecting.running():
        collecting.broker.fault = fault
        await clock.advance(660)
        assert collecting.reported == []
        assert collecting.metric("pointsman_agent_queue_measurements_total", result="failed") == 11
        collecting.broker.fault = None
        collecting.broker.held[ORDERS] = 720
        await clock.advance(60)

    assert [(stats.period, stats.put_rate) for stats in collecting.reported] == [(720.0, 1.0)]
    lost, found = [record.getMessage() for record in caplog.records]
    assert lost.endswith("; queue statistics are out of date")
    assert found == "queue measurement recovered"


async def test_a_broker_that_hangs_blocks_only_the_collector_which_can_be_stopped(clock: ManualClock) -> None:
    collecting = Collecting(clock)
    collecting.broker.hangs = True
    async with collecting.running():
        await clock.advance(3_600)

    assert (collecting.broker.asked, collecting.reported) == (1, [])


async def test_without_an_interval_nothing_is_reported_but_metrics_are_exported(clock: ManualClock) -> None:
    collecting = Collecting(clock, interval=0)
    collecting.broker.held[ORDERS] = 0
    async with collecting.running():
        collecting.broker.held[ORDERS] = 60
        await clock.advance(60)
        assert collecting.metric("pointsman_agent_queue_puts_per_second") == pytest.approx(1)
        await clock.advance(86_400)

    assert collecting.reported == []


async def test_a_broker_without_known_queue_ends_is_not_reported(clock: ManualClock) -> None:
    collecting = Collecting(clock, source=UnknownQueueEnds())
    async with collecting.running():
        await clock.advance(1_800)
        assert collecting.metric("pointsman_agent_queues") == 0
        assert collecting.metric("pointsman_agent_queues_unmeasured") == 2

    assert collecting.reported == []
    assert await UnknownQueueEnds().max_offsets([ORDERS]) == {}


async def test_a_queue_deleted_at_the_broker_is_no_longer_reported(clock: ManualClock) -> None:
    collecting = Collecting(clock)
    collecting.broker.held |= {QueueKey("orders", 0): 1, QueueKey("orders", 1): 1}
    async with collecting.running():
        collecting.topics = topic_set(orders=1)
        await clock.advance(60)
        assert collecting.metric("pointsman_agent_queues") == 1
        assert collecting.metric("pointsman_agent_queue_depth_messages") == 1


async def test_with_very_many_queues_the_first_are_measured_and_others_get_their_turns(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_QUEUES", 20_000)
    collecting = Collecting(clock)
    collecting.topics = topic_set(a=15_000, b=15_000)
    collecting.broker.held |= {QueueKey(topic, number): 1 for topic in "ab" for number in range(15_000)}
    collecting.commits = [("g", "a", number, 0) for number in range(15_000)]
    turns = 0
    looked: Callable[[], object] = lambda: collecting.metric("pointsman_agent_queue_lag_messages")  # noqa: E731
    running = asyncio.create_task(collecting.collector.run())
    async with asyncio.timeout(60):
        while not looked():
            turns += 1
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert turns >= 20_000 / 500 + 20_000 / 1_000 + 15_000 / 1_000
    assert collecting.metric("pointsman_agent_queues") == 20_000
    assert collecting.metric("pointsman_agent_queues_unmeasured") == 10_000
    assert collecting.metric("pointsman_agent_queue_lag_messages") == 15_000


# --- the reporter ----------------------------------------------------------------------------------------------


def measured() -> QueueStats:
    """One measured period."""
    tally = Tally()
    tally.add_queue(ORDERS, depth=9, put_rate=1.5, seconds=600)
    tally.add_commit("g", ORDERS, 5, max_offset=9, put_rate=1.5)
    return tally.finish(members={"g": 2})


class OneListener:
    """A name server as a registration loop would hand it on."""

    def __init__(self, name_server: str, *, generation: int | None = 1, hangs: bool = False) -> None:
        self.name_server = name_server
        self.generation = generation
        self.calls = 0
        self._hangs = hangs
        self._channel = grpc.aio.insecure_channel(name_server)

    async def report_queue_stats(self, stats: messages.QueueStats) -> messages.ReportQueueStatsResponse | None:
        self.calls += 1
        if self._hangs:
            await asyncio.Event().wait()
        if self.generation is None:
            return None
        request = messages.ReportQueueStatsRequest(identity=wire.identity(), generation=self.generation, stats=stats)
        return await RegistrationServiceStub(self._channel).ReportQueueStats(request)

    async def close(self) -> None:
        await self._channel.close()


async def reported(listeners: Iterable[OneListener], *, seconds: float = 10.0, times: int = 1) -> dict[str, float]:
    """Report, and count the results."""
    registry = CollectorRegistry()
    all_of_them = list(listeners)
    reporter = Reporter(lambda: all_of_them, clock=SystemClock(), timeout=seconds, metrics=QueueStatsMetrics(registry))
    try:
        for _ in range(times):
            await reporter.report(measured())
    finally:
        for listener in all_of_them:
            await listener.close()
    return {
        sample.labels["result"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "pointsman_agent_queue_stats_reports_total"
    }


async def test_a_report_that_a_name_server_rejects_is_counted_and_not_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_name_server() as server, running_name_server() as another:
        async with grpc.aio.insecure_channel(server.addr) as channel:
            held = await RegistrationServiceStub(channel).RegisterBroker(wire.registration(wire.topic("orders")))
        listeners = [
            OneListener(server.addr, generation=held.generation),
            OneListener(server.addr, generation=held.generation + 1),
            OneListener(another.addr),
            OneListener(another.addr, generation=None),
            OneListener(f"127.0.0.1:{free_port()}"),
        ]
        # A name server is known by its address; here each listener is one.
        for number, listener in enumerate(listeners):
            listener.name_server = f"server-{number}"
        counted = await reported(listeners, times=2)

    assert counted == {"recorded": 2, "stale_generation": 2, "unknown_broker": 2, "unregistered": 2, "failed": 2}
    assert [listener.calls for listener in listeners] == [2] * 5
    logged = [record.facts for record in caplog.records if record.getMessage() == "queue report result changed"]  # type: ignore[attr-defined]
    assert sorted(facts["name_server"] for facts in logged) == [f"server-{number}" for number in range(1, 5)]
    assert {facts["reason"] for facts in logged if facts["result"] == "stale_generation"} == {"10.0.0.1:10911"}


async def test_a_name_server_that_hangs_or_closes_its_connection_delays_no_other() -> None:
    async with running_name_server() as server:
        hangs, closing = OneListener(server.addr, hangs=True), OneListener(server.addr)
        hangs.name_server, closing.name_server = "hangs", "closing"

        class Cancelled(OneListener):
            async def report_queue_stats(self, stats: messages.QueueStats) -> messages.ReportQueueStatsResponse | None:
                call = asyncio.ensure_future(super().report_queue_stats(stats))
                await asyncio.sleep(0)
                call.cancel()
                return await call

        counted = await reported([hangs, Cancelled(server.addr), closing], seconds=0.2)

    assert counted == {"timeout": 1, "failed": 1, "unknown_broker": 1}


@pytest.mark.redis
async def test_from_messages_in_redis_to_a_row_of_the_history(clock: ManualClock, tmp_path: Path) -> None:
    async with (
        redis_process(tmp_path / "redis") as redis,
        asking(redis) as ends,
        running_name_server(history=tmp_path / "history") as server,
        grpc.aio.insecure_channel(server.addr) as channel,
    ):
        held = await RegistrationServiceStub(channel).RegisterBroker(wire.registration(wire.topic("orders")))
        listener = OneListener(server.addr, generation=held.generation)
        collecting = Collecting(clock, source=ends)
        reporter = Reporter(lambda: [listener], clock=clock, timeout=3.0, metrics=collecting.metrics)
        collecting.collector._report_to = reporter.report
        collecting.commits = [("g", "orders", 0, 2)]
        await put(redis, ORDERS, 5)

        def looks(count: int) -> Callable[[], bool]:
            return lambda: collecting.metric("pointsman_agent_queue_measurements_total", result="measured") == count

        async with collecting.running():
            await eventually(looks(1))
            await put(redis, ORDERS, 6)
            for look in range(2, 12):
                await clock.advance(60)
                await eventually(looks(look))
            await eventually(
                lambda: collecting.metric("pointsman_agent_queue_stats_reports_total", result="recorded") == 1
            )
        await listener.close()

    (row,) = [row for row in rows_in(tmp_path / "history") if row["event"] == "QUEUE_STATS"]
    assert (row["broker_name"], row["broker_id"], row["generation"]) == ("a", 0, str(held.generation))
    assert row["detail"]["period_ms"] == 600_000
    assert row["detail"]["top_put_rates"] == [{"topic": "orders", "queue_id": 0, "put_rate": 0.01, "depth": 11}]
    assert row["detail"]["top_lags"] == [{"group": "g", "topic": "orders", "queue_id": 0, "lag": 9, "put_rate": 0.01}]
