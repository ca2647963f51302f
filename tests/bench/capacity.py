"""Memory of the server with 200 brokers of 10,000 topics each."""

from __future__ import annotations

import asyncio
import time

import grpc

from tests.bench import messages
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import worker

BROKERS = 200
TOPICS = 10_000
CONCURRENT_REGISTRATIONS = 4
SETTLE_SECONDS = 8.0
"""History and snapshot lag by some seconds; they must be written before memory is measured."""
MOST_BYTES = 400_000_000


async def measure(report: Report) -> None:
    """Print the figure."""
    report.subject(f"Memory with {BROKERS} brokers that have the same {TOPICS:,} topics")
    async with worker(name_server) as server, grpc.aio.insecure_channel(await server.ask("addr")) as channel:
        empty = await server.ask("rss")
        started = time.monotonic()
        waiting = iter(range(BROKERS))

        async def some() -> None:
            for number in waiting:
                await messages.register(channel, messages.registration(number, TOPICS))
                if (number + 1) % 50 == 0:
                    report.progress(f"capacity: {number + 1} of {BROKERS} brokers")

        await asyncio.gather(*(some() for _ in range(CONCURRENT_REGISTRATIONS)))
        took = time.monotonic() - started
        just_then = await server.ask("rss")
        await asyncio.sleep(SETTLE_SECONDS)
        full = await server.ask("rss")
    report.figure(
        f"{BROKERS * TOPICS:,} entries (topic, broker)",
        f"{full / 1e6:.0f} MB, {empty / 1e6:.0f} MB when empty: {(full - empty) / BROKERS / TOPICS:.0f} bytes "
        f"per entry ({just_then / 1e6:.0f} MB right after {took:.0f} s of registering)",
        target=f"at most {MOST_BYTES / 1e6:.0f} MB",
        is_met=full <= MOST_BYTES,
    )
