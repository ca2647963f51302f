"""Queries to one name server that need several calls: all pages, or responses that belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import grpc

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import enum_name
from pointsman.wire.wire_time import seconds_of
from pointsman_client import (
    ClusterNotFoundError,
    NameServerFailedError,
    PointsmanError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_ctl.servers.outage_timeline import Position, Timeline, timeline_of
from pointsman_ctl.servers.rocketmq_name_server import PointsmanRequiredError, RocketmqNameServer
from pointsman_ctl.servers.server_calls import NameServer, ResultT, Server

TOPICS_PER_PAGE = 10_000
DIGESTS_PER_PAGE = 10_000
SAME_WITHIN_SECONDS = 60.0
"""Tolerance: a change reaches one server after the other, and each counts its own remaining time."""
Key: TypeAlias = tuple[str, ...]
"""Kind, then the name."""


@dataclass(frozen=True, slots=True)
class NodeBrokers:
    """The brokers of a node, and the node."""

    node: str
    brokers: Sequence[broker_pb2.BrokerStatus]
    info: admin.GetNodeInfoResponse | None
    """None if the server is too old for this call."""
    departed: Sequence[admin.FlapScore] = ()
    """Brokers that departed unplanned and are not registered, latest first, if requested."""


@dataclass(frozen=True, slots=True)
class BrokerHistory:
    """The replicas of a broker name at a node, and their recent events."""

    node: str
    brokers: Sequence[broker_pb2.BrokerStatus]
    guards: Mapping[str, admin.GuardStatus]
    """By cluster."""
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """A node and its operator settings."""

    info: admin.GetNodeInfoResponse
    settings: NodeSettings | None
    """None: not available, or not requested."""


class Setting(NamedTuple):
    """A setting at one server."""

    value: str
    remaining_seconds: float | None
    """None: no time limit."""

    def is_same(self, other: Setting) -> bool:
        """Whether two servers have the same setting, within SAME_WITHIN_SECONDS of remaining time."""
        if self.value != other.value:
            return False
        if self.remaining_seconds is None or other.remaining_seconds is None:
            return self.remaining_seconds is other.remaining_seconds
        return abs(self.remaining_seconds - other.remaining_seconds) <= SAME_WITHIN_SECONDS


NodeSettings: TypeAlias = Mapping[Key, Setting]


@dataclass(frozen=True, slots=True)
class NodeDigests:
    """The digests of all routes of a node, and its operator settings."""

    node: str
    state: str
    digests: Mapping[str, bytes]
    settings: NodeSettings = field(default_factory=dict)


async def route_of(
    server: NameServer, deadline: float, topic: str, *, cluster: str = "", zone: str = ""
) -> route_service_pb2.TopicRoute:
    """Return the route of a topic. Raises TopicNotFoundError."""
    if isinstance(server, RocketmqNameServer):
        return await server.route(topic, deadline, cluster=cluster, zone=zone)
    response = await server.call(
        server.routes.GetTopicRoute,
        route_service_pb2.GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone),
        deadline=deadline,
        not_found=lambda: TopicNotFoundError(topic, cluster=cluster, zone=zone),
    )
    return response.route


async def topics_of(server: NameServer, deadline: float, *, cluster: str) -> route_service_pb2.ListTopicsResponse:
    """Return all topic names, sorted, and the server's state."""
    if isinstance(server, RocketmqNameServer):
        return await server.topics(deadline, cluster=cluster)
    request = route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE)
    not_found = lambda: ClusterNotFoundError(cluster)  # noqa: E731
    return await server.all_pages(server.routes.ListTopics, request, deadline=deadline, not_found=not_found)


async def clusters_of(
    server: NameServer, deadline: float, *, cluster: str = ""
) -> route_service_pb2.GetClusterInfoResponse:
    """Return the clusters, or one, and the server's state. Raises ClusterNotFoundError."""
    if isinstance(server, RocketmqNameServer):
        return await server.clusters(deadline, cluster=cluster)
    request = route_service_pb2.GetClusterInfoRequest(cluster=cluster)
    not_found = lambda: ClusterNotFoundError(cluster)  # noqa: E731
    return await server.call(server.routes.GetClusterInfo, request, deadline=deadline, not_found=not_found)


async def rocketmq_brokers_of(server: Server, deadline: float, *, cluster: str = "") -> Sequence[str]:
    """Return CLUSTER/BROKER/ID of the brokers that registered themselves, as RocketMQ's do, without an agent."""
    request = admin.ListBrokersRequest(cluster=cluster)
    listed = await server.all_pages(server.admin.ListBrokers, request, deadline=deadline)
    registered = (status.identity for status in listed.brokers if not (status.agent_version or status.agent_addr))
    return [f"{who.cluster}/{who.broker_name}/{who.broker_id}" for who in registered]


