"""What an observer serves over gRPC: for each observed name server the queries of ours, and of itself what it polls.

A call names its name server by metadata (:data:`pointsman.names.OBSERVED_KEY`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Never

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from pointsman.clock import Clock
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Write, snake_case
from pointsman.daemon.subscriptions import Subscription
from pointsman.names import OBSERVED_KEY
from pointsman.v1 import admin_service_pb2 as wire
from pointsman.v1 import route_service_pb2
from pointsman.wire.refusals import Refusal
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.observed_server import ObservedServer
from pointsman_namesrv.rpc.inspection import Inspection, Node
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries
from pointsman_namesrv.rpc.past_queries import PastQueries
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.routes import RouteServicer
from pointsman_namesrv.rpc.watch_hub import WatchHub

UNKNOWN_HERE = frozenset({"list_kv", "list_maintenance", "list_watchers"})
"""Queries of ours about what polling a RocketMQ name server does not show."""


class NotOfObserver(Refusal):
    """The call is for a name server of Pointsman: an observer changes nothing and knows no settings."""

    code = "OBSERVER_ONLY_POLLS"
    status = "FAILED_PRECONDITION"

    def __init__(self, method: str, addr: str) -> None:
        super().__init__(
            f"{method}: this observer only polls {addr}, RocketMQ's own name server, and changes nothing there; "
            f"use RocketMQ's mqadmin, or pointsmanctl with --namesrv rocketmq://{addr}"
        )


class NameServerNotChosen(Refusal):
    """The call names no name server that this observer polls."""

    code = "NAME_SERVER_NOT_OBSERVED"
    status = "FAILED_PRECONDITION"

    def __init__(self, addrs: Iterable[str]) -> None:
        super().__init__(
            f"this is an observer of {', '.join(addrs)}: name one of them by the metadata {OBSERVED_KEY}; "
            "pointsmanctl does with --namesrv observe://HOST:PORT"
        )


class ObservedRoutes(RouteServicer):
    """Routes as one observed name server has them, while it is watched and its topics are known."""

    def __init__(
        self,
        server: ObservedServer,
        responses: RouteResponses,
        hub: WatchHub,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        super().__init__(server.brokers, responses, hub, lifecycle=server.lifecycle, clock=clock, metrics=metrics)
        self._server = server

    def get_topic_route(self, request: bytes) -> bytes:
        """As a name server of ours. Raises also ObservedUnreachable, TopicsNotCollected."""
        self._refuse_unless_walked()
        return super().get_topic_route(request)

    async def get_topic_routes(self, request: bytes) -> bytes:
        """As a name server of ours. Raises also ObservedUnreachable, TopicsNotCollected."""
        self._refuse_unless_walked()
        return await super().get_topic_routes(request)

    async def watch_topic_routes(self, request: bytes, write: Write, peer: Peer) -> Subscription:
        """As a name server of ours. Raises also ObservedUnreachable, TopicsNotCollected."""
        self._refuse_unless_walked()
        return await super().watch_topic_routes(request, write, peer)

    def list_topics(self, request: route_service_pb2.ListTopicsRequest) -> route_service_pb2.ListTopicsResponse:
        """As a name server of ours. Raises also ObservedUnreachable, TopicsNotCollected."""
        self._refuse_unless_walked()
        return super().list_topics(request)

    async def get_cluster_info(self, request: bytes) -> bytes:
        """As a name server of ours. Raises also ObservedUnreachable."""
        self._server.refuse_unless_watched(now=self._clock.monotonic())
        return await super().get_cluster_info(request)

    def _refuse_unless_walked(self) -> None:
        self._server.refuse_unless_walked(now=self._clock.monotonic())


class ObservedInspection(Inspection):
    """Queries about one observed name server. Its past is served while it is unreachable, too."""

    def __init__(
        self,
        server: ObservedServer,
        recent: RecentEvents,
        hub: WatchHub,
        *,
        live_queues: LiveQueueQueries,
        clock: Clock,
        node: Node,
        past: PastQueries,
    ) -> None:
        super().__init__(server.brokers, recent, hub, live_queues=live_queues, clock=clock, node=node)
        self._server = server
        self.get_past_route = past.get_past_route
        self.get_past_broker = past.get_past_broker
        self.list_past_events = past.list_past_events
        self.list_changes = past.list_changes

    def list_brokers(self, request: wire.ListBrokersRequest) -> wire.ListBrokersResponse:
        """As a name server of ours. Raises also ObservedUnreachable."""
        self._server.refuse_unless_watched(now=self._clock.monotonic())
        return super().list_brokers(request)

    def list_route_digests(self, request: wire.ListRouteDigestsRequest) -> wire.ListRouteDigestsResponse:
        """As a name server of ours. Raises also ObservedUnreachable, TopicsNotCollected."""
        self._server.refuse_unless_walked(now=self._clock.monotonic())
        return super().list_route_digests(request)

    def get_node_info(self, request: wire.GetNodeInfoRequest) -> wire.GetNodeInfoResponse:
        """As a name server of ours, whose version and start are unknown. Raises also ObservedUnreachable."""
        self._server.refuse_unless_watched(now=self._clock.monotonic())
        info = super().get_node_info(request)
        info.ClearField("version")
        info.ClearField("uptime")
        return info


class ObserverItself:
    """Answers calls that name no observed name server."""

    def __init__(self, addrs: Collection[str], *, node: str, version: str) -> None:
        """``addrs``: of the observed name servers, as they are when a call is answered."""
        self._addrs = addrs
        self._node = node
        self._version = version

    def get_node_info(self, _request: wire.GetNodeInfoRequest) -> wire.GetNodeInfoResponse:
        """Return which name servers this observer polls."""
        return wire.GetNodeInfoResponse(node=self._node, version=self._version, observed_name_servers=self._addrs)

    def refusal(self, _method: str) -> Refusal:
        """Return the refusal of every other call."""
        return NameServerNotChosen(self._addrs)


class RefusingOthers:
    """A servicer of all methods of a service: those that another one has, without ``without``; it refuses the rest."""

    def __init__(
        self,
        service: ServiceDescriptor,
        servicer: object,
        refusal: Callable[[str], Refusal],
        *,
        without: frozenset[str] = frozenset(),
    ) -> None:
        for method in service.methods:
            name = snake_case(method.name)
            served = None if name in without else getattr(servicer, name, None)
            setattr(self, name, served if served is not None else _refuse(refusal, method.name))


def _refuse(refusal: Callable[[str], Refusal], method: str) -> Callable[..., Never]:
    def refuse(*_arguments: object) -> Never:
        raise refusal(method)

    return refuse


class ChosenHandlers(grpc.GenericRpcHandler):
    """The handlers of one service at each observed name server; a call's metadata chooses."""

    def __init__(self, other: grpc.GenericRpcHandler) -> None:
        """``other``: of calls that name none of them."""
        self.by_addr: dict[str, grpc.GenericRpcHandler] = {}
        self._other = other

    def service(self, handler_call_details: Any) -> Any:  # noqa: ANN401  # grpc's
        """See ``grpc``."""
        metadata = dict(handler_call_details.invocation_metadata or ())
        chosen = self.by_addr.get(str(metadata.get(OBSERVED_KEY, "")), self._other)
        return chosen.service(handler_call_details)
