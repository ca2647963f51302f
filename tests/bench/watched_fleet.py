"""A hundred thousand watches of ten topics each: what they take, and how a broker's end reaches all of them.

With the default limits of the lane. As many connections as the limit on open files permits, up to 20,000, five watches
on each; one broker in all ten topics unregisters and registers again, beside steady route queries.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from pointsman.daemon.rpc.listeners import LANE
from pointsman.v1.registration_service_pb2 import UNREGISTER_REASON_SHUTDOWN, UnregisterBrokerRequest
from pointsman.v1.route_service_pb2 import KnownRoute, WatchTopicRoutesRequest
from pointsman_namesrv.config import RoutesConfig
from tests.bench import clients, messages
from tests.bench.http2_load import raw_watchers
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import Worker, worker

CONNECTIONS = 19_990
"""With a few others at most ``max_connections``."""
OTHER_FILES = 500
STREAMS = 5
TOPICS = 10
TARGET_SECONDS = 3.0
QUERIES_PER_SECOND = 200.0
QUIET_SECONDS = 5.0
ROUNDS = 3


async def measure(report: Report) -> None:
    """Print the figures."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = min(CONNECTIONS, limit - OTHER_FILES)
    watches = connections * STREAMS
    report.subject(
        f"{watches:,} watches of {TOPICS} topics on {connections:,} connections of the lane (open files: {limit:,})"
    )
    known = [KnownRoute(topic=messages.topic_name(number)) for number in range(TOPICS)]
    requests = [WatchTopicRoutesRequest(topics=known).SerializeToString()] * STREAMS
    async with (
        worker(name_server, listener=LANE, routes=RoutesConfig()) as server,
        grpc.aio.insecure_channel(await server.ask("addr")) as channel,
    ):
        generations = [await messages.register(channel, messages.registration(i, TOPICS)) for i in range(2)]
        addr, empty, kernel = await server.ask("addr"), await server.ask("rss"), _kernel_bytes()
        async with (
            worker(raw_watchers, addr, connections, method=messages.WATCH, requests=requests) as watching,
            worker(clients.querier, addr, TOPICS) as querier,
        ):
            report.progress("watched fleet: opening")
            received, started = (TOPICS + 1) * watches, time.monotonic()
            took = await watching.ask("open", received) - started
            grown, kernel = await server.ask("rss") - empty, _kernel_bytes() - kernel
            report.figure("opened in", f"{took:.1f} s")
            report.figure(
                "memory of the server",
                f"{grown / 1e6:.0f} MB: {grown / connections / 1e3:.1f} kB per connection with its {STREAMS} watches, "
                f"and {kernel / 2 / connections / 1e3:.1f} kB of the kernel per end of a connection",
            )
            quiet = await querier.ask("latencies", QUIET_SECONDS, QUERIES_PER_SECOND)
            report.figure("route queries, quiet", _latencies(quiet))

            async def leave() -> None:
                request = UnregisterBrokerRequest(
                    identity=messages.broker(0), generation=generations[0], reason=UNREGISTER_REASON_SHUTDOWN
                )
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.UNREGISTER)
                await call(request.SerializeToString(), timeout=messages.CALL_SECONDS)

            async def join() -> None:
                generations[0] = await messages.register(channel, messages.registration(0, TOPICS))

            for number in range(ROUNDS):
                report.progress(f"watched fleet: round {number + 1} of {ROUNDS}")
                for what, change in (("leaves", leave), ("returns", join)):
                    received += TOPICS * watches
                    await _round(report, f"a broker of all topics {what}", change, server, watching, querier, received)


async def _round(
    report: Report,
    what: str,
    change: Callable[[], Awaitable[None]],
    server: Worker,
    watching: Worker,
    querier: Worker,
    received: int,
) -> None:
    asked = querier.begin("latencies", QUIET_SECONDS, QUERIES_PER_SECOND)
    await asyncio.sleep(QUIET_SECONDS / 10)
    cpu, reached, started = await server.ask("cpu"), watching.begin("reach", received), time.monotonic()
    await change()
    took = await reached - started
    cpu = await server.ask("cpu") - cpu
    report.figure(
        what,
        f"{took:.2f} s to the last watch, CPU {cpu:.2f} s; route queries {_latencies(await asked)}",
        target=f"{TARGET_SECONDS:g} s",
        is_met=took <= TARGET_SECONDS,
    )


def _latencies(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {ordered[len(ordered) // 2] * 1e3:.1f} ms, p99 {ordered[int(len(ordered) * 0.99)] * 1e3:.1f} ms"


def _kernel_bytes() -> int:
    """Memory of the kernel for its objects, of the whole machine: sockets are most of it here."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (slab,) = (line.split()[1] for line in lines if line.startswith("Slab:"))
    return int(slab) * 1024
