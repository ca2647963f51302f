"""The name server's gRPC server; what it serves depends on the state of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pointsman.clock import Clock
from pointsman.daemon.access.access import ADMINS, ANY_ROLE, BROKERS, CLIENTS, VIEWERS, Access, Limit, Rule, Rules
from pointsman.daemon.rpc.handler_table import HandlerTable
from pointsman.daemon.rpc.listeners import DEFAULT_LISTENER
from pointsman.daemon.rpc.rpc_server import RpcServer, Service, server_options
from pointsman.v1 import admin_service_pb2, registration_service_pb2, route_service_pb2
from pointsman.wire.refusals import NotReady, Refusal
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.lifecycle import NodeLifecycle, draining
from pointsman_namesrv.core.liveness import LATE_AFTER_INTERVALS
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.core.node_refusals import ClusterNotFound, IdentityHeld, LimitExceeded, TopicNotFound
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc.admin import AdminServicer
from pointsman_namesrv.rpc.registration import RegistrationServicer
from pointsman_namesrv.rpc.routes import RAW_METHODS, RouteServicer

REGISTRATION = registration_service_pb2.DESCRIPTOR.services_by_name["RegistrationService"]
ROUTE = route_service_pb2.DESCRIPTOR.services_by_name["RouteService"]
ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
REGISTERS = Rule(BROKERS.roles, Limit.REGISTRATIONS)
READS = Rule(VIEWERS.roles, Limit.ADMIN_CALLS)

ROUTE_RULES: Rules = {
    "GetTopicRoute": ANY_ROLE,
    "GetTopicRoutes": ANY_ROLE,
    "WatchTopicRoutes": ANY_ROLE,
    "ListTopics": ANY_ROLE,
    "GetClusterInfo": ANY_ROLE,
}
REGISTRATION_RULES: Rules = {
    "RegisterBroker": REGISTERS,
    "UpdateTopics": REGISTERS,
    "Heartbeat": BROKERS,
    "KeepAlive": BROKERS,
    "UnregisterBroker": BROKERS,
    "ReportQueueStats": BROKERS,
}
"""A broker may write only its own cluster and broker name: checked where those are read."""
ADMIN_RULES: Rules = {
    "ListBrokers": READS,
    "ListBrokerEvents": READS,
    "GetPastRoute": READS,
    "GetPastBroker": READS,
    "ListPastEvents": READS,
    "ListChanges": READS,
    "ListFlapping": READS,
    "ListLiveQueues": READS,
    "ListWatchers": READS,
    "ListRouteDigests": READS,
    "ListSettings": READS,
    "GetNodeInfo": READS,
    # An agent that drains its own broker.
    "SetWritePerm": Rule(BROKERS.roles, Limit.ADMIN_CALLS),
    "DeleteTopic": ADMINS,
    "PutKv": ADMINS,
    "DeleteKv": ADMINS,
    "ListKv": READS,
    "SetGuard": ADMINS,
    "SetMaintenance": ADMINS,
    "ListMaintenance": READS,
    "SetDrain": ADMINS,
    "EvictBroker": ADMINS,
    # A client that may move the offsets of a group: a broker's agent decides that.
    "RecordChange": Rule(CLIENTS.roles, Limit.ADMIN_CALLS),
}
LIVE = "live"
"""Health of the process: SERVING until it stops, in any state. For a probe that restarts the process."""


def node_options(longest_interval: float, max_connections: int) -> list[tuple[str, int]]:
    """Return the options of a server with this longest heartbeat interval, seconds."""
    return [
        *server_options(LATE_AFTER_INTERVALS * longest_interval),
        ("grpc.max_allowed_incoming_connections", max_connections),
    ]


class NodeServer(RpcServer):
    """Serves what the state of the node permits; :meth:`follow` must run from the start.

    WARMING serves everything, but responds UNAVAILABLE for an unknown topic or cluster. DRAINING refuses routes. A node
    that stops refuses all.

    ``longest_interval``: of heartbeats, seconds. A paused agent is judged by its silence alone. So the transport must
    not close its connection before the end of the stream no longer matters.
    """

    def __init__(
        self,
        lifecycle: NodeLifecycle,
        *,
        longest_interval: float,
        max_connections: int,
        clock: Clock,
        metrics: Metrics,
        record: RecordEvents,
        access: Access | None = None,
        listener: str = DEFAULT_LISTENER,
    ) -> None:
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._record = record
        self._changed = asyncio.Event()
        self._table = HandlerTable(clock=clock, metrics=metrics.calls, on_refusal=self._on_refusal, access=access)
        options = node_options(longest_interval, max_connections)
        super().__init__(
            self._table,
            options=options,
            limit_exceeded=LimitExceeded,
            stopping=draining(stopping=True),
            access=access,
            listener=listener,
        )
        lifecycle.on_change(self._apply_state)

    async def follow(self) -> None:
        """Update health after each change of state, and end the watches of a DRAINING node, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.show_health()
            if self._lifecycle.state is NodeState.DRAINING:
                for service in self.services:
                    if service.drains and service.drain is not None:
                        await service.drain()

    async def show_health(self) -> None:
        """Set the health of the node and of routes (READY), and of the other services (not stopping)."""
        await self.show(("", ROUTE.full_name), serves=self._lifecycle.state is NodeState.READY)
        others = (REGISTRATION.full_name, ADMIN.full_name, LIVE)
        await self.show(others, serves=not self._lifecycle.is_stopping)

    async def stop(self, grace: float) -> None:
        """Also changes the state; see :meth:`RpcServer.stop`."""
        self._lifecycle.stop()
        await super().stop(grace)

    def _apply_state(self) -> None:
        self._table.drain(self._lifecycle.refusal() if self._lifecycle.state is NodeState.DRAINING else None)
        self._changed.set()

    def _on_refusal(self, refusal: Refusal) -> Refusal:
        if isinstance(refusal, IdentityHeld):
            self._record((refusal.event,))
        if isinstance(refusal, LimitExceeded):
            self._metrics.limits_exceeded.labels(refusal.limit).inc()
        if self._lifecycle.state is NodeState.WARMING and isinstance(refusal, TopicNotFound | ClusterNotFound):
            message = (
                f"{refusal}: this name server is {NodeState.WARMING} and may not know it yet; "
                "retry in a few seconds, or use another name server"
            )
            return NotReady(message, node_state=NodeState.WARMING, not_yet=refusal.code)
        return refusal


def services_of(registration: RegistrationServicer, route: RouteServicer, admin: AdminServicer) -> Sequence[Service]:
    """Return the services of a node, the one with the most calls first."""
    return (
        Service(
            descriptor=ROUTE, servicer=route, rules=ROUTE_RULES, raw=RAW_METHODS, drains=True, drain=route.hub.drain
        ),
        Service(descriptor=REGISTRATION, servicer=registration, rules=REGISTRATION_RULES, drain=registration.drain),
        Service(descriptor=ADMIN, servicer=admin, rules=ADMIN_RULES),
    )