async def node_info_of(server: Server, deadline: float) -> admin.GetNodeInfoResponse:
    """Return version, state, sizes and problems of a node."""
    return await server.call(server.admin.GetNodeInfo, admin.GetNodeInfoRequest(), deadline=deadline)


async def health_of(server: Server, deadline: float, *, with_settings: bool) -> NodeHealth:
    """Return a node's information and its operator settings, None where these are not available."""

    async def settings() -> NodeSettings | None:
        try:
            return await settings_of(server, deadline) if with_settings else None
        except PointsmanError:
            return None

    return NodeHealth(*await asyncio.gather(node_info_of(server, deadline), settings()))


async def settings_of(server: Server, deadline: float) -> NodeSettings:
    """Return all operator settings; empty from a server that is too old for this call."""

    request = admin.ListSettingsRequest()
    response = await _unless_too_old(server.all_pages(server.admin.ListSettings, request, deadline=deadline))
    return {
        (setting.kind, *setting.name): Setting(
            setting.value, seconds_of(setting.remaining) if setting.HasField("remaining") else None
        )
        for setting in (response.settings if response else ())
    }


async def brokers_of(
    server: NameServer, deadline: float, *, cluster: str = "", broker_name: str = "", with_departed: bool = False
) -> NodeBrokers:
    """Return the brokers of a node, and its information."""
    if isinstance(server, RocketmqNameServer):
        raise PointsmanRequiredError(server.addr)

    async def scores() -> Sequence[admin.FlapScore]:
        request = admin.ListFlappingRequest(cluster=cluster)
        return (await server.call(server.admin.ListFlapping, request, deadline=deadline)).scores

    request = admin.ListBrokersRequest(cluster=cluster, broker_name=broker_name)
    listed, about, remembered = await asyncio.gather(
        server.all_pages(server.admin.ListBrokers, request, deadline=deadline),
        _unless_too_old(node_info_of(server, deadline)),
        _unless_too_old(scores()) if with_departed else asyncio.sleep(0, ()),
    )
    here = {(who.cluster, who.broker_name, who.broker_id) for who in (status.identity for status in listed.brokers)}
    absent = [score for score in remembered or () if score.outages and _position(score) not in here]
    return NodeBrokers(listed.node, listed.brokers, about, await _departed(server, deadline, absent))


async def _departed(server: Server, deadline: float, absent: Sequence[admin.FlapScore]) -> Sequence[admin.FlapScore]:
    """Return those in an unplanned outage, latest first."""

    async def timeline(group: tuple[str, str]) -> tuple[tuple[str, str], Timeline]:
        events = await _events_of(server, deadline, cluster=group[0], broker_name=group[1])
        return group, timeline_of(events.events)

    groups = dict.fromkeys((score.cluster, score.broker_name) for score in absent)
    timelines = dict(await asyncio.gather(*map(timeline, groups)))
    gone = [
        score
        for score in absent
        if timelines[score.cluster, score.broker_name].has_departed_unplanned(_position(score))
    ]
    return sorted(gone, key=lambda score: seconds_of(score.last_event_ago))


def _position(score: admin.FlapScore) -> Position:
    return score.cluster, score.broker_name, score.broker_id


async def history_of(server: Server, deadline: float, *, cluster: str, broker_name: str) -> BrokerHistory:
    """Return the replicas of a broker name and all events that the server has of it."""

    async def here() -> NodeBrokers:
        try:
            return await brokers_of(server, deadline, cluster=cluster, broker_name=broker_name)
        except RequestRejectedError as failure:
            # All brokers of the cluster have departed.
            if failure.status is grpc.StatusCode.NOT_FOUND:
                return NodeBrokers("", [], None)
            raise

    found, events = await asyncio.gather(here(), _events_of(server, deadline, cluster=cluster, broker_name=broker_name))
    guards = {guard.cluster: guard for guard in (found.info.guards if found.info else ())}
    return BrokerHistory(events.node, found.brokers, guards, timeline_of(events.events))


async def _events_of(
    server: Server, deadline: float, *, cluster: str, broker_name: str
) -> admin.ListBrokerEventsResponse:
    request = admin.ListBrokerEventsRequest(cluster=cluster, broker_name=broker_name)
    return await server.call(server.admin.ListBrokerEvents, request, deadline=deadline)


async def digests_of(server: Server, deadline: float) -> NodeDigests:
    """Return the digests of all routes and the operator settings."""
    settings = await settings_of(server, deadline)
    request = admin.ListRouteDigestsRequest(page_size=DIGESTS_PER_PAGE)
    response = await server.all_pages(server.admin.ListRouteDigests, request, deadline=deadline)
    digests = {entry.topic: entry.digest for entry in response.digests}
    return NodeDigests(response.node, enum_name(response, "state"), digests, settings)


async def _unless_too_old(response: Awaitable[ResultT]) -> ResultT | None:
    """Return the response, or None if the server does not support the call."""
    try:
        return await response
    except NameServerFailedError as failure:
        if failure.status is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise
