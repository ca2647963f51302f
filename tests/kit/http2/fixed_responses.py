"""Route and registration services with the same responses in each run, for any listener."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
from grpc_status import rpc_status

from pointsman.daemon.rpc.calling_peer import Context
from pointsman.v1 import registration_service_pb2 as registration
from pointsman.v1 import route_service_pb2 as routes
from pointsman.wire.error_details import build_status

UNKNOWN_TOPIC = "nothing"
TOPICS = [f"{'a-topic-with-a-long-name' * 4}-{number:05}" for number in range(1_000)]
"""Together more than a window."""
UPDATES = 3


async def _get_topic_route(request: bytes, context: Context) -> bytes:
    topic = routes.GetTopicRouteRequest.FromString(request).topic
    if topic == UNKNOWN_TOPIC:
        status = build_status(grpc.StatusCode.NOT_FOUND, f"topic {topic} is unknown", code="TOPIC_NOT_FOUND")
        await context.abort_with_status(rpc_status.to_status(status))
    return routes.GetTopicRouteResponse(route=routes.TopicRoute(topic=topic)).SerializeToString()


async def _list_topics(_: bytes, __: Context) -> bytes:
    return routes.ListTopicsResponse(topics=TOPICS).SerializeToString()


async def _watch_topic_routes(_: bytes, context: Context) -> None:
    for number in range(UPDATES):
        update = routes.WatchTopicRoutesResponse(synced=routes.WatchSynced(unchanged=number))
        await context.write(update.SerializeToString())


async def _register_broker(requests: AsyncIterator[bytes], _: Context) -> bytes:
    count = sum([len(registration.RegisterBrokerRequest.FromString(each).topics) async for each in requests])
    return registration.RegisterBrokerResponse(generation=count).SerializeToString()


async def _keep_alive(requests: AsyncIterator[bytes], context: Context) -> None:
    answer = registration.BeatAnswer(status=registration.BEAT_STATUS_OK)
    async for _ in requests:
        await context.write(registration.KeepAliveResponse(answer=answer).SerializeToString())


def fixed_responses() -> list[grpc.GenericRpcHandler]:
    """Return the handlers of both services."""
    unary = grpc.unary_unary_rpc_method_handler
    return [
        grpc.method_handlers_generic_handler(
            "pointsman.v1.RouteService",
            {
                "GetTopicRoute": unary(_get_topic_route),
                "ListTopics": unary(_list_topics),
                "WatchTopicRoutes": grpc.unary_stream_rpc_method_handler(_watch_topic_routes),
            },
        ),
        grpc.method_handlers_generic_handler(
            "pointsman.v1.RegistrationService",
            {
                "RegisterBroker": grpc.stream_unary_rpc_method_handler(_register_broker),
                "KeepAlive": grpc.stream_stream_rpc_method_handler(_keep_alive),
            },
        ),
    ]
