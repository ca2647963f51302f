"""Questions about the past to a name server with 30 days of 1,000 brokers, and route queries beside them."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
from google.protobuf.message import Message

from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman_namesrv.history.past_files import PastFiles
from pointsman_namesrv.history.past_questions import answer
from tests.bench import clients
from tests.bench.histories import Fleet, write
from tests.bench.report import Report
from tests.bench.servers import name_server
from tests.bench.worker import Worker, serve_commands, worker

FLEET = Fleet(brokers=1_000, clusters=4, nodes=1, days=30, first_day=date(2026, 3, 2), flapping_share=0.01, seed=7)
LARGE = Fleet(
    brokers=10_000,
    clusters=10,
    nodes=1,
    days=2,
    first_day=date(2026, 3, 2),
    flapping_share=0.01,
    seed=7,
    queue_stats=True,
)
FLEET_SECONDS = 4.0
NODE = "namesrv-1:9876"
QUESTIONS = 200
AIM_SECONDS = 1.0
QUERIED_TOPICS = 1_000
QUERIES_A_SECOND = 200
SECONDS = 3.0
TURNS = 12
"""Short ones in turn: other loads of the machine meet both alike."""
TIMES_QUIET = 1.5


async def measure(report: Report, *, fleet: Fleet = FLEET) -> None:
    """Print the figures. Writing the history takes a minute."""
    report.subject(f"Questions about the past: {fleet.brokers:,} brokers, {fleet.days} days")
    with tempfile.TemporaryDirectory(prefix="past") as folder:
        written = write(fleet, Path(folder) / "history")
        (history,) = written.histories
        report.progress(f"{written.rows:,} rows written; indexing")
        files, began = PastFiles(history, NODE), time.monotonic()
        list(files.index_missing())
        sizes = [_size(history / kind) / 1e6 for kind in ("raw", "index")]
        report.figure(
            "index",
            f"{time.monotonic() - began:.1f} s for {written.rows:,} rows; {sizes[1]:.1f} MB beside {sizes[0]:.0f} MB",
        )
        async with worker(name_server, history=str(history), node=NODE, listener=DEFAULT_LISTENER) as server:
            await _questions(report, fleet, server)
            await _queries_beside(report, fleet, server)


async def measure_fleet(report: Report, *, fleet: Fleet = LARGE) -> None:
    """Print what the page of all brokers costs late in the last of two days. Writing them takes some minutes."""
    report.subject(f"All brokers at a moment: {fleet.brokers:,} brokers with queue statistics, {fleet.days} days")
    with tempfile.TemporaryDirectory(prefix="past") as folder:
        written = write(fleet, Path(folder) / "history")
        (history,) = written.histories
        report.progress(f"{written.rows:,} rows written; indexing")
        files, began = PastFiles(history, NODE), time.process_time()
        list(files.index_missing())
        took = time.process_time() - began
        sizes = [sum(path.stat().st_size for path in history.rglob(name)) / 1e6 for name in ("*.json", "*.states.gz")]
        beside = f"{sizes[0]:.1f} MB, and {sizes[1]:.1f} MB of copies of rows about states"
        report.figure(
            "index",
            f"{took:.1f} s of CPU for {written.rows:,} rows; {beside}, beside {_size(history / 'raw') / 1e6:.0f} MB",
        )
        question = {"kind": "fleet", "at": fleet.moment(fleet.seconds - 300.0).isoformat(), "steps": True}
        began = time.process_time()
        replicas = answer(files, question)["replicas"]
        took = time.process_time() - began
        report.figure(
            "late in the day",
            f"{took:.2f} s of CPU for {len(replicas):,} brokers",
            target=f"at most {FLEET_SECONDS:g} s",
            is_met=took <= FLEET_SECONDS,
        )


async def _questions(report: Report, fleet: Fleet, server: Worker) -> None:
    took: dict[str, list[float]] = {}
    async with _admin(await server.ask("addr")) as stub:
        for _, (kind, request) in zip(range(QUESTIONS), _asked(fleet), strict=False):
            began = time.monotonic()
            await getattr(stub, kind)(request, timeout=60)
            took.setdefault(kind, []).append(time.monotonic() - began)
    for kind, seconds in took.items():
        report.figure(kind, f"{len(seconds)} questions: {_spread(seconds)}")
    every = [each for seconds in took.values() for each in seconds]
    report.figure("all", _spread(every), target=f"p95 at most {AIM_SECONDS:g} s", is_met=_p95(every) <= AIM_SECONDS)


async def _queries_beside(report: Report, fleet: Fleet, server: Worker) -> None:
    addr = await server.ask("addr")
    quiet: list[float] = []
    asked: list[float] = []
    async with (
        worker(clients.changing_registrar, addr, QUERIED_TOPICS, 1) as registrar,
        worker(clients.querier, addr, QUERIED_TOPICS) as querier,
        worker(asker, addr, fleet) as asking,
    ):
        await registrar.ask("register", 0.1, 20)
        await querier.ask("latencies", 1.0, QUERIES_A_SECOND)
        for turn in range(TURNS):
            report.progress(f"turn {turn + 1} of {TURNS}")
            quiet += await querier.ask("latencies", SECONDS, QUERIES_A_SECOND)
            await asking.ask("begin")
            asked += await querier.ask("latencies", SECONDS, QUERIES_A_SECOND)
            await asking.ask("end")
    calm, busy = _p99(quiet), _p99(asked)
    report.figure(
        "p99 of route queries while a client asks without pause",
        f"{busy / calm:.2f} times quiet ({busy * 1e3:.2f} against {calm * 1e3:.2f} ms)",
        target=f"at most {TIMES_QUIET:g}",
        is_met=busy <= TIMES_QUIET * calm,
    )


async def asker(pipe: Connection, addr: str, fleet: Fleet) -> None:
    """Ask without pause from "begin" to "end".

    It stands for a client on another machine, so it runs when the other processes leave it a core.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    is_over = asyncio.Event()
    asking: set[asyncio.Task[None]] = set()

    async def without_pause(stub: AdminServiceStub) -> None:
        for kind, request in _asked(fleet):
            if is_over.is_set():
                return
            await getattr(stub, kind)(request, timeout=60)

    async with _admin(addr) as stub:

        async def begin() -> None:
            is_over.clear()
            asking.add(asyncio.create_task(without_pause(stub)))

        async def end() -> None:
            is_over.set()
            await asking.pop()

        await serve_commands(pipe, {"begin": begin, "end": end})


