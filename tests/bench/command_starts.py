"""CPU time of ``pointsmanctl``, a process for each command, and of RocketMQ's mqadmin with the same questions."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

from deploy.rocketmq.processes import RocketMQ, fetched, missing_programs
from tests.bench import remoting_peers
from tests.bench.remoting import JARS, VERSION
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import worker
from tests.kit.ctl.process import environment

TURNS = 7
"""The median counts."""
BROKERS = 10
VERSION_SECONDS = 0.2
COMMAND_SECONDS = 1.3 * VERSION_SECONDS
COMMANDS: dict[tuple[str, ...], tuple[str, ...] | None] = {
    ("--version",): None,
    ("--help",): ("help",),
    ("topics",): ("topicList",),
    ("route", "OfAll"): ("topicRoute", "-t", "OfAll"),
    ("clusters",): ("clusterList",),
    ("brokers",): None,
    ("kv", "list"): None,
    ("watchers", "OfAll"): None,
    ("groups",): None,
    ("why", "broker-1"): None,
    ("doctor",): None,
}
"""By command: mqadmin's for the same question, if there is one."""
COMPLETIONS = ("", "route Of")


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(f"Commands, {BROKERS} brokers: CPU time of the process, median of {TURNS}")
    async with worker(name_server) as server, worker(remoting_peers.brokers, 0) as brokers:
        addr, remoting = await server.ask("addr"), await server.ask("remoting_addr")
        await brokers.ask("join", remoting, [["OfAll"]] * BROKERS)
        for command in COMMANDS:
            seconds = await _median([sys.executable, "-m", "pointsman_ctl", *command], POINTSMAN_NAMESRV=addr)
            target = VERSION_SECONDS if command[0].startswith("--") else COMMAND_SECONDS
            _figure(report, f"pointsmanctl {' '.join(command)}", seconds, target)
        for line in COMPLETIONS:
            words = f"pointsmanctl {line}"
            asked = {"_POINTSMANCTL_COMPLETE": "bash_complete", "COMP_WORDS": words}
            asked["COMP_CWORD"] = str(words.count(" "))
            seconds = await _median([sys.executable, "-m", "pointsman_ctl"], POINTSMAN_NAMESRV=addr, **asked)
            _figure(report, f"{words}<TAB>", seconds, COMMAND_SECONDS)
        await _mqadmin(report, remoting)


async def _mqadmin(report: Report, addr: str) -> None:
    missing = missing_programs()
    if missing:
        print(f"  mqadmin skipped: {missing}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        rocketmq = RocketMQ(fetched(VERSION, JARS), Path(folder), addr)
        for command in filter(None, COMMANDS.values()):
            seconds = await _median(rocketmq.admin_command(*command))
            report.figure(f"mqadmin {' '.join(command)}", f"{seconds:.2f} s")


def _figure(report: Report, what: str, seconds: float, target: float) -> None:
    report.figure(what, f"{seconds:.3f} s", target=f"{target:.2f} s", is_met=seconds <= target)


async def _median(command: list[str], **env: str) -> float:
    """Return the CPU time, user and system. Modules are compiled beforehand, as where it is installed."""
    inherited = {name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as compiled:
        every = {**inherited, "PYTHONPYCACHEPREFIX": compiled, **env}
        await _cpu_seconds(command, every)
        return statistics.median([await _cpu_seconds(command, every) for _ in range(TURNS)])


async def _cpu_seconds(command: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=silent, stderr=silent)
    try:
        code = await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert code in {os.EX_OK, 1}, (command, code)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
