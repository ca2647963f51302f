"""An open WatchTopicRoutes, read one piece of news at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import grpc
from grpc_status import rpc_status

from pointsman.v1.route_service_pb2 import (
    KnownRoute,
    Revision,
    TopicGone,
    TopicRoute,
    TopicsAbsent,
    WatchSynced,
    WatchTopicRoutesRequest,
    WatchTopicRoutesResponse,
)
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman.wire.error_details import read_status

DEADLINE_SECONDS = 60.0


class Watch:
    """Reads what the server sends; every read has a deadline."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[WatchTopicRoutesRequest, WatchTopicRoutesResponse]) -> None:
        self.call = call

    async def news(self) -> WatchTopicRoutesResponse:
        """The next message."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            message = await self.call.read()
        assert isinstance(message, WatchTopicRoutesResponse), "the watch ended"
        return message

    async def route(self) -> TopicRoute:
        """The next message, which is a route."""
        news = await self.news()
        assert news.WhichOneof("news") == "route", news
        return news.route

    async def gone(self) -> TopicGone:
        """The next message, which says of one topic that it has no route."""
        news = await self.news()
        if news.WhichOneof("news") == "absent":
            (topic,) = news.absent.topics
            return TopicGone(topic=topic, revision=news.absent.revision)
        assert news.WhichOneof("news") == "gone", news
        return news.gone

    async def absent(self) -> TopicsAbsent:
        """The next message, which names the topics of the first state that have no route."""
        news = await self.news()
        assert news.WhichOneof("news") == "absent", news
        return news.absent

    async def synced(self) -> WatchSynced:
        """The next message, which ends the first state."""
        news = await self.news()
        assert news.WhichOneof("news") == "synced", news
        return news.synced

    async def ending(self) -> tuple[grpc.StatusCode, str]:
        """How it ends, after whatever is still to be read: status and our own code."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError as error:
                return error.code(), read_status(rpc_status.from_call(error)).code
        return grpc.StatusCode.OK, ""


@asynccontextmanager
async def watching(
    channel: grpc.aio.Channel,
    *topics: str,
    known: Iterable[tuple[str, Revision]] = (),
    cluster: str = "",
    zone: str = "",
) -> AsyncIterator[Watch]:
    """Watch topics, those in ``known`` with a revision, for the length of the block."""
    request = WatchTopicRoutesRequest(
        topics=[
            *(KnownRoute(topic=topic) for topic in topics),
            *(KnownRoute(topic=topic, revision=revision) for topic, revision in known),
        ],
        cluster=cluster,
        zone=zone,
    )
    call = RouteServiceStub(channel).WatchTopicRoutes(request)
    try:
        yield Watch(call)
    finally:
        call.cancel()
