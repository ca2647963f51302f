"""A name server on a real socket for clients' tests, with scripted responses, failures, hangs and counts."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
from grpc_status import rpc_status

from pointsman.v1 import broker_pb2, route_service_pb2, route_service_pb2_grpc
from pointsman.v1.route_service_pb2 import WatchTopicRoutesResponse
from pointsman.wire.error_details import build_status
from pointsman.wire.refusals import FieldViolation

Replicas = dict[int, str]
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def broker_data(
    broker_name: str = "broker-a",
    replicas: Replicas | None = None,
    *,
    cluster: str = "DefaultCluster",
    acting_master: bool = False,
    zone: str = "",
) -> broker_pb2.BrokerData:
    """Build a replica group whose brokers are UP."""
    return broker_pb2.BrokerData(
        cluster=cluster,
        broker_name=broker_name,
        acting_master=acting_master,
        zone=zone,
        replicas=[
            broker_pb2.BrokerReplica(broker_id=broker_id, addr=addr, state=broker_pb2.BROKER_STATE_UP)
            for broker_id, addr in sorted((replicas if replicas is not None else {0: "10.0.0.1:10911"}).items())
        ],
    )


def topic_route(
    topic: str = "orders",
    groups: Sequence[broker_pb2.BrokerData] | None = None,
    *,
    read: int = 4,
    write: int = 4,
    perm: int = 6,
    order_topic_conf: str = "",
) -> route_service_pb2.TopicRoute:
    """Build a route with the same queues on each group, and its digest."""
    groups = [broker_data()] if groups is None else groups
    route = route_service_pb2.TopicRoute(
        topic=topic,
        broker_datas=groups,
        order_topic_conf=order_topic_conf,
        queue_datas=[
            route_service_pb2.QueueData(
                cluster=group.cluster,
                broker_name=group.broker_name,
                read_queue_nums=read,
                write_queue_nums=write,
                perm=perm,
            )
            for group in groups
        ],
    )
    return with_digest(route)


def with_digest(
    route: route_service_pb2.TopicRoute, *, boot: int = 7, counter: int = 1
) -> route_service_pb2.TopicRoute:
    """Return the route with the revision that a name server gives it."""
    route = route_service_pb2.TopicRoute.FromString(route.SerializeToString())
    route.ClearField("revision")
    digest = hashlib.sha256(route.SerializeToString(deterministic=True)).digest()[:8]
    route.revision.CopyFrom(route_service_pb2.Revision(boot=boot, counter=counter, digest=digest))
    return route


class ScriptedRouteServer(route_service_pb2_grpc.RouteServiceServicer):
    """State is plain attributes; change them while it runs."""

    def __init__(self) -> None:
        self.addr = ""
        self.routes: dict[str, route_service_pb2.TopicRoute] = {}
        self.topic_names: list[str] = []
        self.topics_per_page = 2
        self.clusters: list[route_service_pb2.ClusterData] = []
        self.calls: Counter[str] = Counter()
        self.lookups: Counter[str] = Counter()
        """Calls of GetTopicRoute by topic."""
        self.callers: list[tuple[bytes, str]] = []
        """Of each call the certificate that its connection presented, in PEM, and its authorization."""
        self.failing: grpc.StatusCode | None = None
        self.violations: list[FieldViolation] = []
        self.garbled_details = False
        self.boot = 7
        self.gone_counter = 1
        """The counter of the absence of topics without a route."""
        self.unchanged = 0
        """Answers to GetTopicRoute that the client's route is still good."""
        self.watched: list[dict[str, bytes]] = []
        """Of each watch that was opened the topics, with the digests that the client knew."""
        self.most_topics_per_watch = 1_000
        self.watchable = True
        self.silent_watches = False
        """Whether watches are accepted and get nothing, not even their first state."""
        self._watches: dict[asyncio.Queue[WatchTopicRoutesResponse | grpc.StatusCode], set[str]] = {}
        self.busy = 0
        self.busiest = 0
        self._open = asyncio.Event()
        self._open.set()
        self._called = asyncio.Condition()

    def fail_with(self, status: grpc.StatusCode) -> None:
        """Answer every call with this status from now on."""
        self.failing = status

    def hang(self) -> None:
        """Accept calls and answer none until :meth:`recover`."""
        self._open.clear()

    def recover(self) -> None:
        """Answer again, calls that hang included."""
        self.failing = None
        self._open.set()

    async def called(self, times: int, method: str = "GetTopicRoute") -> None:
        """Wait until the method was called this often."""
        async with self._called:
            await self._called.wait_for(lambda: self.calls[method] >= times)

    async def GetTopicRoute(  # noqa: N802
        self, request: route_service_pb2.GetTopicRouteRequest, context: Context
    ) -> route_service_pb2.GetTopicRouteResponse:
        await self._enter("GetTopicRoute", context)
        self.lookups[request.topic] += 1
        route = self.routes.get(request.topic)
        if route is None:
            await self._abort(context, grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")
        elif request.known_digest == route.revision.digest:
            self.unchanged += 1
            return route_service_pb2.GetTopicRouteResponse(unchanged=route.revision)
        return route_service_pb2.GetTopicRouteResponse(route=route)

    async def GetTopicRoutes(  # noqa: N802
        self, request: route_service_pb2.GetTopicRoutesRequest, context: Context
    ) -> route_service_pb2.GetTopicRoutesResponse:
        await self._enter("GetTopicRoutes", context)
        answer = route_service_pb2.GetTopicRoutesResponse()
        for known in request.topics:
            route = self.routes.get(known.topic)
            if route is None:
                answer.not_found.append(known.topic)
            elif route.revision.digest == known.revision.digest:
                answer.unchanged.append(known.topic)
            else:
                answer.routes.append(route)
        return answer

    async def WatchTopicRoutes(  # noqa: N802
        self, request: route_service_pb2.WatchTopicRoutesRequest, context: Context
    ) -> AsyncIterator[WatchTopicRoutesResponse]:
        """Send the state, and then what :meth:`push` and :meth:`end_watches` send."""
        if not self.watchable:
            await self._abort(context, grpc.StatusCode.UNIMPLEMENTED, "")
        await self._enter("WatchTopicRoutes", context)
        if self.silent_watches:
            await asyncio.Event().wait()
        if len(request.topics) > self.most_topics_per_watch:
            facts = {"limit": "topics_per_watch", "bound": str(self.most_topics_per_watch)}
            await self._abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", facts)
        self.watched.append({known.topic: known.revision.digest for known in request.topics})
        news: asyncio.Queue[WatchTopicRoutesResponse | grpc.StatusCode] = asyncio.Queue()
        self._watches[news] = {known.topic for known in request.topics}
        try:
            unchanged = 0
            for known in request.topics:
                route = self.routes.get(known.topic)
                if route is not None and known.revision == route.revision:
                    unchanged += 1
                else:
                    yield self._state_of(known.topic)
            synced = route_service_pb2.WatchSynced(node=self.addr, unchanged=unchanged)
            yield WatchTopicRoutesResponse(synced=synced)
            while True:
                piece = await news.get()
                if isinstance(piece, grpc.StatusCode):
                    await self._abort(context, piece, "NOT_READY")
                else:
                    yield piece
        finally:
            del self._watches[news]

    def push(self, topic: str) -> None:
        """Send the state of a topic to all that watch it."""
        for news, topics in self._watches.items():
            if topic in topics:
                news.put_nowait(self._state_of(topic))

    def end_watches(self, status: grpc.StatusCode) -> None:
        """End all watches that are open."""
        for news in self._watches:
            news.put_nowait(status)

    @property
    def open_watches(self) -> list[set[str]]:
        """The topics of each watch that is open now."""
        return list(self._watches.values())

    def _state_of(self, topic: str) -> WatchTopicRoutesResponse:
        route = self.routes.get(topic)
        if route is not None:
            return WatchTopicRoutesResponse(route=route)
        revision = route_service_pb2.Revision(boot=self.boot, counter=self.gone_counter)
        return WatchTopicRoutesResponse(gone=route_service_pb2.TopicGone(topic=topic, revision=revision))

    async def ListTopics(  # noqa: N802
        self, request: route_service_pb2.ListTopicsRequest, context: Context
    ) -> route_service_pb2.ListTopicsResponse:
        await self._enter("ListTopics", context)
        if request.cluster and request.cluster not in {cluster.cluster for cluster in self.clusters}:
            await self._abort(context, grpc.StatusCode.NOT_FOUND, "CLUSTER_NOT_FOUND")
        start = int(request.page_token or 0)
        end = start + self.topics_per_page
        return route_service_pb2.ListTopicsResponse(
            topics=self.topic_names[start:end], next_page_token=str(end) if end < len(self.topic_names) else ""
        )

    async def GetClusterInfo(  # noqa: N802
        self, request: route_service_pb2.GetClusterInfoRequest, context: Context
    ) -> route_service_pb2.GetClusterInfoResponse:
        await self._enter("GetClusterInfo", context)
        clusters = [cluster for cluster in self.clusters if request.cluster in {"", cluster.cluster}]
        if not clusters and request.cluster:
            await self._abort(context, grpc.StatusCode.NOT_FOUND, "CLUSTER_NOT_FOUND")
        return route_service_pb2.GetClusterInfoResponse(clusters=clusters)

    async def _enter(self, method: str, context: Context) -> None:
        self.calls[method] += 1
        (certificate,) = context.auth_context().get("x509_pem_cert", (b"",))
        metadata = dict(context.invocation_metadata() or ())
        self.callers.append((certificate, str(metadata.get("authorization", ""))))
        async with self._called:
            self._called.notify_all()
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await self._open.wait()
        finally:
            self.busy -= 1
        if self.failing is not None:
            await self._abort(context, self.failing, "SCRIPTED")

    async def _abort(
        self, context: Context, status: grpc.StatusCode, code: str, facts: Mapping[str, str] | None = None
    ) -> None:
        if self.garbled_details:
            await context.abort(status, "scripted", (("grpc-status-details-bin", b"\xff\xff"),))
        rich = build_status(status, f"scripted {status.name}", code=code, facts=facts, violations=self.violations)
        await context.abort_with_status(rpc_status.to_status(rich))


@asynccontextmanager
async def scripted_route_server(
    port: int = 0, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[ScriptedRouteServer]:
    """Run one on 127.0.0.1, by default on a free port; ``credentials``: with TLS."""
    servicer = ScriptedRouteServer()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    route_service_pb2_grpc.add_RouteServiceServicer_to_server(servicer, server)
    listen = f"127.0.0.1:{port}"
    bound = server.add_secure_port(listen, credentials) if credentials else server.add_insecure_port(listen)
    servicer.addr = f"127.0.0.1:{bound}"
    await server.start()
    try:
        yield servicer
    finally:
        servicer.recover()
        await server.stop(None)


@asynccontextmanager
async def silent_listener() -> AsyncIterator[str]:
    """Yield an address that accepts connections and never sends a byte, like a stopped process."""
    connections: list[asyncio.StreamWriter] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        for connection in connections:
            connection.transport.abort()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def refused_addr() -> AsyncIterator[str]:
    """Yield an address without a listener, which no other process gets in the meantime."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        host, port = held.getsockname()
        yield f"{host}:{port}"
