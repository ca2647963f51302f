"""A name server with faults that pointsmanctl must tolerate: slow, old, refusing, restarting."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_status import rpc_status

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.v1 import route_service_pb2 as route
from pointsman.wire.error_details import build_status

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
PAGE = 1
"""Brokers or digests in each page."""
SERVICES = (admin.DESCRIPTOR.services_by_name["AdminService"], route.DESCRIPTOR.services_by_name["RouteService"])


@dataclass(frozen=True)
class Refusal(Exception):
    """How a call ends instead of an answer."""

    status: grpc.StatusCode
    code: str = "SCRIPTED"
    message: str = ""
    facts: tuple[tuple[str, str], ...] = ()


class ScriptedAdminServer:
    """Returns what the test has set, and records requests. Like an old server it cannot change data."""

    def __init__(self) -> None:
        self.addr = ""
        self.node = ""
        self.state: broker_pb2.NodeState.ValueType = broker_pb2.NODE_STATE_READY
        self.boot = 7
        self.brokers: list[broker_pb2.BrokerStatus] = []
        self.digests: dict[str, bytes] = {}
        self.page_seconds = 0.0
        """Delay of each page of brokers and digests."""
        self.routes: dict[str, route.TopicRoute] = {}
        self.withholds_synced = False
        """Whether watches get their first routes without the message that these are all."""
        self.requests: list[Message] = []
        self.refusals: dict[str, Refusal] = {}
        """By method; UNIMPLEMENTED makes it an older server."""
        self._watches: list[asyncio.Queue[route.WatchTopicRoutesResponse | None]] = []
        self._changed = asyncio.Condition()

    def received(self, kind: type[Message]) -> list[Any]:
        """Return the requests of one type."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def asked(self, kind: type[Message], times: int = 1) -> None:
        """Wait until this number of requests of one type has come."""
        async with self._changed, asyncio.timeout(60):
            await self._changed.wait_for(lambda: len(self.received(kind)) >= times)

    def push(self, news: route.WatchTopicRoutesResponse) -> None:
        """Send to all watchers."""
        for watch in self._watches:
            watch.put_nowait(news)

    def end_watches(self) -> None:
        """End all watches as a server does that drains."""
        for watch in self._watches:
            watch.put_nowait(None)

    # What AdminService answers

    def list_brokers(self, request: admin.ListBrokersRequest) -> admin.ListBrokersResponse:
        start = int(request.page_token or 0)
        end = start + PAGE
        token = str(end) if end < len(self.brokers) else ""
        return admin.ListBrokersResponse(node=self.node, brokers=self.brokers[start:end], next_page_token=token)

    def list_broker_events(self, _request: admin.ListBrokerEventsRequest) -> admin.ListBrokerEventsResponse:
        return admin.ListBrokerEventsResponse(node=self.node)

    def list_route_digests(self, request: admin.ListRouteDigestsRequest) -> admin.ListRouteDigestsResponse:
        topics = [topic for topic in sorted(self.digests) if topic > request.page_token]
        page = [admin.RouteDigest(topic=topic, digest=self.digests[topic]) for topic in topics[:PAGE]]
        token = page[-1].topic if len(topics) > PAGE else ""
        return admin.ListRouteDigestsResponse(node=self.node, digests=page, next_page_token=token, state=self.state)

    def list_flapping(self, _request: admin.ListFlappingRequest) -> admin.ListFlappingResponse:
        return admin.ListFlappingResponse(node=self.node)

    def list_settings(self, _request: admin.ListSettingsRequest) -> admin.ListSettingsResponse:
        return admin.ListSettingsResponse()

    def get_node_info(self, _request: admin.GetNodeInfoRequest) -> admin.GetNodeInfoResponse:
        return admin.GetNodeInfoResponse(node=self.node, state=self.state, boot=self.boot)

    async def _watch(
        self, request: route.WatchTopicRoutesRequest, context: Context
    ) -> AsyncIterator[route.WatchTopicRoutesResponse]:
        queue: asyncio.Queue[route.WatchTopicRoutesResponse | None] = asyncio.Queue()
        self._watches.append(queue)
        try:
            await self._enter("WatchTopicRoutes", request, context)
            unchanged = 0
            for known in request.topics:
                found = self.routes.get(known.topic)
                if found is None and self.state == broker_pb2.NODE_STATE_WARMING:
                    continue
                if found is None:
                    gone = route.TopicGone(topic=known.topic, revision=route.Revision(boot=self.boot, counter=1))
                    yield route.WatchTopicRoutesResponse(gone=gone)
                elif (found.revision.boot, found.revision.digest) == (known.revision.boot, known.revision.digest):
                    unchanged += 1
                else:
                    yield route.WatchTopicRoutesResponse(route=found)
            if not self.withholds_synced:
                yield route.WatchTopicRoutesResponse(synced=route.WatchSynced(node=self.node, unchanged=unchanged))
            while (news := await queue.get()) is not None:
                yield news
            await _abort(context, Refusal(grpc.StatusCode.UNAVAILABLE, "NOT_READY", "this name server is DRAINING"))
        finally:
            self._watches.remove(queue)

    # How it is served

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """One table per service, as in a name server."""
        return [
            grpc.method_handlers_generic_handler(
                service.full_name,
                {method.name: self._handler(method) for method in service.methods if self._serves(method)},
            )
            for service in SERVICES
        ]

    def _serves(self, method: MethodDescriptor) -> bool:
        return method.server_streaming or hasattr(self, _snake_case(method.name))

    def _handler(self, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        decode = GetMessageClass(method.input_type).FromString
        encode: Callable[[Message], bytes] = GetMessageClass(method.output_type).SerializeToString
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._watch, decode, encode)
        answer: Callable[[Message], Message] = getattr(self, _snake_case(method.name))
        return grpc.unary_unary_rpc_method_handler(self._unary(method.name, answer), decode, encode)

    def _unary(
        self, method: str, answer: Callable[[Message], Message]
    ) -> Callable[[Message, Context], Awaitable[Message]]:
        async def call(request: Message, context: Context) -> Message:
            await self._enter(method, request, context)
            if self.page_seconds and method in {"ListBrokers", "ListRouteDigests"}:
                await asyncio.sleep(self.page_seconds)
            try:
                return answer(request)
            except Refusal as refusal:
                await _abort(context, refusal)
                raise

        return call

    async def _enter(self, method: str, request: Message, context: Context) -> None:
        self.requests.append(request)
        async with self._changed:
            self._changed.notify_all()
        if method in self.refusals:
            await _abort(context, self.refusals[method])


async def _abort(context: Context, refusal: Refusal) -> None:
    rich = build_status(
        refusal.status,
        refusal.message or f"scripted {refusal.status.name}",
        code=refusal.code,
        facts=dict(refusal.facts),
    )
    await context.abort_with_status(rpc_status.to_status(rich))


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


@asynccontextmanager
async def scripted_admin_server(port: int = 0) -> AsyncIterator[ScriptedAdminServer]:
    """Run one on 127.0.0.1, by default on a free port; its end breaks every call."""
    scripted = ScriptedAdminServer()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(tuple(scripted.handlers()))
    scripted.addr = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    scripted.node = f"ns-{scripted.addr.rpartition(':')[2]}"
    await server.start()
    try:
        yield scripted
    finally:
        await server.stop(None)
