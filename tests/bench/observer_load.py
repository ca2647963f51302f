"""What ``pointsman-observe`` costs a RocketMQ name server that it polls, and what it takes itself."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deploy.rocketmq.processes import free_port, missing_programs
from tests.bench import remoting_peers
from tests.bench.remoting import START_SECONDS, VERSION, java_name_server
from tests.bench.report import Report
from tests.bench.servers import OtherProgram
from tests.bench.worker import worker
from tests.kit.http_answer import ask
from tests.kit.waiting import read_until

BROKERS, TOPICS = 10, 1_000
WARM_UP_SECONDS = 20.0
SECONDS = 60.0
"""A walk at the default limit takes 100 s, so requests for topics are sent all the time."""
MOST_SHARE = 0.05
"""Of a core of the observed server."""


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"The observer beside RocketMQ's name server {VERSION} with {BROKERS} brokers and {TOPICS:,} topics")
    missing = missing_programs()
    if missing:
        print(f"  skipped: {missing}", flush=True)
        return
    async with worker(remoting_peers.brokers, 1) as brokers, worker(remoting_peers.clients) as clients:
        with java_name_server() as java:
            await brokers.ask("join", java.addr, [[f"topic-{number}" for number in range(TOPICS)]] * BROKERS)
            report.progress(f"warming Java for {WARM_UP_SECONDS:g} s, as its clients do")
            await clients.ask("load", java.addr, "topic-0", 1, WARM_UP_SECONDS)
            report.progress(f"without an observer for {SECONDS:g} s")
            alone = await _share(java)
            async with _observer(java.addr) as (port, observer):
                await read_until(lambda: _requests(port), seconds=START_SECONDS)
                report.progress(f"with an observer for {SECONDS:g} s")
                before = await _requests(port)
                own = asyncio.create_task(_share(observer))
                beside = await _share(java)
                count = await _requests(port) - before
                megabytes = await observer.ask("rss") / 1e6
                itself = await own
    report.figure("requests per second", f"{count / SECONDS:.1f}")
    report.figure(
        "CPU of the name server",
        f"{beside - alone:.2%} of a core ({beside:.2%} with, {alone:.2%} without an observer)",
        target=f"at most {MOST_SHARE:.0%}",
        is_met=beside - alone <= MOST_SHARE,
    )
    report.figure("the observer itself", f"{itself:.2%} of a core, {megabytes:.0f} MB")


@asynccontextmanager
async def _observer(addr: str, *options: str) -> AsyncIterator[tuple[int, OtherProgram]]:
    """Run one; gives its port of metrics and its process."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pointsman_namesrv.observe", "--namesrv", addr, "--history", folder),
            *("--monitoring", f"127.0.0.1:{port}", "--log-level", "ERROR", *options),
        )
        try:
            yield port, OtherProgram(process.pid)
        finally:
            process.kill()
            await process.wait()


async def _share(of: OtherProgram) -> float:
    """Return the share of a core that a process takes."""
    began, before = time.monotonic(), await of.ask("cpu")
    await asyncio.sleep(SECONDS)
    return (await of.ask("cpu") - before) / (time.monotonic() - began)


async def _requests(port: int) -> float:
    """Return the number of requests that the name server has answered; 0 while the observer starts."""
    try:
        lines = (await ask(port, "/metrics")).body.decode().splitlines()
    except OSError:
        return 0.0
    names = ("pointsman_observe_response_seconds_count{", "pointsman_observe_topic_requests_total{")
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names))
