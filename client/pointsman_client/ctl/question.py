"""What is asked of one name server, whole: page after page where the answer comes in pages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_client.channel import NameServerLink
from pointsman_client.codec import to_cluster_data
from pointsman_client.errors import ClusterNotFoundError, NameServerFailedError
from pointsman_client.route import ClusterData

TOPICS_PER_PAGE = 10_000
DIGESTS_PER_PAGE = 10_000

NodeState: TypeAlias = "broker_pb2.NodeState.ValueType"


@dataclass(frozen=True, slots=True)
class NodeBrokers:
    """The brokers of a node, and the node."""

    node: str
    brokers: list[broker_pb2.BrokerStatus]
    info: admin.GetNodeInfoResponse | None
    """None from a server that is too old to say."""


@dataclass(frozen=True, slots=True)
class NodeDigests:
    """The digests of all routes of a node."""

    node: str
    state: NodeState
    digests: dict[str, bytes]


async def topics_of(link: NameServerLink, seconds: float, *, cluster: str) -> tuple[list[str], NodeState]:
    """Return all topic names, sorted, and the server's state. ``seconds`` is for all pages together."""
    topics: list[str] = []
    request = route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        page = await link.call(
            link.routes.ListTopics,
            request,
            timeout_seconds=max(0.0, deadline - loop.time()),
            not_found=lambda: ClusterNotFoundError(cluster),
        )
        topics += page.topics
        if not page.next_page_token:
            return topics, page.node_state
        request.page_token = page.next_page_token


async def clusters_of(link: NameServerLink, seconds: float) -> tuple[list[ClusterData], NodeState]:
    """Return the clusters and the server's state."""
    request = route_service_pb2.GetClusterInfoRequest()
    answer = await link.call(link.routes.GetClusterInfo, request, timeout_seconds=seconds)
    return [to_cluster_data(data) for data in answer.clusters], answer.node_state


async def node_info_of(link: NameServerLink, seconds: float) -> admin.GetNodeInfoResponse:
    """Ask a node about itself."""
    return await link.call(link.admin.GetNodeInfo, admin.GetNodeInfoRequest(), timeout_seconds=seconds)


async def brokers_of(link: NameServerLink, seconds: float, *, cluster: str = "", broker_name: str = "") -> NodeBrokers:
    """Ask for a node's brokers and for the node itself; ``seconds`` is for each page."""

    async def info() -> admin.GetNodeInfoResponse | None:
        try:
            return await node_info_of(link, seconds)
        except NameServerFailedError as failure:
            if failure.status is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise

    async def brokers() -> tuple[str, list[broker_pb2.BrokerStatus]]:
        listed: list[broker_pb2.BrokerStatus] = []
        request = admin.ListBrokersRequest(cluster=cluster, broker_name=broker_name)
        while True:
            page = await link.call(link.admin.ListBrokers, request, timeout_seconds=seconds)
            listed += page.brokers
            if not page.next_page_token:
                return page.node, listed
            request.page_token = page.next_page_token

    (node, listed), about = await asyncio.gather(brokers(), info())
    return NodeBrokers(node, listed, about)


async def digests_of(link: NameServerLink, seconds: float) -> NodeDigests:
    """Ask for the digests of all routes; ``seconds`` is for each page."""
    digests: dict[str, bytes] = {}
    request = admin.ListRouteDigestsRequest(page_size=DIGESTS_PER_PAGE)
    while True:
        page = await link.call(link.admin.ListRouteDigests, request, timeout_seconds=seconds)
        digests.update((entry.topic, entry.digest) for entry in page.digests)
        if not page.next_page_token:
            return NodeDigests(page.node, page.state, digests)
        request.page_token = page.next_page_token
