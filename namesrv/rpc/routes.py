"""RouteService: what producers and consumers ask us."""

from __future__ import annotations

from namesrv.core.errors import InvalidRequest
from namesrv.core.name_server import NameServer
from namesrv.core.validation import name_violations
from namesrv.rpc import codec
from namesrv.rpc.route_answers import RouteAnswers
from pointsman.v1 import route_service_pb2 as wire
from pointsman.wire.violation import FieldViolation

RAW_METHODS = frozenset({"GetTopicRoute"})
"""Served from bytes to bytes."""

DEFAULT_PAGE_SIZE = 1_000
MAX_PAGE_SIZE = 10_000


class RouteServicer:
    """Answers from the core's tables."""

    def __init__(self, core: NameServer, answers: RouteAnswers) -> None:
        self._core = core
        self.get_topic_route = answers.answer

    def list_topics(self, request: wire.ListTopicsRequest) -> wire.ListTopicsResponse:
        """One page of topic names."""
        if request.cluster:
            codec.refuse_if_any(name_violations("cluster", request.cluster))
        if request.page_size > MAX_PAGE_SIZE:
            raise InvalidRequest(
                [FieldViolation("page_size", f"must be from 0 to {MAX_PAGE_SIZE}, not {request.page_size}")]
            )
        names = self._core.topic_names(request.cluster)
        topics, token = codec.page(names, size=request.page_size or DEFAULT_PAGE_SIZE, token=request.page_token)
        return wire.ListTopicsResponse(topics=topics, next_page_token=token)

    def get_cluster_info(self, request: wire.GetClusterInfoRequest) -> wire.GetClusterInfoResponse:
        """Clusters and their groups."""
        if request.cluster:
            codec.refuse_if_any(name_violations("cluster", request.cluster))
        return wire.GetClusterInfoResponse(
            clusters=[
                wire.ClusterData(cluster=cluster, broker_datas=[codec.broker_data(group) for group in groups])
                for cluster, groups in self._core.clusters(request.cluster)
            ]
        )
