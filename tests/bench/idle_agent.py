"""An idle agent, against a process that only sends heartbeats over a stream and has a server without callers."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import worker

SECONDS = 600.0
"""20 heartbeats, 120 polls of the topics, 120 probes: a minute is too short to measure 40 ms of CPU in it."""
SETTLE_SECONDS = 15.0
TIMES_BARE = 1.5

CONFIGURATION = """\
[broker]
cluster = "c1"
name = "idle-{probe}"
addr = "{addr}"
[name_servers]
addrs = ["{addr}"]
[probe]
kind = "{probe}"
[rpc]
listen = "127.0.0.1:0"
[monitoring]
listen = "127.0.0.1:0"
[log]
level = "WARNING"
[[topics.topic]]
name = "orders"
read_queues = 4
write_queues = 4
"""


@dataclass(frozen=True)
class Cost:
    """Cost of a process."""

    megabytes: float
    milliseconds_a_minute: float
    """Of CPU."""


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"An idle agent over {SECONDS:.0f} s (a heartbeat every 30 s) against a bare process")
    with tempfile.TemporaryDirectory() as folder:
        async with worker(name_server) as server:
            addr = await server.ask("addr")
            report.progress(f"idle for {SECONDS:.0f} s")
            bare, unprobed, probed = await asyncio.gather(
                _cost(["tests.bench.bare_agent", addr], folder),
                _cost(_agent(folder, addr, probe="none"), folder),
                _cost(_agent(folder, addr, probe="tcp"), folder),
            )
    for who, ours in (("without a probe, as by default", unprobed), ("a tcp probe each 5 s", probed)):
        for what, mine, base, unit in (
            ("memory", ours.megabytes, bare.megabytes, "MB"),
            ("CPU", ours.milliseconds_a_minute, bare.milliseconds_a_minute, "ms a minute"),
        ):
            report.figure(
                f"{who}: {what}",
                f"{mine:.1f} against {base:.1f} {unit}: {mine / base:.2f} times",
                target=f"at most {TIMES_BARE}",
                is_met=mine <= TIMES_BARE * base,
            )


def _agent(folder: str, addr: str, *, probe: str) -> list[str]:
    file = Path(folder) / f"{probe}.toml"
    file.write_text(CONFIGURATION.format(addr=addr, probe=probe), encoding="utf-8")
    return ["pointsman_agent", "--config", str(file)]


async def _cost(module: Sequence[str], folder: str) -> Cost:
    """Run a module as a separate process, in ``folder``, for the time of the measurement."""
    paths = os.pathsep.join(path for path in sys.path if path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *module),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{Path.cwd()}{os.pathsep}{paths}"},
    )
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        started, cpu = time.monotonic(), _cpu_seconds(process.pid)
        await asyncio.sleep(SECONDS)
        spent = (_cpu_seconds(process.pid) - cpu) / (time.monotonic() - started)
        return Cost(_megabytes(process.pid), spent * 60e3)
    finally:
        process.kill()
        await process.wait()


def _megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu_seconds(pid: int) -> float:
    # The process's own clock, as clock_getcpuclockid(3) makes its id: /proc counts in ticks of 10 ms, which is a third
    # of what there is to measure.
    return time.clock_gettime((~pid << 3) | 2)
