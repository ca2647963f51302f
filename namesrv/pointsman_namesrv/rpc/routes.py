"""RouteService: calls of producers and consumers."""

from __future__ import annotations

from collections.abc import Iterator

from pointsman.clock import Clock
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Write
from pointsman.daemon.rpc.request_fields import page
from pointsman.daemon.subscriptions import Subscription
from pointsman.v1 import route_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, InvalidRequest, refuse_if_any
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.core.node_refusals import ClusterNotFound, TopicNotFound
from pointsman_namesrv.core.request_rules import duplicate_topic, name_violations, text_violations
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc import broker_codec
from pointsman_namesrv.rpc.route_codec import absent_brokers
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.slices import Slices

RAW_METHODS = frozenset({"GetTopicRoute", "GetTopicRoutes", "GetClusterInfo", "WatchTopicRoutes"})
"""Calls from bytes to bytes."""

DEFAULT_PAGE_SIZE = 1_000
MAX_PAGE_SIZE = 10_000
MAX_TOPICS = 1_000
"""Maximum topics of one GetTopicRoutes."""
MAX_RESPONSE_BYTES = 2 * 1024 * 1024
"""Size of the routes of one GetTopicRoutes: with the names it stays below gRPC's 4 MiB. One route always fits."""


class RouteServicer:
    """Responses from the core's tables, as far as the state of the node permits."""

    def __init__(
        self,
        core: BrokerTables,
        responses: RouteResponses,
        hub: WatchHub,
        *,
        lifecycle: NodeLifecycle,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self.hub = hub
        self._core = core
        self._responses = responses
        self._lifecycle = lifecycle
        self._clock = clock
        self._ok, self._unchanged, self._not_found, self._not_ready = (
            metrics.route_queries.labels(result).inc for result in ("ok", "unchanged", "not_found", "not_ready")
        )

    def get_topic_route(self, request: bytes) -> bytes:
        """Return one route, or that the known one is current. The hot path: bytes are ready except after a change.

        Raises DecodeError for invalid bytes, InvalidRequest for names outside the grammar, TopicNotFound.
        """
        query = wire.GetTopicRouteRequest.FromString(request)
        try:
            response = self._responses.current(query.topic, query.cluster, query.zone)
        except TopicNotFound:
            self._count_unknown()
            raise
        if query.known_digest == response.digest:
            self._unchanged()
            return response.unchanged
        self._ok()
        return response.route

    async def get_topic_routes(self, request: bytes) -> bytes:
        """Return many routes, those that differ from the known ones. Raises DecodeError, InvalidRequest."""
        query = wire.GetTopicRoutesRequest.FromString(request)
        if len(query.topics) > MAX_TOPICS:
            raise InvalidRequest([FieldViolation("topics", f"may hold at most {MAX_TOPICS}, not {len(query.topics)}")])
        refuse_if_any(_query_violations(query))
        rest, routes, room = wire.GetTopicRoutesResponse(), list[bytes](), MAX_RESPONSE_BYTES
        slices = Slices(self._clock)
        for known in query.topics:
            if room <= 0:
                rest.left_out.append(known.topic)
                continue
            try:
                response = self._responses.current(known.topic, query.cluster, query.zone)
            except TopicNotFound:
                is_missing = self._count_unknown()
                (rest.not_found if is_missing else rest.left_out).append(known.topic)
                continue
            if known.revision.digest == response.digest:
                rest.unchanged.append(known.topic)
            elif routes and len(response.route) > room:
                room = 0
                rest.left_out.append(known.topic)
            else:
                room -= len(response.route)
                routes.append(response.route)
            if slices.is_over():
                await slices.pause()
        self._ok(len(routes))
        self._unchanged(len(rest.unchanged))
        return b"".join([*routes, rest.SerializeToString()])

    async def watch_topic_routes(self, request: bytes, write: Write, peer: Peer) -> Subscription:
        """Send the state, and return the subscription to each change, until the client disconnects or this node drains.

        Raises DecodeError, InvalidRequest, LimitExceeded, Ended.
        """
        query = wire.WatchTopicRoutesRequest.FromString(request)
        # Before the names are read: the bound is cheap to check, for any request.
        self.hub.refuse_beyond_bounds(len(query.topics))
        if not query.topics:
            raise InvalidRequest([FieldViolation("topics", "must not be empty")])
        refuse_if_any(_query_violations(query))
        return await self.hub.watch(query, write, peer=peer)

    def list_topics(self, request: wire.ListTopicsRequest) -> wire.ListTopicsResponse:
        """Return one page of topic names."""
        if request.cluster:
            refuse_if_any(name_violations("cluster", request.cluster))
        names = self._core.topic_names(request.cluster)
        topics, token = page(
            names, size=request.page_size, token=request.page_token, default=DEFAULT_PAGE_SIZE, most=MAX_PAGE_SIZE
        )
        return wire.ListTopicsResponse(
            topics=topics, next_page_token=token, node_state=broker_codec.node_state(self._lifecycle.state)
        )

    async def get_cluster_info(self, request: bytes) -> bytes:
        """Return clusters and their groups. Raises DecodeError, InvalidRequest, ClusterNotFound.

        A cluster whose brokers have all departed is not in the list, but known as long as they are remembered.
        """
        query = wire.GetClusterInfoRequest.FromString(request)
        if query.cluster:
            refuse_if_any(name_violations("cluster", query.cluster))
        absent = self._core.departed.all_absent(self._core.routes.groups, query.cluster)
        try:
            clusters = self._core.clusters(query.cluster)
        except ClusterNotFound:
            if not absent:
                raise
            clusters = []
        response = wire.GetClusterInfoResponse(
            node_state=broker_codec.node_state(self._lifecycle.state),
            absent=absent_brokers(absent, unix_offset=self._responses.unix_offset),
        )
        slices = Slices(self._clock)
        for cluster, groups in clusters:
            data = response.clusters.add(cluster=cluster)
            for group in groups:
                data.broker_datas.append(broker_codec.broker_data(group))
                if slices.is_over():
                    await slices.pause()
        return response.SerializeToString()

    def _count_unknown(self) -> bool:
        """Count a topic without a route; return whether this node knows that there is none."""
        is_missing = self._lifecycle.state is not NodeState.WARMING
        (self._not_found if is_missing else self._not_ready)()
        return is_missing


def _query_violations(query: wire.GetTopicRoutesRequest | wire.WatchTopicRoutesRequest) -> Iterator[FieldViolation]:
    """Check the names of a query for many topics, each of which may occur once."""
    if query.cluster:
        yield from name_violations("cluster", query.cluster)
    yield from text_violations("zone", query.zone)
    seen: set[str] = set()
    for i, known in enumerate(query.topics):
        yield from name_violations(f"topics[{i}].topic", known.topic)
        if known.topic in seen:
            yield duplicate_topic(known.topic, path=f"topics[{i}]")
        seen.add(known.topic)
