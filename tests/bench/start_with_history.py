"""A start of a name server with as much history as it keeps by default: when it serves, and when its past is read."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import grpc

from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.history.folder import day_folder
from tests.bench.histories import Fleet, write
from tests.bench.report import Report
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.process import RealNameServer, real_name_server

if TYPE_CHECKING:
    from pointsman.v1.route_service_pb2_grpc import RouteServiceAsyncStub

BROKERS = 3_000
NODE = "namesrv-1:9876"
COPIED_DAYS = 5
"""Of the others only the names are copied: more than these a start does not read."""
READ = ("history of earlier runs read", "history of earlier runs read, but not all of it")
PAUSE_SECONDS = 0.01
CALM_QUERIES = 1_000


class _Seen(NamedTuple):
    """What was seen of the processes while the history was read."""

    latencies: list[float]
    server_bytes: int
    reader_bytes: int


async def measure(report: Report) -> None:
    """Print the figures. Writing the history takes some minutes, and a few GB of the disk."""
    report.subject(f"A start with the history of {BROKERS:,} brokers")
    with tempfile.TemporaryDirectory(prefix="start") as name:
        folder = Path(name)
        day = datetime.now(UTC).date() - timedelta(days=1)
        fleet = Fleet(brokers=BROKERS, clusters=10, nodes=1, days=1, first_day=day, queue_stats=True)
        (history,) = write(fleet, folder / "written", say=report.progress).histories
        days, size = _lay_days(history / "raw", fleet)
        report.figure("history", f"{days} days, {size / 2**30:.1f} GiB; all but {COPIED_DAYS} days are links")
        own = {"history.directory": history, "snapshot.directory": folder / "state"}
        began = time.monotonic()
        async with real_name_server(folder, node=NODE, settings=own) as server:
            report.figure("serves after", f"{time.monotonic() - began:.2f} s")
            await register_at(server.addr, "mine", heartbeat=300, expiry=900)
            async with grpc.aio.insecure_channel(server.addr) as channel:
                stub = RouteServiceStub(channel)
                seen = await _until_read(server, stub)
                took = time.monotonic() - began
                calm = [await _query(stub) for _ in range(CALM_QUERIES)]
            (facts,) = (line for text in READ for line in server.said(text))
            read = f"{facts['rows']:,} rows, {facts['bytes'] / 2**30:.1f} GiB uncompressed, end: {facts['ended_by']}"
            report.figure("history read after", f"{took:.1f} s: {read}")
            report.figure(
                "memory until then",
                f"server {seen.server_bytes / 1e6:.0f} MB, the process that reads {seen.reader_bytes / 1e6:.0f} MB",
            )
            report.figure("route queries while it is read", f"{_spread(seen.latencies)}; after it {_spread(calm)}")


def _lay_days(raw: Path, fleet: Fleet) -> tuple[int, int]:
    """Repeat the day before itself, as other runs, up to the default of ``retain_bytes``; return days and bytes."""
    files = sorted(day_folder(raw, fleet.first_day).glob("*.jsonl.gz"))
    of_day = sum(path.stat().st_size for path in files)
    days = HistoryConfig().retain_bytes // of_day
    for number in range(1, days):
        to = day_folder(raw, fleet.first_day - timedelta(days=number))
        to.mkdir()
        for path in files:
            node, _, rest = path.name.split("-", 2)
            copied = to / f"{node}-{number:016x}-{rest}"
            if number < COPIED_DAYS:
                shutil.copy2(path, copied)
            else:
                os.link(path, copied)
    return days, days * of_day


async def _until_read(server: RealNameServer, stub: RouteServiceAsyncStub) -> _Seen:
    latencies, most, reader = list[float](), 0, 0
    while not any(map(server.said, READ)):
        latencies += [await _query(stub) for _ in range(20)]
        most = max(most, server.rss_bytes())
        reader = max([reader, *map(_resident, _children(server.pid))])
    return _Seen(latencies, most, reader)


async def _query(stub: RouteServiceAsyncStub) -> float:
    await asyncio.sleep(PAUSE_SECONDS)
    began = time.monotonic()
    await stub.GetTopicRoute(GetTopicRouteRequest(topic="mine"))
    return time.monotonic() - began


def _children(pid: int) -> list[int]:
    """A child belongs to the thread that started it."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text(encoding="ascii").split()]


def _resident(pid: int) -> int:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0
    return 0 if found is None else int(found[1]) * 1024


def _spread(seconds: list[float]) -> str:
    return f"p50 {statistics.median(seconds) * 1e3:.1f} ms, p99 {statistics.quantiles(seconds, n=100)[98] * 1e3:.1f} ms"
