"""Route queries while a large broker registers changes twenty times per second, against the same queries alone."""

from __future__ import annotations

import statistics

from tests.bench import clients
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import Worker, worker

TOPICS = 10_000
CHANGED_OF = (100, 1)
"""Every hundredth topic changes, and for comparison every one, as no broker does twenty times per second."""
REGISTRATIONS_A_SECOND = 20
QUERIES_A_SECOND = 200
SECONDS = 6.0
TIMES_IDLE = 3.0


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(
        f"{QUERIES_A_SECOND} route queries per second while a broker with {TOPICS:,} topics registers, changed, "
        f"{REGISTRATIONS_A_SECOND} times per second"
    )
    for changed_of in CHANGED_OF:
        async with worker(name_server) as server:
            await _measure(report, server, changed_of)


async def _measure(report: Report, server: Worker, changed_of: int) -> None:
    what = "every topic changed" if changed_of == 1 else f"1 topic in {changed_of} changed"
    addr = await server.ask("addr")
    async with (
        worker(clients.changing_registrar, addr, TOPICS, changed_of) as registrar,
        worker(clients.querier, addr, TOPICS) as querier,
    ):
        await registrar.ask("register", 0.1, REGISTRATIONS_A_SECOND)
        report.progress(f"{what}: warm-up, then queries alone")
        await querier.ask("latencies", 1.0, QUERIES_A_SECOND)
        idle_before = await querier.ask("latencies", SECONDS / 2, QUERIES_A_SECOND)
        report.progress(f"{what}: queries and registrations")
        before = await server.ask("cpu")
        repeating = registrar.begin("register", SECONDS, REGISTRATIONS_A_SECOND)
        loaded = await querier.ask("latencies", SECONDS, QUERIES_A_SECOND)
        registrations = await repeating
        cpu = await server.ask("cpu") - before
        idle = idle_before + await querier.ask("latencies", SECONDS / 2, QUERIES_A_SECOND)
    calm, busy = _p99(idle), _p99(loaded)
    report.figure(
        f"{what}: p99 of queries",
        f"{busy / calm:.1f} times idle ({busy * 1e3:.1f} against {calm * 1e3:.1f} ms, medians "
        f"{statistics.median(loaded) * 1e3:.1f} and {statistics.median(idle) * 1e3:.1f}; "
        f"{registrations} registrations, server at {cpu / SECONDS:.0%} of a core)",
        target=f"at most {TIMES_IDLE:.0f}",
        is_met=None if changed_of == 1 else busy <= TIMES_IDLE * calm,
    )


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]
