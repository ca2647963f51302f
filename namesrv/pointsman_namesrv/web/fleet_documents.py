"""Documents of ``/v1``: the same as ``pointsmanctl --output json``, for this name server alone."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman.v1 import admin_service_pb2, route_service_pb2
from pointsman.wire.json_document import (
    MASTER_ID,
    NO_MASTER,
    Document,
    enum_name,
    to_broker_data_document,
    to_document,
    to_queue_data_document,
    to_route_document,
)
from pointsman.wire.refusals import FieldViolation, InvalidRequest, NotReady, Refusal, refuse_if_any
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.flap_penalties import FlapScore
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import GroupKey, NodeState, Position
from pointsman_namesrv.core.replica_state import ROUTED, Phase
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.rpc import admin_codec, broker_codec
from pointsman_namesrv.rpc.inspection import Inspection
from pointsman_namesrv.rpc.routes import RouteServicer
from pointsman_namesrv.web.loop_documents import Pause, Query

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Sources of the documents."""

    core: BrokerTables
    recent: RecentEvents
    admin: Inspection
    routes: RouteServicer
    lifecycle: NodeLifecycle
    clock: Clock
    addr: str
    """This name server's gRPC address, by which ``pointsmanctl`` names a node."""
    node: str

    def refuse_unless_serving_routes(self) -> None:
        """Raise NotReady while this node sends its clients to other nodes."""
        if self.lifecycle.state is NodeState.DRAINING:
            raise self.lifecycle.refusal()

    def as_known_now(self, refusal: Refusal) -> Refusal:
        """Replace a "not found" of a WARMING node by NotReady: it may not know every broker yet."""
        if refusal.status == "NOT_FOUND" and self.lifecycle.state is NodeState.WARMING:
            text = f"{refusal}: this name server is {NodeState.WARMING} and may not know it yet; retry in a few seconds"
            return NotReady(text, node_state=NodeState.WARMING)
        return refusal

    def status_of(self, group: Group, replica: Replica) -> Document:
        """Return the status of a broker."""
        now, utc_now = self.clock.monotonic(), self.clock.utc_now()
        return to_document(admin_codec.broker_status(self.core, group, replica, now=now, utc_now=utc_now))

    def info(self) -> admin_service_pb2.GetNodeInfoResponse:
        """Return the node's state."""
        return self.admin.get_node_info(admin_service_pb2.GetNodeInfoRequest())


async def brokers(fleet: Fleet, query: Query, _pause: Pause) -> object:
    """As ``pointsmanctl brokers``. Raises InvalidRequest, ClusterNotFound."""
    cluster, core = query.text("cluster"), fleet.core
    if cluster:  # raises for an unknown one
        fleet.admin.list_brokers(admin_service_pb2.ListBrokersRequest(cluster=cluster, page_size=1))
    members = core.replicas(cluster=cluster)
    info = fleet.info()
    response = {
        "addr": fleet.addr,
        "node": fleet.node,
        "nodeState": fleet.lifecycle.state,
        "earlierRuns": enum_name(info, "earlier_runs"),
        "brokers": (fleet.status_of(group, replica) for group, replica in members if is_held(group, replica)),
        "conditions": (
            {"cluster": key.cluster, "brokerName": key.broker_name, "condition": NO_MASTER}
            for key in without_master(core)
            if not cluster or key.cluster == cluster
        ),
        "guards": map(to_document, info.guards),
        "gone": [departed_document(fleet, score) for score in departed(fleet, cluster=cluster)],
    }
    return {"nodes": [response]}


async def clusters(fleet: Fleet, query: Query, _pause: Pause) -> object:
    """As ``pointsmanctl clusters``. Raises InvalidRequest, ClusterNotFound, NotReady."""
    fleet.refuse_unless_serving_routes()
    refuse_if_any(admin_codec.optional_names(cluster=query.text("cluster")))
    return {
        "nodeState": fleet.lifecycle.state,
        "clusters": [
            {
                "cluster": cluster,
                "brokerDatas": (to_broker_data_document(broker_codec.broker_data(group)) for group in groups),
            }
            for cluster, groups in fleet.core.clusters(query.text("cluster"))
        ],
    }


async def route(fleet: Fleet, query: Query, _pause: Pause) -> object:
    """As ``pointsmanctl route``. Raises InvalidRequest, TopicNotFound, NotReady."""
    fleet.refuse_unless_serving_routes()
    request = route_service_pb2.GetTopicRouteRequest(
        topic=query.text("topic"), cluster=query.text("cluster"), zone=query.text("zone")
    )
    response = fleet.routes.get_topic_route(request.SerializeToString())
    found = route_service_pb2.GetTopicRouteResponse.FromString(response).route
    # Item by item: a topic may be on thousands of brokers.
    bare = route_service_pb2.TopicRoute()
    bare.CopyFrom(found)
    del bare.broker_datas[:], bare.queue_datas[:]
    servers = (
        (replica.addr, list(replica.filter_servers))
        for data in found.broker_datas
        for replica in data.replicas
        if replica.filter_servers
    )
    return to_route_document(bare) | {
        "queueDatas": map(to_queue_data_document, found.queue_datas),
        "brokerDatas": map(to_broker_data_document, found.broker_datas),
        "filterServerTable": dict(servers),
    }