def _asked(fleet: Fleet) -> Iterator[tuple[str, Message]]:
    rng = random.Random(f"{fleet.seed}/past")
    topics = fleet.brokers // 8 * fleet.topics_a_broker
    while True:
        route = admin.GetPastRouteRequest(topic=f"topic-{rng.randrange(topics) + 1:05d}")
        broker = admin.GetPastBrokerRequest(broker_name=f"broker-{rng.randrange(fleet.brokers // 2) + 1:05d}")
        events = admin.ListPastEventsRequest(broker_name=broker.broker_name)
        changes = admin.ListChangesRequest()
        for request in (route, broker):
            request.at.FromDatetime(fleet.moment(rng.random() * fleet.seconds))
        until = fleet.moment(rng.random() * fleet.seconds)
        for listed, days in ((events, 7), (changes, 30)):
            listed.until.FromDatetime(until)
            listed.since.FromDatetime(until - timedelta(days=days))
        yield from (("GetPastRoute", route), ("GetPastBroker", broker))
        yield from (("ListPastEvents", events), ("ListChanges", changes))


@asynccontextmanager
async def _admin(addr: str) -> AsyncIterator[AdminServiceStub]:
    async with grpc.aio.insecure_channel(addr) as channel:
        yield AdminServiceStub(channel)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 95 // 100]


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


def _spread(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds):.3f} s, p95 {_p95(seconds):.3f} s, longest {max(seconds):.3f} s"
