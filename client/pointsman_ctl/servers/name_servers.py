"""Queries to one name server: Pointsman's, or, where it has them, RocketMQ's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import grpc

from pointsman.names import is_rocketmq
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import admin_service_pb2_grpc, broker_pb2, route_service_pb2
from pointsman.wire.json_document import enum_name
from pointsman.wire.outage_timeline import Position, Timeline, timeline_of
from pointsman.wire.wire_time import seconds_of
from pointsman_client import (
    ClusterNotFoundError,
    PointsmanError,
    RequestRejectedError,
    TopicNotFoundError,
)
from pointsman_client.pointsman_grpc.links import NameServerLink
from pointsman_ctl.servers.past_answers import MessageT, PastPage
from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess, RocketmqNameServer, TopicRoutes
from pointsman_ctl.servers.server_calls import To

TOPICS_PER_PAGE = 10_000
DIGESTS_PER_PAGE = 10_000
ROUTES_PER_CALL = 1_000
EVENTS_PER_PAGE = 1_000
SAME_WITHIN_SECONDS = 60.0
"""Tolerance: a change reaches one server after the other, and each counts its own remaining time."""
Key: TypeAlias = tuple[str, ...]
"""Kind, then the name."""


@dataclass(frozen=True, slots=True)
class NodeBrokers:
    """The brokers of a node, and the node."""

    node: str
    brokers: Sequence[broker_pb2.BrokerStatus]
    info: admin.GetNodeInfoResponse
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
    earlier_runs: str = "UNSPECIFIED"
    """What the node knows of events before its start, as in ``EarlierRuns``."""

    @property
    def may_know(self) -> bool:
        """Return whether the node has anything of the broker, or may have once it has read its history."""
        return bool(self.brokers or self.timeline.events) or self.earlier_runs == "READING"


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


class PointsmanNameServer(NameServerLink):
    """One of Pointsman's name servers. All methods raise NameServerFailedError and RequestRejectedError."""

    def __init__(self, addr: str, channel: grpc.aio.Channel, version: int) -> None:
        super().__init__(addr, channel, version)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(channel)

    async def route(
        self, topic: str, deadline: float, *, cluster: str = "", zone: str = ""
    ) -> route_service_pb2.TopicRoute:
        """Return the route of a topic. Raises TopicNotFoundError."""
        response = await self.call(
            self.routes.GetTopicRoute,
            route_service_pb2.GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone),
            deadline=deadline,
            not_found=lambda: TopicNotFoundError(topic, cluster=cluster, zone=zone),
        )
        return response.route

    async def topics(self, deadline: float, *, cluster: str = "") -> route_service_pb2.ListTopicsResponse:
        """Return all topic names, sorted, and the server's state. Raises ClusterNotFoundError."""
        request = route_service_pb2.ListTopicsRequest(cluster=cluster, page_size=TOPICS_PER_PAGE)
        not_found = partial(ClusterNotFoundError, cluster)
        return await self.all_pages(self.routes.ListTopics, request, deadline=deadline, not_found=not_found)

    async def clusters(self, deadline: float, *, cluster: str = "") -> route_service_pb2.GetClusterInfoResponse:
        """Return the clusters, or one, and the server's state. Raises ClusterNotFoundError."""
        request = route_service_pb2.GetClusterInfoRequest(cluster=cluster)
        not_found = partial(ClusterNotFoundError, cluster)
        return await self.call(self.routes.GetClusterInfo, request, deadline=deadline, not_found=not_found)

    async def rocketmq_brokers(self, deadline: float, *, cluster: str = "") -> Sequence[str]:
        """Return CLUSTER/BROKER/ID of the brokers that registered themselves, as RocketMQ's do, without an agent."""
        listed = await self._registered(deadline, cluster=cluster)
        registered = (status.identity for status in listed.brokers if not (status.agent_version or status.agent_addr))
        return [f"{who.cluster}/{who.broker_name}/{who.broker_id}" for who in registered]

    async def node_info(self, deadline: float) -> admin.GetNodeInfoResponse:
        """Return version, state, sizes and problems of a node."""
        return await self.call(self.admin.GetNodeInfo, admin.GetNodeInfoRequest(), deadline=deadline)

    async def health(self, deadline: float, *, with_settings: bool) -> NodeHealth:
        """Return a node's information and its operator settings, None where these are not available."""

        async def settings() -> NodeSettings | None:
            try:
                return await self.settings(deadline) if with_settings else None
            except PointsmanError:
                return None

        return NodeHealth(*await asyncio.gather(self.node_info(deadline), settings()))

    async def settings(self, deadline: float) -> NodeSettings:
        """Return all operator settings."""
        response = await self.all_pages(self.admin.ListSettings, admin.ListSettingsRequest(), deadline=deadline)
        return {
            (setting.kind, *setting.name): Setting(
                setting.value, seconds_of(setting.remaining) if setting.HasField("remaining") else None
            )
            for setting in response.settings
        }

    async def brokers(
        self, deadline: float, *, cluster: str = "", broker_name: str = "", with_departed: bool = False
    ) -> NodeBrokers:
        """Return the brokers of a node, and its information."""

        async def absent_scores() -> Sequence[admin.FlapScore]:
            if not with_departed:
                return ()
            request = admin.ListFlappingRequest(cluster=cluster)
            return (await self.call(self.admin.ListFlapping, request, deadline=deadline)).scores

        listed, about, scores = await asyncio.gather(
            self._registered(deadline, cluster=cluster, broker_name=broker_name),
            self.node_info(deadline),
            absent_scores(),
        )
        here = {(who.cluster, who.broker_name, who.broker_id) for who in (status.identity for status in listed.brokers)}
        absent = [score for score in scores if score.outages and _position(score) not in here]
        return NodeBrokers(listed.node, listed.brokers, about, await self._departed(deadline, absent))

    async def _registered(self, deadline: float, *, cluster: str, broker_name: str = "") -> admin.ListBrokersResponse:
        request = admin.ListBrokersRequest(cluster=cluster, broker_name=broker_name)
        return await self.all_pages(self.admin.ListBrokers, request, deadline=deadline)

    async def _departed(self, deadline: float, absent: Sequence[admin.FlapScore]) -> Sequence[admin.FlapScore]:
        """Return those in an unplanned outage, latest first."""

        async def timeline(group: tuple[str, str]) -> tuple[tuple[str, str], Timeline]:
            events = await self._events(deadline, cluster=group[0], broker_name=group[1])
            return group, timeline_of(events.events)

        groups = dict.fromkeys((score.cluster, score.broker_name) for score in absent)
        timelines = dict(await asyncio.gather(*map(timeline, groups)))
        gone = [
            score
            for score in absent
            if timelines[score.cluster, score.broker_name].has_departed_unplanned(_position(score))
        ]
        return sorted(gone, key=lambda score: seconds_of(score.last_event_ago))

    async def history(self, deadline: float, *, cluster: str, broker_name: str) -> BrokerHistory:
        """Return the replicas of a broker name and all events that the server has of it."""

        async def here() -> NodeBrokers:
            try:
                return await self.brokers(deadline, cluster=cluster, broker_name=broker_name)
            except RequestRejectedError as failure:
                # All brokers of the cluster have departed.
                if failure.status is grpc.StatusCode.NOT_FOUND:
                    return NodeBrokers("", [], admin.GetNodeInfoResponse())
                raise

        found, events = await asyncio.gather(here(), self._events(deadline, cluster=cluster, broker_name=broker_name))
        guards = {guard.cluster: guard for guard in found.info.guards}
        earlier = enum_name(events, "earlier_runs")
        return BrokerHistory(events.node, found.brokers, guards, timeline_of(events.events), earlier)

    async def _events(self, deadline: float, *, cluster: str, broker_name: str) -> admin.ListBrokerEventsResponse:
        request = admin.ListBrokerEventsRequest(cluster=cluster, broker_name=broker_name)
        return await self.call(self.admin.ListBrokerEvents, request, deadline=deadline)

    async def past_route(self, request: admin.GetPastRouteRequest, deadline: float) -> admin.GetPastRouteResponse:
        """Return the route of a topic at a moment."""
        return await self.call(self.admin.GetPastRoute, request, deadline=deadline)

    async def past_broker(self, request: admin.GetPastBrokerRequest, deadline: float) -> admin.GetPastBrokerResponse:
        """Return the replicas of a broker name at a moment, and its events up to then."""
        return await self.call(self.admin.GetPastBroker, request, deadline=deadline)

    async def past_events(
        self, request: admin.ListPastEventsRequest, limit: int, deadline: float
    ) -> PastPage[admin.BrokerEvent]:
        """Return the newest events, at most ``limit``."""

        async def ask(size: int, token: str) -> tuple[str, Sequence[admin.BrokerEvent], str]:
            page = admin.ListPastEventsRequest(page_size=size, page_token=token)
            page.MergeFrom(request)
            response = await self.call(self.admin.ListPastEvents, page, deadline=deadline)
            return response.node, response.events, response.next_page_token

        return await _newest(ask, limit)

    async def changes(
        self, request: admin.ListChangesRequest, limit: int, deadline: float
    ) -> PastPage[admin.OperatorChange]:
        """Return the newest changes by operators, at most ``limit``."""

        async def ask(size: int, token: str) -> tuple[str, Sequence[admin.OperatorChange], str]:
            page = admin.ListChangesRequest(page_size=size, page_token=token)
            page.MergeFrom(request)
            response = await self.call(self.admin.ListChanges, page, deadline=deadline)
            return response.node, response.changes, response.next_page_token

        return await _newest(ask, limit)

    async def digests(self, deadline: float) -> NodeDigests:
        """Return the digests of all routes and the operator settings."""
        settings = await self.settings(deadline)
        request = admin.ListRouteDigestsRequest(page_size=DIGESTS_PER_PAGE)
        response = await self.all_pages(self.admin.ListRouteDigests, request, deadline=deadline)
        digests = {entry.topic: entry.digest for entry in response.digests}
        return NodeDigests(response.node, enum_name(response, "state"), digests, settings)

    async def all_routes(self, deadline: float) -> TopicRoutes:
        """Return the routes of all topics with a broker that is up."""
        listed = await self.topics(deadline)
        routes: dict[str, route_service_pb2.TopicRoute] = {}
        missing = list(listed.topics)
        while missing:
            asked, missing = missing[:ROUTES_PER_CALL], missing[ROUTES_PER_CALL:]
            request = route_service_pb2.GetTopicRoutesRequest(
                topics=[route_service_pb2.KnownRoute(topic=topic) for topic in asked]
            )
            response = await self.call(self.routes.GetTopicRoutes, request, deadline=deadline)
            routes |= {route.topic: route for route in response.routes}
            if len(response.left_out) == len(asked):
                break  # none of them, which asking again would not change
            missing += response.left_out
        return TopicRoutes(self.addr, enum_name(listed, "node_state"), routes)


def _position(score: admin.FlapScore) -> Position:
    return score.cluster, score.broker_name, score.broker_id


NameServer: TypeAlias = PointsmanNameServer | RocketmqNameServer


def name_servers(to: To[PointsmanNameServer], access: RocketmqAccess) -> To[NameServer]:
    """Return a function from an address to a name server of either kind."""
    return lambda addr: RocketmqNameServer(addr, access) if is_rocketmq(addr) else to(addr)


async def _newest(
    ask: Callable[[int, str], Awaitable[tuple[str, Sequence[MessageT], str]]], limit: int
) -> PastPage[MessageT]:
    """Ask for pages, by size and token, until ``limit`` messages or the last page came; each answers the next token."""
    found: list[MessageT] = []
    token = ""
    while True:
        node, messages, token = await ask(min(limit - len(found), EVENTS_PER_PAGE), token)
        found += messages
        if not token or len(found) >= limit:
            return PastPage(node, found, is_cut=bool(token))
