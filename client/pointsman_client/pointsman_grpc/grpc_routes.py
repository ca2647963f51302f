"""Routes from Pointsman's name servers, over gRPC."""

from __future__ import annotations

from dataclasses import replace

import grpc

from pointsman.v1 import route_service_pb2
from pointsman_client.aio import deadline_in
from pointsman_client.core.route import ClusterData, TopicRoute
from pointsman_client.errors import ClusterNotFoundError, NameServerFailedError, TopicNotFoundError
from pointsman_client.pointsman_grpc.codec import to_cluster_data, to_revision, to_topic_route
from pointsman_client.pointsman_grpc.links import NameServerLinks

TOPICS_PER_PAGE = 10_000
"""Maximum page size of ListTopics; with 127 characters each a page stays well below gRPC's 4 MiB."""


class GrpcRoutes:
    """A :class:`RouteSource` whose addresses are ``host:port``."""

    def __init__(self, links: NameServerLinks) -> None:
        self._links = links

    async def query_route(
        self,
        addr: str,
        topic: str,
        seconds: float,
        *,
        cluster: str = "",
        zone: str = "",
        known: TopicRoute | None = None,
    ) -> TopicRoute:
        """See :meth:`RouteSource.query_route`."""
        link = self._links.to(addr)
        digest = known.revision.digest if known is not None else b""
        response = await link.call(
            link.routes.GetTopicRoute,
            route_service_pb2.GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone, known_digest=digest),
            deadline=deadline_in(seconds),
            not_found=lambda: TopicNotFoundError(topic, cluster=cluster, zone=zone),
        )
        if known is not None and response.HasField("unchanged") and response.unchanged.digest == digest:
            return replace(known, revision=to_revision(response.unchanged), stale=False)
        if response.route.topic != topic:
            message = f"sent the route of topic {response.route.topic!r} instead of {topic!r}"
            raise NameServerFailedError(addr, grpc.StatusCode.INTERNAL, message)
        return to_topic_route(response.route)

    async def query_topics(self, addr: str, seconds: float, *, cluster: str) -> tuple[str, ...]:
        """See :meth:`RouteSource.query_topics`; all pages are from this name server."""
        link = self._links.to(addr)
        response = await link.all_pages(
            link.routes.ListTopics,
            route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE),
            deadline=deadline_in(seconds),
            not_found=lambda: ClusterNotFoundError(cluster),
        )
        return tuple(response.topics)

    async def query_clusters(self, addr: str, seconds: float, *, cluster: str) -> tuple[ClusterData, ...]:
        """See :meth:`RouteSource.query_clusters`."""
        link = self._links.to(addr)
        response = await link.call(
            link.routes.GetClusterInfo,
            route_service_pb2.GetClusterInfoRequest(cluster=cluster),
            deadline=deadline_in(seconds),
            not_found=lambda: ClusterNotFoundError(cluster),
        )
        return tuple(to_cluster_data(data) for data in response.clusters)

    async def ping(self, addr: str, seconds: float) -> None:
        """See :meth:`RouteSource.ping`."""
        link = self._links.to(addr)
        await link.call(
            link.routes.ListTopics,
            route_service_pb2.ListTopicsRequest(page_size=1),
            deadline=deadline_in(seconds),
            not_found=lambda: ClusterNotFoundError(""),
        )

    async def release(self, addr: str, *, timeout_seconds: float) -> None:
        """See :meth:`RouteSource.release`."""
        await self._links.remove(addr, timeout_seconds=timeout_seconds)

    async def close(self, *, timeout_seconds: float) -> None:
        """See :meth:`RouteSource.close`."""
        await self._links.close(timeout_seconds=timeout_seconds)
