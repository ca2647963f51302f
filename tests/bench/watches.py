"""One change, many watchers of its topic: when the last one has it, and what a watcher costs.

On both listeners with watchers in ready bytes, and on grpcio's against a bare push with watchers of grpcio.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import grpc

from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from pointsman.http2.frame_codec import FRAME_HEADER, FrameType
from pointsman.names import join_addr
from pointsman.v1.route_service_pb2 import GetTopicRouteResponse
from pointsman_namesrv.config import RoutesConfig
from tests.bench import clients, messages
from tests.bench.http2_load import raw_watchers
from tests.bench.report import Report
from tests.bench.servers import bare_server, name_server, process_commands
from tests.bench.worker import Worker, serve_commands, worker
from tests.kit.certificates import Authority, Files
from tests.kit.tls_peers import channel, tls_config
from tests.kit.waiting import read_until

WATCHERS = (1_000, 5_000)
CLIENTS = 4
CHANGES = 7
PAUSE_SECONDS = 0.5
"""Between two changes: the hub pauses between rounds, too."""
COALESCE_MILLISECONDS = 50
RAW_WATCHERS = {5_000: (5_000, 40), 20_000: (10_000, 200)}
"""Numbers of watchers; each has the number of their connections, and the target in milliseconds."""
MESSAGE_OCTETS = 130
"""About as many as a route of two brokers has."""
MOST_BYTES = 3_000
TLS_WATCHERS = 2_000
MOST_TLS_BYTES = 40_000
RAW_PAUSE_SECONDS = 1.0
"""Between two changes, and before memory is read: the server has nothing left to do."""


@dataclass(frozen=True)
class Spread:
    """Cost of a push to all watchers."""

    milliseconds: float
    cpu_milliseconds: float
    bytes_a_watcher: float


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(
        f"Watches: from the call that changes a route to the last watcher; the name server's time includes up to "
        f"{COALESCE_MILLISECONDS} ms of coalescing, and {CLIENTS} client processes share the cores"
    )
    for count in WATCHERS:
        report.progress(f"{count:,} watchers of the name server")
        ours, answer = await _of_name_server(count)
        report.progress(f"{count:,} watchers of a bare server")
        bare = await _of_bare_server(count, answer)
        report.figure(
            f"{count:,} watchers, to the last one",
            f"{ours.milliseconds:.0f} ms against {bare.milliseconds:.0f} ms",
        )
        report.figure(
            f"{count:,} watchers, CPU of the server",
            f"{ours.cpu_milliseconds * 1e3 / count:.1f} against {bare.cpu_milliseconds * 1e3 / count:.1f} us each: "
            f"{ours.cpu_milliseconds / bare.cpu_milliseconds:.2f} times a bare push",
        )
        report.figure(
            f"{count:,} watchers, memory of the server",
            f"{ours.bytes_a_watcher / 1e3:.1f} against {bare.bytes_a_watcher / 1e3:.1f} kB per watcher",
        )

    await _measure_listeners(report)


async def _measure_listeners(report: Report) -> None:
    report.subject(
        "Watches on both listeners, watchers in ready bytes in one process: from the call that changes a route to the "
        "last watcher, without coalescing"
    )
    count = max(WATCHERS)
    report.progress(f"{count:,} sockets")
    milliseconds, microseconds = await _of_bare_sends(count)
    report.figure(
        f"{count:,} sockets, a loop that only sends, to the last one",
        f"{milliseconds:.0f} ms; CPU {microseconds:.1f} us each: the system call's part of the next figure",
    )
    for count, (connections, target) in RAW_WATCHERS.items():
        for listener in (LANE, GRPCIO) if connections == count else (LANE,):
            report.progress(f"{count:,} watchers on {connections:,} connections, {listener}")
            spread = await _of_listener(listener, connections, count // connections)
            what = f"{count:,} watchers on {connections:,} connections, {listener}"
            is_lane = listener == LANE
            report.figure(
                f"{what}, to the last one",
                f"{spread.milliseconds:.0f} ms; CPU {spread.cpu_milliseconds * 1e3 / count:.1f} us each",
                target=f"{target} ms",
                is_met=spread.milliseconds <= target if is_lane else None,
            )
            if connections == count:
                report.figure(
                    f"{what}, memory of the server",
                    f"{spread.bytes_a_watcher / 1e3:.1f} kB per watcher and connection, without the kernel's",
                    target=f"{MOST_BYTES / 1e3:g} kB",
                    is_met=spread.bytes_a_watcher <= MOST_BYTES if is_lane else None,
                )

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        size = await _memory_with_tls(authority, authority.issue("server"))
    report.figure(
        f"{TLS_WATCHERS:,} watchers over TLS, lane, memory of the server",
        f"{size / 1e3:.1f} kB per watcher and connection, without the kernel's",
        target=f"{MOST_TLS_BYTES / 1e3:g} kB",
        is_met=size <= MOST_TLS_BYTES,
    )


async def _memory_with_tls(authority: Authority, files: Files) -> float:
    request = [messages.watch(messages.topic_name(0))]
    async with (
        worker(name_server, tls_config(files), listener=LANE) as server,
        channel(await server.ask("addr"), authority.file) as secured,
    ):
        await messages.register(secured, messages.registration(0, topics=1))
        empty, addr = await server.ask("rss"), await server.ask("addr")
        async with worker(
            raw_watchers, addr, TLS_WATCHERS, method=messages.WATCH, requests=request, authority=authority.file
        ) as watching:
            await watching.ask("open", clients.FIRST_ANSWERS * TLS_WATCHERS)
            await asyncio.sleep(RAW_PAUSE_SECONDS)
            return float(await server.ask("rss") - empty) / TLS_WATCHERS


async def _of_listener(listener: str, connections: int, streams: int) -> Spread:
    routes = RoutesConfig(watch_coalesce_seconds=0.0, max_watchers=1_000_000)
    count, requests = connections * streams, [messages.watch(messages.topic_name(0))] * streams
    async with (
        worker(name_server, listener=listener, routes=routes, max_connections=100_000) as server,
        grpc.aio.insecure_channel(await server.ask("addr")) as channel,
    ):
        generations = [await messages.register(channel, messages.registration(i, topics=1)) for i in range(2)]
        topic = messages.ChangingTopic(channel, 0, generations[0])
        empty, addr = await server.ask("rss"), await server.ask("addr")
        async with worker(raw_watchers, addr, connections, method=messages.WATCH, requests=requests) as watching:
            received = clients.FIRST_ANSWERS * count
            await watching.ask("open", received)
            await asyncio.sleep(RAW_PAUSE_SECONDS)
            memory, cpu, took = await server.ask("rss") - empty, 0.0, list[float]()
            for _ in range(CHANGES):
                await asyncio.sleep(RAW_PAUSE_SECONDS)
                received += count
                before = await server.ask("cpu")
                reached = watching.begin("reach", received)
                started = time.monotonic()
                await topic.change()
                took.append(await reached - started)
                cpu += await server.ask("cpu") - before
    return Spread(statistics.median(took) * 1e3, cpu / CHANGES * 1e3, memory / count)


async def bare_sender(pipe: Connection) -> None:
    """Send a message to each accepted socket, with a system call each and nothing else; needs no HTTP/2."""
    loop, sockets = asyncio.get_running_loop(), list[socket.socket]()
    frame = FRAME_HEADER.pack(0, MESSAGE_OCTETS, FrameType.DATA, 0, 1) + bytes(MESSAGE_OCTETS)

    async def accept() -> None:
        while True:
            accepted, _ = await loop.sock_accept(listening)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets.append(accepted)

    def send() -> None:
        for each in sockets:
            each.send(frame)

    with socket.create_server(("127.0.0.1", 0), backlog=4_096) as listening:
        listening.setblocking(False)
        accepting = loop.create_task(accept())
        addr = join_addr(*listening.getsockname())
        await serve_commands(pipe, {**process_commands(addr), "count": lambda: len(sockets), "send": send})
        accepting.cancel()
    for each in sockets:
        each.close()


async def _of_bare_sends(count: int) -> tuple[float, float]:
    """Milliseconds to the last reader, and microseconds of CPU time per socket."""
    async with worker(bare_sender) as server:
        addr = await server.ask("addr")
        async with worker(raw_watchers, addr, count, method=messages.WATCH, requests=()) as watching:
            await watching.ask("open", 0)
            await read_until(lambda: server.ask("count"), lambda accepted: accepted >= count)
            took, cpu = list[float](), list[float]()
            for number in range(1, CHANGES + 1):
                await asyncio.sleep(RAW_PAUSE_SECONDS)
                before, reached = await server.ask("cpu"), watching.begin("reach", number * count)
                started = time.monotonic()
                await server.ask("send")
                took.append(await reached - started)
                cpu.append(await server.ask("cpu") - before)
    return statistics.median(took) * 1e3, statistics.median(cpu) * 1e6 / count


async def _of_name_server(count: int) -> tuple[Spread, bytes]:
    async with worker(name_server) as server, grpc.aio.insecure_channel(await server.ask("addr")) as channel:
        generations = [await messages.register(channel, messages.registration(i, topics=1)) for i in range(2)]
        topic = messages.ChangingTopic(channel, 0, generations[0])
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.ROUTE)
        answer = await ask(messages.query(messages.topic_name(0)))
        assert GetTopicRouteResponse.FromString(answer).HasField("route")
        return await _spread(server, count, topic.change), answer


async def _of_bare_server(count: int, answer: bytes) -> Spread:
    async with worker(bare_server) as server, grpc.aio.insecure_channel(await server.ask("addr")) as channel:
        await server.ask("answer", answer)
        push: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.PUSH)

        async def change() -> None:
            await push(b"", timeout=messages.CALL_SECONDS)

        return await _spread(server, count, change)


async def _spread(server: Worker, count: int, change: Callable[[], Awaitable[None]]) -> Spread:
    empty = await server.ask("rss")
    took: list[float] = []
    async with _watchers(await server.ask("addr"), count) as watching:
        memory = await server.ask("rss") - empty
        cpu = await server.ask("cpu")
        for number in range(1, CHANGES + 1):
            await asyncio.sleep(PAUSE_SECONDS)
            started = time.monotonic()
            await change()
            took.append(max(await asyncio.gather(*(client.ask("last", number) for client in watching))) - started)
        cpu = await server.ask("cpu") - cpu
    return Spread(statistics.median(took) * 1e3, cpu / CHANGES * 1e3, memory / count)


@asynccontextmanager
async def _watchers(addr: str, count: int) -> AsyncIterator[list[Worker]]:
    async with AsyncExitStack() as stack:
        watching = [
            await stack.enter_async_context(worker(clients.watchers, addr, count // CLIENTS)) for _ in range(CLIENTS)
        ]
        await asyncio.gather(*(client.ask("open") for client in watching))
        yield watching
