"""Large registrations: how long they block the event loop, and the cost of an unchanged one."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from pointsman.clock import SystemClock
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.rpc.register_call import RegisterCalls
from tests.bench import clients, messages
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import Worker, worker

LARGE_TOPICS = 100_000
CONCURRENT_BROKERS = 4
AGAIN = 5
LONGEST_HOLD_SECONDS = 0.025

UNCHANGED_TOPICS = 10_000
UNCHANGED_SECONDS = 100e-6
REPEATS = 200


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject("Registrations: the longest that others waited for the event loop")
    async with worker(name_server) as server, AsyncExitStack() as stack:
        addr = await server.ask("addr")
        brokers = [
            await stack.enter_async_context(worker(clients.registrars, addr, first, count, LARGE_TOPICS))
            for first, count in ((0, 1), (1, CONCURRENT_BROKERS))
        ]
        one, many = brokers
        title = f"{LARGE_TOPICS:,} topics"
        await _hold(report, server, one, f"{title}, first", 1)
        await _hold(report, server, one, f"{title}, again unchanged", AGAIN)
        await _hold(report, server, many, f"{title}, of {CONCURRENT_BROKERS} brokers together", 1)
    took = await _unchanged_seconds()
    report.figure(
        f"{UNCHANGED_TOPICS:,} topics unchanged, time of the loop",
        f"{took * 1e6:.0f} us in the handler",
        target=f"at most {UNCHANGED_SECONDS * 1e6:.0f} us",
        is_met=took <= UNCHANGED_SECONDS,
    )


async def _hold(report: Report, server: Worker, brokers: Worker, what: str, times: int) -> None:
    report.progress(what)
    await server.ask("probe")
    started = time.monotonic()
    for _ in range(times):
        await brokers.ask("register")
    took = (time.monotonic() - started) / times
    longest, busiest = await server.ask("longest_hold")
    report.figure(
        what,
        f"{busiest * 1e3:.1f} ms of CPU, {longest * 1e3:.1f} ms by the clock; response after {took * 1e3:.0f} ms",
        # By the clock it includes other processes, and the threads of this process that write history
        # and snapshot while they hold the interpreter: shown only; it was above the target in one of three runs.
        target=f"at most {LONGEST_HOLD_SECONDS * 1e3:.0f} ms of CPU",
        is_met=busiest <= LONGEST_HOLD_SECONDS,
    )


async def _unchanged_seconds() -> float:
    """CPU time of the handler for chunks that were received already, without gRPC."""
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0, max_topics=10_000_000)
    bounds = IntervalBounds(min_heartbeat_interval=1.0, max_heartbeat_interval=300.0, max_expiry=3_600.0)
    calls = RegisterCalls(core, clock=SystemClock(), bounds=bounds, max_topics=200_000, record=lambda _: None)
    chunks = messages.registration(0, UNCHANGED_TOPICS)
    await calls.register_broker(_stream(chunks), Peer("bench", "bench"))
    took = []
    for _ in range(REPEATS):
        # As gRPC delivers them: equal bytes in another object.
        chunks = [bytes(bytearray(chunk)) for chunk in chunks]
        started = time.thread_time()
        await calls.register_broker(_stream(chunks), Peer("bench", "bench"))
        took.append(time.thread_time() - started)
    return statistics.median(took)


async def _stream(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
