"""Pages with 10,000 brokers and 100,000 topics: time to the first byte, size, and how long route queries take."""

from __future__ import annotations

import asyncio
import http.client
import statistics
import time
from datetime import UTC, datetime
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as messages
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import worker
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, peer_of

NAMES = 5_000
"""Each with a master and a slave."""
TOPICS = 100_000
TOPICS_A_NAME = 40
"""Each topic is on two names."""
AT_A_TIME = 50
ENTRIES = 20
"""Topics, queues, lags and groups that an agent names of its broker: the most."""
REPEATS = 5
APART_SECONDS = 1.2
"""Documents are served for at least a second without a rebuild."""
QUERIES = 4_000
PATHS = (
    "/",
    "/?page=100&sort=-penalty",
    "/brokers/c9/broker-04999",
    "/topics",
    "/topics?name=99999",
    "/topics/topic-050000",
    "/groups",
    "/events",
    "/changes",
    "/connected",
)


class _Response(NamedTuple):
    status: int
    first_byte: float
    """Seconds."""
    size: int


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"Pages of {2 * NAMES:,} brokers, {NAMES:,} of them with measured queues, and {TOPICS:,} topics")
    async with worker(name_server) as server:
        port = await server.ask("monitoring_port")
        async with peer_of(await server.ask("addr")) as peer:
            report.progress("registering")
            for begin in range(0, NAMES, AT_A_TIME):
                await asyncio.gather(*(_register(peer, number) for number in range(begin, begin + AT_A_TIME)))
            as_of = f"/?at={datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            for path in (*PATHS, as_of):
                first, *later = [await _ask(port, path) for _ in range(REPEATS)]
                assert {first.status, *(each.status for each in later)} == {200}, path
                usual = statistics.median(each.first_byte for each in later)
                times = f"{1e3 * first.first_byte:.0f} ms, then {1e3 * usual:.0f} ms"
                report.figure(path, f"first byte after {times}; {first.size / 1e3:.0f} kB")
            quiet = await _p99(peer)
            polling = asyncio.create_task(_poll(port))
            during = await _p99(peer)
            polling.cancel()
            report.figure("p99 of a route query, one at a time", f"{1e3 * quiet:.1f} ms")
            report.figure("the same while `/` is requested every 3 s", f"{1e3 * during:.1f} ms")


async def _register(peer: Peer, number: int) -> None:
    first = number * TOPICS_A_NAME // 2
    names = [f"topic-{(first + each) % TOPICS:06}" for each in range(TOPICS_A_NAME)]
    topics = [wire.topic(name) for name in names]
    passing = broker_pb2.BrokerHealth(status=broker_pb2.PROBE_STATUS_PASSING)
    for broker_id in (0, 1):
        addr = f"10.{number // 250}.{number % 250}.{broker_id + 1}:10911"
        who = wire.identity(f"broker-{number:05}", broker_id, addr=addr, cluster=f"c{number % 10}")
        more = {"zone": f"zone-{broker_id}", "labels": {"owner": f"team-{number % 40}"}, "health": passing}
        generation = await peer.register(*topics, who=who, heartbeat=300, expiry=900, **more)
        if broker_id == 0:
            beat = wire.beat(generation, who=who, probe=broker_pb2.PROBE_STATUS_PASSING)
            request = messages.HeartbeatRequest(beat=beat, live_queues=_measured(names[:ENTRIES], number))
            await peer.registration.Heartbeat(request)


def _measured(names: list[str], number: int) -> bytes:
    group = f"group-{number % 500}"
    stats = messages.QueueStats(
        queue_count=4 * TOPICS_A_NAME,
        topic_count=TOPICS_A_NAME,
        put_rate=100.0,
        top_put_rates=[messages.QueuePuts(topic=name, queue_id=1, put_rate=float(at)) for at, name in enumerate(names)],
        top_lags=[messages.QueueLag(group=group, topic=name, queue_id=1, lag=at * 7) for at, name in enumerate(names)],
        top_topics=[messages.TopicTotals(topic=name, queue_count=4, put_rate=5.0) for name in names],
        top_groups=[messages.GroupTotals(group=group, topic=name, queue_count=4, member_count=2) for name in names],
    )
    return messages.LiveQueues(stats=stats, interval=Duration(seconds=30)).SerializeToString()


def _request(port: int, path: str) -> _Response:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        began = time.perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        return _Response(response.status, time.perf_counter() - began, len(response.read()))
    finally:
        connection.close()


async def _ask(port: int, path: str) -> _Response:
    await asyncio.sleep(APART_SECONDS)
    return await asyncio.to_thread(_request, port, path)


async def _poll(port: int) -> None:
    while True:
        await asyncio.to_thread(_request, port, "/")
        await asyncio.sleep(3)


async def _p99(peer: Peer) -> float:
    found = list[float]()
    for number in range(QUERIES):
        began = time.perf_counter()
        await peer.route.GetTopicRoute(GetTopicRouteRequest(topic=f"topic-{number:06}"))
        found.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)
    return statistics.quantiles(found, n=100)[98]
