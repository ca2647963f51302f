"""Peak loads: updates for thousands of watchers, and the largest registrations during the heartbeats of a fleet."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.bench import clients, messages
from tests.bench.worker import worker
from tests.chaos.conftest import Report
from tests.chaos.test_watch_scale import TOPICS, Brokers, Lives, all_faults, truth, wait_for_first_states
from tests.chaos.test_watch_scale import clients as recording_clients
from tests.kit.name_server.process import real_name_server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

WATCHERS = 1_000
CHANGES = 30
LAST_SECONDS = 0.5
"""From a change to the last of all watchers; the 50 ms in which changes are coalesced are in it."""

BURST_WATCHERS = 2_500
BURST = 100
BURST_SECONDS = 5.0

LARGE_BROKERS = 10
LARGE_TOPICS = 100_000
LARGE_SECONDS = 20.0
BEATING = 50
BEATS_A_SECOND = 10.0
BEAT_P99_SECONDS = 0.1


async def test_a_thousand_watchers_get_one_change_per_second_immediately(tmp_path: Path, report: Report) -> None:
    async with (
        real_name_server(tmp_path, settings={"server.warm_up_seconds": 0}) as server,
        grpc.aio.insecure_channel(server.addr) as channel,
        worker(clients.watchers, server.addr, WATCHERS) as watching,
    ):
        topic = messages.ChangingTopic(channel, 0, await messages.register(channel, messages.registration(0, 1)))
        await watching.ask("open")
        took = []
        for number in range(1, CHANGES + 1):
            await asyncio.sleep(1.0)
            started = time.monotonic()
            await topic.change()
            took.append(await watching.ask("last", number) - started)
    report(f"the last of {WATCHERS} after {statistics.median(took):.3f} s, at most {max(took):.3f} s")
    assert statistics.median(took) < LAST_SECONDS


async def test_after_a_burst_of_changes_every_watcher_ends_with_the_last_state(tmp_path: Path, report: Report) -> None:
    lives, brokers, records = Lives(tmp_path), Brokers(), tmp_path / "records"
    records.mkdir()
    async with recording_clients(lives.addr, 5, watchers=BURST_WATCHERS // 5, folder=records), lives.life():
        await brokers.register(lives.addr)
        await wait_for_first_states(records, BURST_WATCHERS, seconds=60)
        assert await brokers.change(lives.addr, BURST) > 0
        changed_at, fresh = time.monotonic(), await truth(lives.addr)
        found = ["unread"]
        while found and time.monotonic() - changed_at < BURST_SECONDS:
            found = await asyncio.to_thread(all_faults, records, fresh)
        report(f"{BURST} changes of {TOPICS} topics: consistent {time.monotonic() - changed_at:.1f} s after the last")
        assert found == []


async def test_ten_brokers_that_register_100_000_topics_together_delay_no_heartbeat(
    tmp_path: Path, report: Report
) -> None:
    async with (
        real_name_server(
            tmp_path,
            settings={"routes.max_topics": LARGE_BROKERS * LARGE_TOPICS + BEATING},
        ) as server,
        worker(clients.registrars, server.addr, BEATING, LARGE_BROKERS, LARGE_TOPICS) as large,
        grpc.aio.insecure_channel(server.addr) as channel,
        AsyncExitStack() as stack,
    ):
        latencies: list[float] = []
        async with asyncio.TaskGroup() as beating:
            tasks = []
            for number in range(BEATING):
                generation = await messages.register(channel, messages.registration(number, 1))
                stream: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(messages.KEEP_ALIVE)()
                stack.callback(stream.cancel)
                tasks.append(beating.create_task(_beat(stream, messages.beat(number, generation), latencies)))
            started = time.monotonic()
            await large.ask("register")
            took = time.monotonic() - started
            for task in tasks:
                task.cancel()
        last = messages.topic_name(LARGE_TOPICS - 1)
        route = (await RouteServiceStub(channel).GetTopicRoute(GetTopicRouteRequest(topic=last), timeout=5)).route
        p99 = statistics.quantiles(latencies, n=100)[98]
        report(
            f"{took:.1f} s, {len(latencies)} beats with a p99 of {p99 * 1e3:.0f} ms, {max(latencies) * 1e3:.0f} at most"
        )
        assert len(route.broker_datas) == LARGE_BROKERS
        assert took < LARGE_SECONDS
        assert p99 < BEAT_P99_SECONDS


async def _beat(stream: grpc.aio.StreamStreamCall[bytes, bytes], beat: bytes, latencies: list[float]) -> None:
    """Send heartbeats until cancelled, and record the latency of each response."""
    while True:
        started = time.monotonic()
        await stream.write(beat)
        assert isinstance(await stream.read(), bytes), "the stream ended"
        latencies.append(time.monotonic() - started)
        await asyncio.sleep(1 / BEATS_A_SECOND)
