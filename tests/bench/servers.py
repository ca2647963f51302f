"""The measured servers, in separate processes: the name server, and the minimum that grpc.aio can do."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc

from pointsman.daemon.access.access_settings import AccessSettings
from pointsman.daemon.process import logs
from pointsman.daemon.rpc.listeners import GRPCIO
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.wire.channel_options import SERVER_OPTIONS
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import (
    HistoryConfig,
    LogConfig,
    MonitoringConfig,
    NameServerConfig,
    RemotingConfig,
    RoutesConfig,
    ServerConfig,
    SnapshotConfig,
)
from pointsman_namesrv.rpc.node_server import REGISTRATION, ROUTE
from tests.bench.worker import Commands, serve_commands

PROBE_SECONDS = 0.001

BARE = "pointsman.bench.Bare"
"""An additional service of the bare server, for commands of a bench."""

_Context = grpc.aio.ServicerContext[Any, Any]


async def name_server(
    pipe: Connection,
    tls: TlsConfig | None = None,
    access: AccessSettings | None = None,
    *,
    history: str = "",
    node: str = "",
    listener: str = GRPCIO,
    routes: RoutesConfig | None = None,
    max_connections: int = 0,
) -> None:
    """Run the real one with everything on, history and snapshot on disk; ``history``: a folder with the past.

    ``max_connections``: 0 for the default.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = NameServerConfig(
            server=ServerConfig(
                listen="127.0.0.1:0",
                warm_up_seconds=0.0,
                node=node,
                listener=listener,
                max_connections=max_connections or ServerConfig().max_connections,
            ),
            routes=routes or RoutesConfig(max_topics=10_000_000),
            remoting=RemotingConfig(listen="127.0.0.1:0"),
            tls=tls or TlsConfig(),
            access=access or AccessSettings(),
            monitoring=MonitoringConfig(listen="127.0.0.1:0"),
            history=HistoryConfig(directory=history or f"{folder}/history"),
            snapshot=SnapshotConfig(directory=f"{folder}/state"),
            log=LogConfig(level="WARNING"),
        )
        logs.configure(config.log.level, config.log.format)
        app, stop = NameServerApp(config, version="bench"), asyncio.Event()
        sample = app.metrics.registry.get_sample_value

        def sweeps() -> tuple[float, float]:
            """Their number, and their total seconds."""
            name = "pointsman_namesrv_sweep_duration_seconds"
            return sample(f"{name}_count") or 0.0, sample(f"{name}_sum") or 0.0

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(app.run(stop))
            await app.started.wait()
            await serve_commands(
                pipe,
                {
                    **process_commands(app.addr),
                    "sweeps": sweeps,
                    "remoting_addr": lambda: app.remoting_addr,
                    "monitoring_port": lambda: app.monitoring_port,
                },
            )
            stop.set()


async def bare_server(pipe: Connection) -> None:
    """Respond with precomputed bytes to any request, with the same options."""
    bare = _Bare()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(bare.handlers())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await serve_commands(pipe, {**process_commands(f"127.0.0.1:{port}"), "answer": bare.answer})
    await server.stop(None)


class _Bare:
    def __init__(self) -> None:
        self._answer = b""
        self._watchers: set[asyncio.Event] = set()

    def answer(self, answer: bytes) -> None:
        """Set the bytes of every response."""
        self._answer = answer

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return [
            grpc.method_handlers_generic_handler(
                ROUTE.full_name,
                {
                    "GetTopicRoute": unary(self._unary),
                    "WatchTopicRoutes": grpc.unary_stream_rpc_method_handler(self._watch),
                },
            ),
            grpc.method_handlers_generic_handler(
                REGISTRATION.full_name,
                {"KeepAlive": stream(self._echo), "RegisterBroker": grpc.stream_unary_rpc_method_handler(self._take)},
            ),
            grpc.method_handlers_generic_handler(BARE, {"Push": unary(self._push)}),
        ]

    async def _unary(self, request: bytes, context: _Context) -> bytes:  # noqa: ARG002  # the shape of a handler
        return self._answer

    async def _take(self, requests: AsyncIterator[bytes], context: _Context) -> bytes:  # noqa: ARG002  # as above
        async for _ in requests:
            pass
        return self._answer

    async def _echo(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        async for _ in requests:
            await context.write(self._answer)

    async def _watch(self, request: bytes, context: _Context) -> None:  # noqa: ARG002  # as above
        woken = asyncio.Event()
        self._watchers.add(woken)
        # As a watch begins: the state, and its end.
        await context.write(self._answer)
        await context.write(b"")
        try:
            while await woken.wait():
                woken.clear()
                await context.write(self._answer)
        finally:
            self._watchers.discard(woken)

    async def _push(self, request: bytes, context: _Context) -> bytes:  # noqa: ARG002  # as above
        for woken in self._watchers:
            woken.set()
        return b""


class _HoldProbe:
    """How long a task waits for the event loop, measured from inside."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._longest = self._busiest = 0.0

    async def start(self, pause: float = PROBE_SECONDS) -> None:
        """Reset and start. A pause of 0 between two samples measures each turn of the loop, and keeps a core busy."""
        self._longest = self._busiest = 0.0
        self._task = asyncio.create_task(self._run(pause))
        await asyncio.sleep(2 * PROBE_SECONDS)

    async def stop(self) -> tuple[float, float]:
        """Return the longest wait, and the most CPU time of the loop's thread within one; seconds."""
        if self._task is not None:
            await asyncio.sleep(2 * PROBE_SECONDS)
            self._task.cancel()
        return self._longest, self._busiest

    async def _run(self, pause: float) -> None:
        while True:
            at, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(pause)
            took = time.monotonic() - at
            self._longest = max(self._longest, took - pause)
            # A virtual machine sometimes counts more CPU time than has passed.
            self._busiest = max(self._busiest, min(took, time.thread_time() - cpu))


def process_commands(addr: str) -> Commands:
    """Commands of every measured server."""
    probe = _HoldProbe()
    return {
        "addr": lambda: addr,
        "cpu": _cpu_seconds,
        "rss": resident_bytes,
        "probe": probe.start,
        "longest_hold": probe.stop,
    }


class OtherProgram:
    """A measured server that is not in Python."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def ask(self, command: str, /, *_: object) -> float:
        """Serve "cpu" and "rss" as the other servers do; see :func:`process_commands`."""
        if command == "rss":
            return resident_bytes(self._pid)
        # clock_getcpuclockid(3): of all its threads, in nanoseconds; /proc has hundredths of a second.
        return time.clock_gettime(~self._pid << 3 | 2)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_bytes(process: int | str = "self") -> int:
    """Return the memory that a process has."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