async def groups(fleet: Fleet, query: Query, pause: Pause) -> object:
    """Return the consumer groups, those furthest behind first. Raises InvalidRequest, ClusterNotFound."""
    return await _live(fleet, query, pause, "groups", "lags")


async def queues(fleet: Fleet, query: Query, pause: Pause) -> object:
    """As ``pointsmanctl queues``. Raises InvalidRequest, ClusterNotFound."""
    return await _live(fleet, query, pause, "topics", "queues", "groups", "lags")


async def _live(fleet: Fleet, query: Query, pause: Pause, *lists: str) -> object:
    request = admin_service_pb2.ListLiveQueuesRequest(
        cluster=query.text("cluster"), topic=query.text("topic"), limit=limit_of(query.text("limit"))
    )
    found = await fleet.admin.list_live_queues(request, pause)
    response = {
        "addr": fleet.addr,
        "node": fleet.node,
        **{name: map(to_document, getattr(found, name)) for name in (*lists, "brokers")},
        "brokerCount": found.broker_count,
        "measuredBrokerCount": found.measured_broker_count,
    }
    return {"nodes": [response]}


async def events(fleet: Fleet, query: Query, _pause: Pause) -> object:
    """Return the last events, oldest first, each as in ``pointsmanctl why``. Raises InvalidRequest."""
    cluster, broker = query.text("cluster"), query.text("broker")
    refuse_if_any(admin_codec.optional_names(cluster=cluster, broker=broker))
    limit = limit_of(query.text("limit"))
    if broker:
        records = fleet.recent.of(broker, cluster=cluster)[-limit:]
    else:
        records = fleet.recent.latest(limit, cluster=cluster)
    found = (to_document(admin_codec.broker_event(record)) for record in records)
    earlier = admin_service_pb2.EarlierRuns.Name(fleet.admin.earlier_runs()).removeprefix("EARLIER_RUNS_")
    return {"nodes": [{"addr": fleet.addr, "node": fleet.node, "earlierRuns": earlier, "events": found}]}


def without_master(core: BrokerTables) -> list[GroupKey]:
    """Return the broker names without a routed master, sorted: producers cannot write to them."""
    masters = ((key, group.replicas.get(MASTER_ID)) for key, group in core.routes.groups.items())
    return sorted(key for key, master in masters if master is None or not master.is_routed)


def departed(fleet: Fleet, *, cluster: str = "") -> list[FlapScore]:
    """Return brokers that departed unplanned; the last to leave first."""
    now, core = fleet.clock.monotonic(), fleet.core
    scores = core.penalties.top(now=now, cluster=cluster)
    if not core.hears_brokers:
        lost = [score for score in scores if core.departed.get(score.position) is not None]
        return sorted(lost, key=lambda score: -score.last_event_at)
    found = [score for score in scores if score.outages and _departed_unplanned(fleet, score.position)]
    return sorted(found, key=lambda score: -score.last_event_at)


def departed_document(fleet: Fleet, score: FlapScore) -> Document:
    """As in ``pointsmanctl flapping``."""
    return to_document(admin_codec.flap_score(score, now=fleet.clock.monotonic()))


def _departed_unplanned(fleet: Fleet, position: Position) -> bool:
    group = fleet.core.routes.groups.get(GroupKey(position.cluster, position.broker_name))
    if group is not None and position.broker_id in group.replicas:
        return False
    last, is_planned = Phase.UP, True
    for record in fleet.recent.of(position.broker_name, cluster=position.cluster):
        broker = record.event.broker
        if broker is not None and broker.identity.position == position:
            last = broker.state.phase
            is_planned = last in ROUTED or (is_planned and broker.state.planned)
    return last is Phase.GONE and not is_planned


def is_held(group: Group, replica: Replica) -> bool:
    """Return whether a replica is still registered: brokers come and go while a document is built."""
    return group.replicas.get(replica.identity.broker_id) is replica


def limit_of(text: str) -> int:
    """Return the number of rows that a parameter asks for. Raises InvalidRequest."""
    if not text:
        return DEFAULT_LIMIT
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest([FieldViolation("limit", f"must be a number from 1 to {MAX_LIMIT}, not {text!a}")])
    return limit
