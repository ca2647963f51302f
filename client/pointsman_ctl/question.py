"""What is asked of one name server, whole: page after page where the answer comes in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_client.core.route import ClusterData
from pointsman_client.errors import ClusterNotFoundError, NameServerFailedError, PointsmanError, RequestRejectedError
from pointsman_client.routes.codec import to_cluster_data
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.setting_difference import NodeSettings, Setting
from pointsman_ctl.timeline import Position, Timeline, timeline_of

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
    gone: Sequence[admin.FlapScore] = ()
    """Brokers that departed unplanned and are not registered, the last first, where they were asked for."""


@dataclass(frozen=True, slots=True)
class BrokerHistory:
    """The replicas of a broker name at a node, and what the node remembers of the name."""

    node: str
    brokers: Sequence[broker_pb2.BrokerStatus]
    guards: Mapping[str, admin.GuardStatus]
    """By cluster."""
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class NodeDigests:
    """The digests of all routes of a node, and what operators set on it."""

    node: str
    state: NodeState
    digests: dict[str, bytes]
    settings: NodeSettings = field(default_factory=dict)
    """What operators set there."""


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """A node, and what operators set on it."""

    info: admin.GetNodeInfoResponse
    settings: NodeSettings | None
    """None: it could not be had, or is not compared."""


def time_left(seconds: float) -> Callable[[], float]:
    """Return what tells how many of these seconds are left, for an answer that takes several calls."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    return lambda: max(0.0, deadline - loop.time())


async def topics_of(link: NameServerLink, seconds: float, *, cluster: str) -> tuple[list[str], NodeState]:
    """Return all topic names, sorted, and the server's state. ``seconds`` is for all pages together."""
    topics: list[str] = []
    request = route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE)
    left = time_left(seconds)
    while True:
        page = await link.call(
            link.routes.ListTopics,
            request,
            timeout_seconds=left(),
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


async def health_of(link: NameServerLink, seconds: float, *, with_settings: bool) -> NodeHealth:
    """Ask a node about itself, and what operators set on it; None of them where that cannot be had."""

    async def settings() -> NodeSettings | None:
        try:
            return await settings_of(link, seconds) if with_settings else None
        except PointsmanError:
            return None

    return NodeHealth(*await asyncio.gather(node_info_of(link, seconds), settings()))


async def settings_of(link: NameServerLink, seconds: float) -> NodeSettings:
    """Ask for all that operators set; ``seconds`` is for all pages together. None are of a server that is too old."""
    left = time_left(seconds)
    found: dict[tuple[str, ...], Setting] = {}
    request = admin.ListSettingsRequest()
    while True:
        try:
            page = await link.call(link.admin.ListSettings, request, timeout_seconds=left())
        except NameServerFailedError as failure:
            if failure.status is grpc.StatusCode.UNIMPLEMENTED:
                return {}
            raise
        for setting in page.settings:
            remaining = seconds_of(setting.remaining) if setting.HasField("remaining") else None
            found[setting.kind, *setting.name] = Setting(setting.value, remaining)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def brokers_of(
    link: NameServerLink, seconds: float, *, cluster: str = "", broker_name: str = "", with_gone: bool = False
) -> NodeBrokers:
    """Ask for a node's brokers and for the node itself; ``seconds`` is for all pages together."""
    left = time_left(seconds)

    async def info() -> admin.GetNodeInfoResponse | None:
        try:
            return await node_info_of(link, seconds)
        except NameServerFailedError as failure:
            if failure.status is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise

    async def scores() -> Sequence[admin.FlapScore]:
        if not with_gone:
            return ()
        try:
            request = admin.ListFlappingRequest(cluster=cluster)
            return (await link.call(link.admin.ListFlapping, request, timeout_seconds=seconds)).scores
        except NameServerFailedError as failure:
            if failure.status is grpc.StatusCode.UNIMPLEMENTED:
                return ()
            raise

    async def brokers() -> tuple[str, list[broker_pb2.BrokerStatus]]:
        listed: list[broker_pb2.BrokerStatus] = []
        request = admin.ListBrokersRequest(cluster=cluster, broker_name=broker_name)
        while True:
            page = await link.call(link.admin.ListBrokers, request, timeout_seconds=left())
            listed += page.brokers
            if not page.next_page_token:
                return page.node, listed
            request.page_token = page.next_page_token

    (node, listed), about, remembered = await asyncio.gather(brokers(), info(), scores())
    here = {(who.cluster, who.broker_name, who.broker_id) for who in (status.identity for status in listed)}
    absent = [score for score in remembered if score.outages and _position(score) not in here]
    return NodeBrokers(node, listed, about, await _gone(link, left, absent))


async def _gone(
    link: NameServerLink, left: Callable[[], float], absent: Sequence[admin.FlapScore]
) -> Sequence[admin.FlapScore]:
    """Return those that are gone in an unplanned outage, the last first."""

    async def timeline(group: tuple[str, str]) -> tuple[tuple[str, str], Timeline]:
        _, events = await _events_of(link, left(), cluster=group[0], broker_name=group[1])
        return group, timeline_of(events)

    groups = sorted({(score.cluster, score.broker_name) for score in absent})
    timelines = dict(await asyncio.gather(*map(timeline, groups)))
    gone = [
        score for score in absent if timelines[score.cluster, score.broker_name].is_gone_unplanned(_position(score))
    ]
    return sorted(gone, key=lambda score: seconds_of(score.last_event_ago))


def _position(score: admin.FlapScore) -> Position:
    return score.cluster, score.broker_name, score.broker_id


async def history_of(link: NameServerLink, seconds: float, *, cluster: str, broker_name: str) -> BrokerHistory:
    """Ask for the replicas of a broker name and for all remembered events of it."""

    async def here() -> NodeBrokers:
        try:
            return await brokers_of(link, seconds, cluster=cluster, broker_name=broker_name)
        except RequestRejectedError as failure:
            # All brokers of the cluster have departed.
            if failure.status is grpc.StatusCode.NOT_FOUND:
                return NodeBrokers("", [], None)
            raise

    found, (node, events) = await asyncio.gather(
        here(), _events_of(link, seconds, cluster=cluster, broker_name=broker_name)
    )
    guards = {guard.cluster: guard for guard in (found.info.guards if found.info else ())}
    return BrokerHistory(node, found.brokers, guards, timeline_of(events))


async def _events_of(
    link: NameServerLink, seconds: float, *, cluster: str, broker_name: str
) -> tuple[str, Sequence[admin.BrokerEvent]]:
    request = admin.ListBrokerEventsRequest(cluster=cluster, broker_name=broker_name)
    answer = await link.call(link.admin.ListBrokerEvents, request, timeout_seconds=seconds)
    return answer.node, answer.events


async def digests_of(link: NameServerLink, seconds: float) -> NodeDigests:
    """Ask for the digests of all routes and what operators set; ``seconds`` is for all pages together."""
    left = time_left(seconds)
    settings = await settings_of(link, seconds)
    digests: dict[str, bytes] = {}
    request = admin.ListRouteDigestsRequest(page_size=DIGESTS_PER_PAGE)
    while True:
        page = await link.call(link.admin.ListRouteDigests, request, timeout_seconds=left())
        digests.update((entry.topic, entry.digest) for entry in page.digests)
        if not page.next_page_token:
            return NodeDigests(page.node, page.state, digests, settings)
        request.page_token = page.next_page_token
