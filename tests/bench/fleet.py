"""10,000 brokers with heartbeats every 30 s on streams: the share of a core that they use, and the cost of a sweep."""

from __future__ import annotations

import asyncio
import functools
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from pointsman.daemon.rpc.listeners import LISTENERS
from tests.bench import clients
from tests.bench.report import Report
from tests.bench.servers import bare_server, name_server
from tests.bench.worker import Main, Worker, worker

BROKERS = 10_000
INTERVAL_SECONDS = 30
CLIENTS = 4
SETTLE_SECONDS = 20.0
"""Time to write the snapshot of all these new brokers."""
IDLE_SECONDS = 10.0
"""Without heartbeats, for the server's own cost; in total too short to make a broker suspect."""
WARM_UP_SECONDS = 3.0
SECONDS = 30.0
"""Each broker sends one heartbeat in it."""


@dataclass(frozen=True)
class Load:
    """Cost of the fleet for a server, as shares of a core, bytes and seconds."""

    at_rest: float
    beating: float
    beats_a_second: float
    refused: int
    bytes_a_broker: float
    sweep: str


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"{BROKERS:,} brokers with heartbeats every {INTERVAL_SECONDS} s, each on its own stream")
    bare = await _load(report, "bare echo", bare_server)
    for listener in LISTENERS:
        ours = await _load(report, listener, functools.partial(name_server, listener=listener))
        report.figure(
            f"{listener}, {ours.beats_a_second:.0f} heartbeats per second",
            f"{ours.beating:.1%} of a core ({ours.at_rest:.1%} without beats), {ours.beating / bare.beating:.2f} times "
            f"the {bare.beating:.1%} of a bare echo of grpcio; {ours.refused} beats not answered OK",
        )
        report.figure(f"{listener}, a sweep over all", ours.sweep)
        report.figure(
            f"{listener}, memory",
            f"{ours.bytes_a_broker / 1e3:.1f} against {bare.bytes_a_broker / 1e3:.1f} kB a broker and stream",
        )


async def _load(report: Report, what: str, main: Main[[]]) -> Load:
    is_name_server = main is not bare_server
    async with worker(main) as server, AsyncExitStack() as stack:
        empty, addr, share = await server.ask("rss"), await server.ask("addr"), BROKERS // CLIENTS
        fleet = [
            await stack.enter_async_context(worker(clients.agents, addr, i * share, share, INTERVAL_SECONDS))
            for i in range(CLIENTS)
        ]
        report.progress(f"fleet, {what}: registering")
        await asyncio.gather(*(client.ask("register") for client in fleet))
        report.progress(f"fleet, {what}: at rest")
        if is_name_server:
            await asyncio.sleep(SETTLE_SECONDS)
        at_rest, _, _ = await _share(server, fleet, IDLE_SECONDS)
        await asyncio.gather(*(client.ask("begin") for client in fleet))
        report.progress(f"fleet, {what}: beating for {WARM_UP_SECONDS + SECONDS:.0f} s")
        await asyncio.sleep(WARM_UP_SECONDS)
        sweeps, swept = await server.ask("sweeps") if is_name_server else (0, 0)
        beating, beats, refused = await _share(server, fleet, SECONDS)
        if is_name_server:
            sweeps_end, swept_end = await server.ask("sweeps")
            sweeps, swept = max(1, sweeps_end - sweeps), swept_end - swept
        sweep = f"{swept / sweeps * 1e3:.1f} ms, {sweeps:.0f} of them" if sweeps else ""
        memory = (await server.ask("rss") - empty) / BROKERS
    return Load(at_rest, beating, beats / SECONDS, refused, memory, sweep)


async def _share(server: Worker, fleet: list[Worker], seconds: float) -> tuple[float, int, int]:
    """The server's share of a core in that time, its heartbeats, and all heartbeats so far without the response OK."""
    before, cpu, started = await _beats(fleet), await server.ask("cpu"), time.monotonic()
    await asyncio.sleep(seconds)
    share = (await server.ask("cpu") - cpu) / (time.monotonic() - started)
    after = await _beats(fleet)
    return share, after[0] - before[0], after[1]


async def _beats(fleet: list[Worker]) -> tuple[int, int]:
    counts = [await client.ask("beats") for client in fleet]
    return sum(beats for beats, _ in counts), sum(refused for _, refused in counts)
