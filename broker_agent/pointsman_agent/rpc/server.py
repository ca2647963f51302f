"""The agent's gRPC server: its options, its services, its stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from pointsman.service.monitoring import CannotListen
from pointsman.service.standard_services import LIMIT, HealthServicer, ReflectionServicer, StandardStreams
from pointsman.wire.channel import SERVER_OPTIONS
from pointsman_agent.rpc import status
from pointsman_agent.rpc.calls import CallCounter
from pointsman_agent.rpc.refusals import LimitExceeded

LAST_WORDS_SECONDS = 0.2
"""How long statuses that were sent may take to leave."""


def server_options(longest_silence: float) -> list[tuple[str, int]]:
    """The options of a server whose clients may be silent for so many seconds."""
    # gRPC pings of its own accord when data comes, and hangs up when there is no answer within this time: 60 s by
    # default, and a consumer that stands still is to be judged by its silence alone.
    return [*SERVER_OPTIONS, ("grpc.http2.ping_timeout_ms", int(longest_silence * 1000))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service as the server sees it."""

    name: str
    """Full name, as health and reflection know it."""
    add_to: Callable[[grpc.aio.Server], None]
    run: Callable[[], Awaitable[None]] | None = None
    """What it does by itself as long as it is served; cancelled at the stop."""
    drain: Callable[[], Awaitable[None]] | None = None
    """Ends its streams ourselves, at the stop."""


class AgentServer:
    """Listens from :meth:`bind`, serves from :meth:`start`, until :meth:`stop`; :meth:`watch_over` runs meanwhile.

    ``longest_silence``: of a client, seconds, after which its own service judges it.
    """

    def __init__(self, *, longest_silence: float) -> None:
        self.calls = CallCounter()
        """Also a collector of metrics, to be registered."""
        self._server = grpc.aio.server(options=server_options(longest_silence), interceptors=(self.calls,))
        self._standard_streams = StandardStreams(_refusal)
        self._health = HealthServicer(self._standard_streams)
        self._services: tuple[Service, ...] = ()
        self._stopping = asyncio.Event()

    def bind(self, listen: str) -> int:
        """Take host:port (port 0: a free one) and return the port. Raises CannotListen."""
        try:
            return self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {listen}: is it this machine's address, and free?") from error

    async def start(self, services: Sequence[Service]) -> None:
        """Serve."""
        self._services = tuple(services)
        for service in self._services:
            service.add_to(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [service.name for service in self._services]
        reflected = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            ReflectionServicer(reflected, self._standard_streams), self._server
        )
        for name in ("", *names):
            await self.show(name, serves=True)
        await self._server.start()

    async def watch_over(self) -> None:
        """Run what the services do by themselves, until :meth:`stop`. Raises what any of them died of, as a group."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_run(service.run)) for service in self._services if service.run is not None]
            await self._stopping.wait()
            for task in running:
                task.cancel()

    async def show(self, name: str, *, serves: bool) -> None:
        """Set the health of a service, or of the whole server (the empty name)."""
        response = health_pb2.HealthCheckResponse
        await self._health.set(name, response.SERVING if serves else response.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, end the streams ourselves, let running calls finish within ``grace`` seconds."""
        self._stopping.set()
        self.calls.stop()
        for name in ("", *(service.name for service in self._services)):
            await self.show(name, serves=False)
        for service in self._services:
            if service.drain is not None:
                await service.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self.calls.until_quiet()
        # What is open now is a client that does not read, or one that watches health or reflection. Once only: of two
        # stops at a time the second may end calls of a server that the first has destroyed, which is a crash.
        await self._server.stop(min(grace, LAST_WORDS_SECONDS))


def _refusal(bound: int, value: int | None, note: str) -> status_pb2.Status:
    return status.refusal(LimitExceeded(LIMIT, bound, value=value, advice=note))


async def _run(run: Callable[[], Awaitable[None]]) -> None:
    await run()
