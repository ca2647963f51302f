"""10,000 brokers that beat every 30 s on streams: the share of a core that this takes, and what a sweep costs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from tests.bench import clients
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import worker

BROKERS = 10_000
INTERVAL_SECONDS = 30
CLIENTS = 4
SETTLE_SECONDS = 20.0
"""In which the snapshot of so many new brokers is written."""
REST_SECONDS = 10.0
"""Without beats, for what the server spends on its own; together shorter than what makes a broker suspect."""
WARM_UP_SECONDS = 3.0
SECONDS = 30.0
"""Each broker beats once in it."""


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"{BROKERS:,} brokers that beat every {INTERVAL_SECONDS} s, each on a stream of its own")
    async with worker(name_server) as server, AsyncExitStack() as stack:
        empty, addr, share = await server.ask("rss"), await server.ask("addr"), BROKERS // CLIENTS
        fleet = [
            await stack.enter_async_context(worker(clients.agents, addr, i * share, share, INTERVAL_SECONDS))
            for i in range(CLIENTS)
        ]
        report.progress("fleet: registering")
        await asyncio.gather(*(client.ask("register") for client in fleet))
        report.progress("fleet: at rest")
        await asyncio.sleep(SETTLE_SECONDS)
        cpu = await server.ask("cpu")
        await asyncio.sleep(REST_SECONDS)
        rest = (await server.ask("cpu") - cpu) / REST_SECONDS
        await asyncio.gather(*(client.ask("begin") for client in fleet))
        report.progress(f"fleet: beating for {WARM_UP_SECONDS + SECONDS:.0f} s")
        await asyncio.sleep(WARM_UP_SECONDS)

        async def now() -> tuple[float, float, float, float, int, int]:
            beats = [await client.ask("beats") for client in fleet]
            sweeps, sweep_seconds = await server.ask("sweeps")
            cpu = await server.ask("cpu")
            return time.monotonic(), cpu, sweeps, sweep_seconds, sum(b for b, _ in beats), sum(r for _, r in beats)

        at, cpu, sweeps, swept, beats, _ = await now()
        await asyncio.sleep(SECONDS)
        at_end, cpu_end, sweeps_end, swept_end, beats_end, refused = await now()
        full = await server.ask("rss")
    took, spent, count = at_end - at, cpu_end - cpu, beats_end - beats
    report.figure(
        f"{count / took:.0f} beats a second",
        f"{spent / took:.1%} of a core, {rest:.1%} without beats: {(spent - rest * took) / count * 1e6:.0f} us "
        f"a beat; {refused} beats not answered OK",
    )
    sweep_count = max(1.0, sweeps_end - sweeps)
    report.figure("a sweep over all", f"{(swept_end - swept) / sweep_count * 1e3:.1f} ms, {sweep_count:.0f} of them")
    report.figure("memory", f"{(full - empty) / BROKERS / 1e3:.1f} kB a broker with its stream")
