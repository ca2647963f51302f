"""``make bench``: the hot paths against a bare grpc.aio handler, in one run, as ratios.

Each server runs in a process of its own; what is compared is the CPU time that process spends per call, which a busy
machine disturbs less than calls a second. Servers take turns, and the median of the rounds counts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import grpc
import uvloop

from namesrv.app import NameServerApp
from namesrv.config import HistoryConfig, LogConfig, MonitoringConfig, NameServerConfig, ServerConfig
from namesrv.core.liveness import LivenessRules
from namesrv.core.model import BrokerIdentity, DataVersion, QueueConfig, Registration
from namesrv.core.name_server import NameServer
from pointsman.v1.broker_pb2 import BrokerIdentity as BrokerIdentityMessage
from pointsman.v1.registration_service_pb2 import BEAT_STATUS_OK, BeatAnswer, KeepAliveRequest, KeepAliveResponse
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.fakes import wire

ROUNDS = 5
CALLS = 4_000
CONCURRENCY = 32

Serve = Callable[[Connection], Coroutine[None, None, None]]


# --- servers, each in its own process -------------------------------------------------------------------------


async def serve_name_server(pipe: Connection) -> None:
    """The real one, with its history on disk."""
    with tempfile.TemporaryDirectory() as folder:
        config = NameServerConfig(
            server=ServerConfig(listen="127.0.0.1:0"),
            monitoring=MonitoringConfig(listen="127.0.0.1:0"),
            history=HistoryConfig(directory=folder),
            log=LogConfig(level="WARNING"),
        )
        app, stop = NameServerApp(config, version="bench"), asyncio.Event()
        running = asyncio.create_task(app.run(stop))
        await app.started.wait()
        await answer_with_cpu(pipe, app.addr)
        stop.set()
        await running


async def serve_bare(pipe: Connection) -> None:
    """As little as grpc.aio can do: constant bytes for whatever comes."""
    route = bytes(pipe.recv())
    beat = KeepAliveResponse(answer=BeatAnswer(status=BEAT_STATUS_OK)).SerializeToString()

    async def unary(request: bytes, context: object) -> bytes:  # noqa: ARG001  # the shape of a handler
        return route

    async def stream(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        async for _ in requests:
            await context.write(beat)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "pointsman.v1.RouteService", {"GetTopicRoute": grpc.unary_unary_rpc_method_handler(unary)}
            ),
            grpc.method_handlers_generic_handler(
                "pointsman.v1.RegistrationService", {"KeepAlive": grpc.stream_stream_rpc_method_handler(stream)}
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await answer_with_cpu(pipe, f"127.0.0.1:{port}")
    await server.stop(None)


async def answer_with_cpu(pipe: Connection, addr: str) -> None:
    """Tell the address, then the CPU seconds spent so far whenever asked, until told to stop."""
    pipe.send(addr)
    while await asyncio.to_thread(pipe.recv):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send(usage.ru_utime + usage.ru_stime)


def run_process(serve: Serve, pipe: Connection) -> None:
    """The child's main."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(pipe))


@dataclass
class Peer:
    """A server process and a channel to it."""

    pipe: Connection
    channel: grpc.aio.Channel

    def cpu_seconds(self) -> float:
        """CPU time of the server process so far."""
        self.pipe.send(True)
        return float(self.pipe.recv())


@asynccontextmanager
async def server(serve: Serve, *, first: bytes | None = None) -> AsyncIterator[Peer]:
    """Run a server process for the length of the block."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=run_process, args=(serve, theirs))
    process.start()
    if first is not None:
        ours.send(first)
    try:
        async with grpc.aio.insecure_channel(ours.recv()) as channel:
            yield Peer(ours, channel)
    finally:
        ours.send(False)
        process.join(10)
        process.kill()


# --- loads ----------------------------------------------------------------------------------------------------


async def query_routes(channel: grpc.aio.Channel) -> None:
    """CALLS route queries, CONCURRENCY at a time."""
    stub = RouteServiceStub(channel)
    query = GetTopicRouteRequest(topic="orders")

    async def client() -> None:
        for _ in range(CALLS // CONCURRENCY):
            await stub.GetTopicRoute(query)

    await asyncio.gather(*(client() for _ in range(CONCURRENCY)))


def beats_of(generations: list[int]) -> Callable[[grpc.aio.Channel], Awaitable[None]]:
    """CALLS beats over one stream a broker."""

    async def beat(channel: grpc.aio.Channel) -> None:
        async def agent(number: int) -> None:
            stream = RegistrationServiceStub(channel).KeepAlive()
            message = KeepAliveRequest(beat=wire.beat(generations[number], who=broker(number)))
            for _ in range(CALLS // CONCURRENCY):
                await stream.write(message)
                await stream.read()
            stream.cancel()

        await asyncio.gather(*(agent(number) for number in range(CONCURRENCY)))

    return beat


def broker(number: int) -> BrokerIdentityMessage:
    """The identity of one of many brokers."""
    return wire.identity(name=f"b{number}", addr=f"10.0.0.{number}:10911")


async def ratio(load: Callable[[grpc.aio.Channel], Awaitable[None]], ours: Peer, bare: Peer) -> str:
    """CPU per call of ours and of the bare handler, in turns."""
    spent: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(ROUNDS + 1):
        for name, peer in (("ours", ours), ("bare", bare)):
            before = peer.cpu_seconds()
            await load(peer.channel)
            if number:  # the first round warms up
                spent[name].append((peer.cpu_seconds() - before) / CALLS * 1e6)
    mine, theirs = statistics.median(spent["ours"]), statistics.median(spent["bare"])
    return f"{mine:6.1f} us against {theirs:6.1f} us of CPU a call: {mine / theirs:.2f} times a bare handler"


# --- the core alone -------------------------------------------------------------------------------------------


def register_topics(count: int) -> tuple[float, float]:
    """Milliseconds of the core for a first registration of ``count`` topics, and for an unchanged one."""

    def registration() -> Registration:
        topics = {f"topic-{i}": QueueConfig(8, 8, 6) for i in range(count)}
        return Registration(identity=BrokerIdentity("c", "a", 0, "h:1"), topics=topics, data_version=DataVersion())

    first: list[float] = []
    again: list[float] = []
    for _ in range(ROUNDS):
        core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
        for times in (first, again):
            claim = registration()
            started = time.perf_counter()
            core.register(claim, now=0.0)
            times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(first), statistics.median(again)


async def main() -> None:
    """Print every figure."""
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, uvloop, "
        f"grpcio {grpc.__version__}; median of {ROUNDS} rounds of {CALLS} calls, {CONCURRENCY} at a time"
    )
    async with server(serve_name_server) as ours:
        generations = []
        for number in range(CONCURRENCY):
            chunks = wire.registration(wire.topic("orders", queues=8), who=broker(number))
            generations.append((await RegistrationServiceStub(ours.channel).RegisterBroker(chunks)).generation)
        raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = ours.channel.unary_unary(
            "/pointsman.v1.RouteService/GetTopicRoute"
        )
        answer = await raw(GetTopicRouteRequest(topic="orders").SerializeToString())
        async with server(serve_bare, first=answer) as bare:
            print(f"route query ({len(answer)} bytes, {CONCURRENCY} brokers)  {await ratio(query_routes, ours, bare)}")
            print(f"heartbeat on a stream               {await ratio(beats_of(generations), ours, bare)}")
    first, again = register_topics(10_000)
    print(f"core: registering 10,000 topics {first:.1f} ms, unchanged {again:.2f} ms")
