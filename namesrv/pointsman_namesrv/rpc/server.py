"""The gRPC server: its options, its services, its stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from pointsman.service.monitoring import CannotListen
from pointsman.service.standard_services import LIMIT, HealthServicer, ReflectionServicer, StandardStreams
from pointsman.v1 import admin_service_pb2, registration_service_pb2, route_service_pb2
from pointsman.wire.channel import SERVER_OPTIONS
from pointsman_namesrv.core.errors import LimitExceeded
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.liveness import LATE_AFTER_INTERVALS
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.rpc import status
from pointsman_namesrv.rpc.admin import AdminServicer
from pointsman_namesrv.rpc.calls import Calls
from pointsman_namesrv.rpc.registration import RegistrationServicer
from pointsman_namesrv.rpc.routes import RAW_METHODS, RouteServicer
from pointsman_namesrv.rpc.watch_hub import WatchHub

REGISTRATION = registration_service_pb2.DESCRIPTOR.services_by_name["RegistrationService"]
ROUTE = route_service_pb2.DESCRIPTOR.services_by_name["RouteService"]
ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
SERVICES = tuple(service.full_name for service in (REGISTRATION, ROUTE, ADMIN))
LIVE = "live"
"""Health of the process: SERVING until it stops, whatever its state. For a probe that would restart it."""
LAST_WORDS_SECONDS = 0.2
"""How long statuses that were sent may take to leave."""

log = logging.getLogger(__name__)


def server_options(longest_interval: float, max_connections: int) -> list[tuple[str, int]]:
    """The options of a server whose agents may beat as seldom as that, seconds."""
    # gRPC pings of its own accord when data comes, and hangs up when there is no answer within this time: 60 s by
    # default, measured on an agent that was stopped right after a beat.
    return [
        *SERVER_OPTIONS,
        ("grpc.http2.ping_timeout_ms", int(LATE_AFTER_INTERVALS * longest_interval * 1000)),
        ("grpc.max_allowed_incoming_connections", max_connections),
    ]


class Server:
    """Listens from :meth:`bind`, serves from :meth:`start`, until :meth:`stop`; health shows the state of the node.

    ``longest_interval``: of heartbeats, seconds. An agent that stands still is judged by its silence alone, so the
    transport must not hang up on it before the end of its stream says no more than that. ``count_refusal``: of a
    stream of health or reflection.
    """

    def __init__(
        self,
        lifecycle: NodeLifecycle,
        *,
        longest_interval: float,
        max_connections: int,
        count_refusal: Callable[[str], None],
    ) -> None:
        self._lifecycle = lifecycle
        self._server = grpc.aio.server(options=server_options(longest_interval, max_connections))

        def refusal(bound: int, value: int | None, note: str) -> status_pb2.Status:
            count_refusal(LIMIT)
            return status.refusal(LimitExceeded(LIMIT, bound, value=value, note=note))

        self._standard_streams = StandardStreams(refusal)
        self._health = HealthServicer(self._standard_streams)
        self._serving: tuple[Calls, RegistrationServicer, WatchHub] | None = None
        self._changed = asyncio.Event()
        lifecycle.on_change(self._changed.set)

    def bind(self, listen: str) -> int:
        """Take host:port (port 0: a free one) and return the port. Raises CannotListen."""
        try:
            return self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {listen}: is it this machine's address, and free?") from error

    async def start(
        self, calls: Calls, registration: RegistrationServicer, route: RouteServicer, admin: AdminServicer
    ) -> None:
        """Serve the three services; :meth:`follow` must run from now on."""
        self._serving = (calls, registration, route.hub)
        self._server.add_generic_rpc_handlers(
            (
                # In this order: gRPC asks one after the other whether a call is its own.
                calls.service(ROUTE, route, raw=RAW_METHODS, drains=True),
                calls.service(REGISTRATION, registration),
                calls.service(ADMIN, admin),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflected = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            ReflectionServicer(reflected, self._standard_streams), self._server
        )
        await self._server.start()
        await self._show_health()

    async def follow(self, hub: WatchHub) -> None:
        """Show each change of the state in health, and end the watches of a DRAINING node, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._show_health()
            if self._lifecycle.state is NodeState.DRAINING:
                await hub.drain()

    async def stop(self, grace: float) -> None:
        """Refuse new work, end the streams ourselves, let running calls finish within ``grace`` seconds."""
        if self._serving is None:
            return
        calls, registration, hub = self._serving
        self._lifecycle.stop()
        await self._show_health()
        registration.drain()
        await hub.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await calls.until_quiet()
        # What is open now is a client that does not read, or one that watches health or reflection. Once only: of two
        # stops at a time the second may end calls of a server that the first has destroyed, which is a crash.
        await self._server.stop(min(grace, LAST_WORDS_SECONDS))

    async def _show_health(self) -> None:
        ready, stopping = self._lifecycle.state is NodeState.READY, self._lifecycle.is_stopping
        for name in ("", ROUTE.full_name):
            await self._health.set(name, _serving(ready))
        for name in (REGISTRATION.full_name, ADMIN.full_name, LIVE):
            await self._health.set(name, _serving(not stopping))


def _serving(serves: bool) -> health_pb2.HealthCheckResponse.ServingStatus:
    return health_pb2.HealthCheckResponse.SERVING if serves else health_pb2.HealthCheckResponse.NOT_SERVING
