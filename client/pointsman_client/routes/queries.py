"""What is asked of one name server: a route, the topics, the clusters. Seconds bound the whole answer."""

from __future__ import annotations

from dataclasses import replace

import grpc

from pointsman.v1 import route_service_pb2
from pointsman.wire.clock import Clock
from pointsman_client.core.route import ClusterData, TopicRoute
from pointsman_client.errors import ClusterNotFoundError, NameServerFailedError, TopicNotFoundError
from pointsman_client.routes.codec import to_cluster_data, to_revision, to_topic_route
from pointsman_client.rpc.links import NameServerLink

TOPICS_PER_PAGE = 10_000
"""The most that ListTopics allows; 127 characters each stay well under gRPC's 4 MiB."""


async def query_route(
    link: NameServerLink,
    topic: str,
    seconds: float,
    *,
    cluster: str = "",
    zone: str = "",
    known: TopicRoute | None = None,
) -> TopicRoute:
    """Ask for a route; while it is still the known one, that comes back with the server's revision of it.

    Raises TopicNotFoundError, NameServerFailedError, RequestRejectedError.
    """
    digest = known.revision.digest if known is not None else b""
    response = await link.call(
        link.routes.GetTopicRoute,
        route_service_pb2.GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone, known_digest=digest),
        timeout_seconds=seconds,
        not_found=lambda: TopicNotFoundError(topic, cluster=cluster, zone=zone),
    )
    if known is not None and response.HasField("unchanged") and response.unchanged.digest == digest:
        return replace(known, revision=to_revision(response.unchanged), stale=False)
    if response.route.topic != topic:
        message = f"answered for topic {response.route.topic!r}"
        raise NameServerFailedError(link.addr, grpc.StatusCode.INTERNAL, message)
    return to_topic_route(response.route)


async def query_topics(link: NameServerLink, seconds: float, *, cluster: str, clock: Clock) -> tuple[str, ...]:
    """Ask for the names of all topics, or of those in one cluster, page after page. Raises ClusterNotFoundError."""
    deadline = clock.monotonic() + seconds
    topics: list[str] = []
    request = route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE)
    while True:
        page = await link.call(
            link.routes.ListTopics,
            request,
            timeout_seconds=max(0.0, deadline - clock.monotonic()),
            not_found=lambda: ClusterNotFoundError(cluster),
        )
        topics += page.topics
        if not page.next_page_token:
            return tuple(topics)
        request.page_token = page.next_page_token


async def ping(link: NameServerLink, seconds: float) -> None:
    """Ask for next to nothing; returns when the server answers."""
    await link.call(
        link.routes.ListTopics,
        route_service_pb2.ListTopicsRequest(page_size=1),
        timeout_seconds=seconds,
        not_found=lambda: ClusterNotFoundError(""),
    )


async def query_clusters(link: NameServerLink, seconds: float, *, cluster: str) -> tuple[ClusterData, ...]:
    """Ask for the clusters, or for one, with their replica groups. Raises ClusterNotFoundError."""
    response = await link.call(
        link.routes.GetClusterInfo,
        route_service_pb2.GetClusterInfoRequest(cluster=cluster),
        timeout_seconds=seconds,
        not_found=lambda: ClusterNotFoundError(cluster),
    )
    return tuple(to_cluster_data(data) for data in response.clusters)
