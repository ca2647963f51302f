"""Routes from a RocketMQ name server, as the messages that Pointsman's send."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Never

import grpc

import pointsman_client
from pointsman.v1 import route_service_pb2
from pointsman_client import (
    AccessKey,
    InvalidInputError,
    NameServerFailedError,
    NameServersUnavailableError,
)
from pointsman_client.pointsman_grpc.codec import from_cluster_data, from_topic_route

MAX_CONCURRENT_CALLS = 16


@dataclass(frozen=True, slots=True)
class TopicRoutes:
    """The routes of a name server."""

    node: str
    state: str
    """Empty: RocketMQ's have none."""
    routes: Mapping[str, route_service_pb2.TopicRoute]
    """By topic."""


@dataclass(frozen=True, slots=True)
class RocketmqAccess:
    """How to connect to RocketMQ's name servers and brokers."""

    tls: ssl.SSLContext | None = None
    """None: plain text."""
    access_key: AccessKey | None = None


class PointsmanRequiredError(InvalidInputError):
    """The command needs what RocketMQ's name servers do not have."""

    code = "POINTSMAN_REQUIRED"

    def __init__(self, addr: str) -> None:
        super().__init__(
            f"this command requires a name server of Pointsman, got {addr}; "
            "RocketMQ's are enough for route, topics, topic, clusters, groups, group, offsets and diff"
        )


class RocketmqNameServer:
    """One name server, with the queries of Pointsman's that it has. They raise NameServerFailedError and
    RequestRejectedError, the others PointsmanRequiredError.
    """

    def __init__(self, addr: str, access: RocketmqAccess) -> None:
        self.addr = addr
        self._access = access

    async def route(
        self, topic: str, deadline: float, *, cluster: str = "", zone: str = ""
    ) -> route_service_pb2.TopicRoute:
        """Return the route of a topic. Raises TopicNotFoundError."""
        async with self._client(deadline) as client:
            route = await client.fetch_route(topic, cluster=cluster, zone=zone)
        return from_topic_route(route)

    async def topics(self, deadline: float, *, cluster: str = "") -> route_service_pb2.ListTopicsResponse:
        """Return all topic names, sorted. Raises ClusterNotFoundError."""
        async with self._client(deadline) as client:
            return route_service_pb2.ListTopicsResponse(topics=await client.list_topics(cluster))

    async def clusters(self, deadline: float, *, cluster: str = "") -> route_service_pb2.GetClusterInfoResponse:
        """Return the clusters, or one. Raises ClusterNotFoundError."""
        async with self._client(deadline) as client:
            found = await client.list_clusters(cluster)
        return route_service_pb2.GetClusterInfoResponse(clusters=map(from_cluster_data, found))

    async def all_routes(self, deadline: float) -> TopicRoutes:
        """Return the routes of all topics, a bounded number of queries at the same time."""
        concurrency = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

        async def one(client: pointsman_client.NameServerClient, topic: str) -> route_service_pb2.TopicRoute | None:
            async with concurrency:
                try:
                    return from_topic_route(await client.fetch_route(topic))
                except pointsman_client.TopicNotFoundError:
                    return None  # it was deleted, or its brokers departed, after the list

        async with self._client(deadline) as client:
            found = await asyncio.gather(*(one(client, topic) for topic in await client.list_topics()))
        return TopicRoutes(self.addr, "", {route.topic: route for route in found if route is not None})

    async def brokers(self, deadline: float, **query: object) -> Never:
        """RocketMQ's list the brokers in :meth:`clusters` alone, without their states."""
        del deadline, query
        raise PointsmanRequiredError(self.addr)

    async def node_info(self, deadline: float) -> Never:
        """RocketMQ's have none."""
        del deadline
        raise PointsmanRequiredError(self.addr)

    @asynccontextmanager
    async def _client(self, deadline: float) -> AsyncIterator[pointsman_client.NameServerClient]:
        seconds = max(0.001, deadline - asyncio.get_running_loop().time())
        try:
            async with (
                # Not imported above: only here the client itself is needed.
                pointsman_client.NameServerClient(
                    self.addr,
                    lookup_timeout_seconds=seconds,
                    rocketmq_tls=self._access.tls,
                    rocketmq_access_key=self._access.access_key,
                ) as client,
                asyncio.timeout_at(deadline),
            ):
                yield client
        except NameServersUnavailableError as error:
            raise error.failures[0] from error
        except TimeoutError:
            raise NameServerFailedError(self.addr, grpc.StatusCode.DEADLINE_EXCEEDED, "no response") from None
