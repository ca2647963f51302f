"""A daemon's gRPC server: options, services, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from pointsman.daemon.access.access import Access, Rules
from pointsman.daemon.http_server import CannotListen
from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.daemon.lane.undecided_connection import OtherWire
from pointsman.daemon.rpc.handler_table import HandlerTable
from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER, GRPCIO
from pointsman.daemon.rpc.standard_services import HealthServicer, ReflectionServicer, StandardStreams
from pointsman.wire.channel_options import SERVER_OPTIONS
from pointsman.wire.refusals import LimitExceeded, Refusal

if TYPE_CHECKING:
    from pointsman.daemon.tls.server_certificates import ServerCertificates

CHECK_SECONDS = 1.0
"""Time between two checks whether grpcio's server has ended."""
FINAL_FLUSH_SECONDS = 0.2
"""Time for sent statuses to leave."""


def server_options(longest_silence: float) -> list[tuple[str, int]]:
    """Return the options of a server whose clients may be silent for ``longest_silence`` seconds."""
    # gRPC pings by itself when data arrives, and closes the connection without a response within this time: 60 s by
    # default, measured on an agent that was stopped right after a heartbeat.
    return [*SERVER_OPTIONS, ("grpc.http2.ping_timeout_ms", int(longest_silence * 1000))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service and its handler (:meth:`HandlerTable.service`)."""

    descriptor: ServiceDescriptor
    servicer: object
    raw: frozenset[str] = frozenset()
    rules: Rules
    """Roles that may call each method."""
    drains: bool = False
    """Whether it is refused while the table drains."""
    run: Callable[[], Awaitable[None]] | None = None
    """Background work while it is served; cancelled at the stop."""
    drain: Callable[[], Awaitable[None]] | None = None
    """Ends its streams from the server's side, at the stop."""


class RpcServer:
    """Listens from :meth:`bind`, serves from :meth:`start` to :meth:`stop`; :meth:`watch_over` runs during that time.

    ``limit_exceeded``: the daemon's refusal for the bound on streams of health and reflection. ``stopping``: the
    refusal of calls after :meth:`stop`.
    """

    def __init__(
        self,
        table: HandlerTable,
        *,
        options: Sequence[tuple[str, int]],
        limit_exceeded: type[LimitExceeded],
        stopping: Refusal,
        access: Access | None = None,
        listener: str = DEFAULT_LISTENER,
    ) -> None:
        self._table = table
        self._access = access
        self._refusal = stopping
        self._server = (
            grpc.aio.server(options=options)
            if listener == GRPCIO
            else LaneServer(options, table.inline, lambda bound: table.metrics.http2_limits.labels(bound).inc())
        )
        self._standard_streams = StandardStreams(table.status_of, limit_exceeded)
        self._health = HealthServicer(self._standard_streams)
        self.services: tuple[Service, ...] = ()
        self._stopping = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None

    def bind(self, listen: str, certificates: ServerCertificates | None = None) -> int:
        """Bind host:port (port 0: a free one) and return the port; without certificates in plaintext.

        Raises CannotListen.
        """
        try:
            if certificates is not None:
                if isinstance(self._server, LaneServer):
                    return self._server.add_secure_port(listen, lambda: certificates.context)
                return self._server.add_secure_port(listen, certificates.grpc_credentials())
            return self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {listen}: is it this machine's address, and free?") from error

    def share_port(self, other: OtherWire) -> None:
        """Serve another wire on the bound port as well; the listener must be the lane."""
        assert isinstance(self._server, LaneServer), "the configuration refuses it"  # noqa: S101
        self._server.share_port(other)

    async def start(self, services: Sequence[Service]) -> None:
        """Serve. gRPC checks the services in this order for each call."""
        self.services = tuple(services)
        self._server.add_generic_rpc_handlers([self.handler_of(each) for each in self.services])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflected = (*self.service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            ReflectionServicer(reflected, self._standard_streams, self._access), self._server
        )
        await self.show_health()
        await asyncio.shield(self._start())

    def handler_of(self, service: Service) -> grpc.GenericRpcHandler:
        """Build the handler of a service."""
        return self._table.service(
            service.descriptor, service.servicer, raw=service.raw, drains=service.drains, rules=service.rules
        )

    def _start(self) -> asyncio.Task[None]:
        """Start gRPC's server, once. A start that is cancelled halfway leaves a server that cannot stop."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._server.start())
        return self._starting

    @property
    def service_names(self) -> tuple[str, ...]:
        """Return the full names, as for health and reflection."""
        return tuple(service.descriptor.full_name for service in self.services)

    async def watch_over(self) -> None:
        """Run the background work of the services until :meth:`stop`.

        Raises its exceptions as a group, and that of grpcio's server if it ends before.
        """
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_run(service.run)) for service in self.services if service.run is not None]
            if not isinstance(self._server, LaneServer):
                running.append(tasks.create_task(_until_its_end(self._server)))
            await self._stopping.wait()
            for task in running:
                task.cancel()

    async def show_health(self) -> None:
        """Set the health of the server (the empty name) and of each service: SERVING until the stop."""
        await self.show(("", *self.service_names), serves=not self._stopping.is_set())

    async def show(self, names: Iterable[str], *, serves: bool) -> None:
        """Set the health of these services."""
        response = health_pb2.HealthCheckResponse
        for name in names:
            await self._health.set(name, response.SERVING if serves else response.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, end the streams, let running calls finish within ``grace`` seconds."""
        self._stopping.set()
        self._table.close(self._refusal)
        try:
            await self.show_health()
            await asyncio.gather(*(service.drain() for service in self.services if service.drain is not None))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._table.until_quiet()
        finally:
            # grpcio frees the port of a server only if it was started.
            if self._starting is not None or not isinstance(self._server, LaneServer):
                await self._start()
            # What is still open is a client that does not read, or one that watches health or reflection. Once only: of
            # two stops at a time the second may end calls of a server that the first has destroyed, which is a crash.
            await self._server.stop(min(grace, FINAL_FLUSH_SECONDS))


async def _run(run: Callable[[], Awaitable[None]]) -> None:
    await run()


async def _until_its_end(server: grpc.aio.Server) -> None:
    """Raise what ends a server before its stop: in grpcio 1.85.1 a request whose path is not UTF-8.

    Otherwise the process would go on without its port.
    """
    # Only a wait that times out raises it.
    while not await server.wait_for_termination(CHECK_SECONDS):
        pass
