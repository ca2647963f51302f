"""Conversion between wire messages and the client's values. Pure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_client.core.route import (
    BrokerData,
    BrokerReplica,
    BrokerState,
    ClusterData,
    QueueData,
    Revision,
    TopicRoute,
)
from pointsman_client.errors import AbsentBroker

_STATES = {
    broker_pb2.BROKER_STATE_UP: BrokerState.UP,
    broker_pb2.BROKER_STATE_SUSPECT: BrokerState.SUSPECT,
    broker_pb2.BROKER_STATE_PROVISIONAL: BrokerState.PROVISIONAL,
    broker_pb2.BROKER_STATE_PROTECTED: BrokerState.PROTECTED,
    broker_pb2.BROKER_STATE_OUT: BrokerState.OUT,
}
_NUMBERS = {state: number for number, state in _STATES.items()}


def to_topic_route(route: route_service_pb2.TopicRoute) -> TopicRoute:
    """Convert a route from the wire."""
    return TopicRoute(
        topic=route.topic,
        revision=to_revision(route.revision),
        queue_datas=tuple(_to_queue_data(queue_data) for queue_data in route.queue_datas),
        broker_datas=tuple(_to_broker_data(broker_data) for broker_data in route.broker_datas),
        order_topic_conf=route.order_topic_conf,
        absent_brokers=tuple(_to_absent_broker(broker) for broker in route.absent_brokers),
        is_static=bool(route.static_topic_mappings),
    )


def from_topic_route(route: TopicRoute) -> route_service_pb2.TopicRoute:
    """Convert a route back to its wire message, for code that reads that format."""
    return route_service_pb2.TopicRoute(
        topic=route.topic,
        revision=from_revision(route.revision),
        queue_datas=map(_from_queue_data, route.queue_datas),
        broker_datas=map(_from_broker_data, route.broker_datas),
        order_topic_conf=route.order_topic_conf,
        absent_brokers=[
            route_service_pb2.AbsentBroker(
                identity=broker_pb2.BrokerIdentity(
                    cluster=broker.cluster, broker_name=broker.broker_name, broker_id=broker.broker_id, addr=broker.addr
                ),
                is_registered=broker.is_registered,
                reason=broker.reason,
                since=None if broker.since is None else _to_timestamp(broker.since),
            )
            for broker in route.absent_brokers
        ],
    )


def from_cluster_data(cluster: ClusterData) -> route_service_pb2.ClusterData:
    """Convert a cluster back to its wire message."""
    return route_service_pb2.ClusterData(
        cluster=cluster.cluster, broker_datas=map(_from_broker_data, cluster.broker_datas)
    )


def _from_broker_data(data: BrokerData) -> broker_pb2.BrokerData:
    return broker_pb2.BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        replicas=[
            broker_pb2.BrokerReplica(**asdict(replica) | {"state": _NUMBERS.get(replica.state)})
            for replica in data.replicas
        ],
        zone=data.zone,
        acting_master=data.acting_master,
    )


def _to_timestamp(at: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(at)
    return timestamp


def to_revision(revision: route_service_pb2.Revision) -> Revision:
    """Convert a revision from the wire."""
    return Revision(revision.boot, revision.counter, revision.digest)


def from_revision(revision: Revision) -> route_service_pb2.Revision:
    """Convert a revision to the wire."""
    return route_service_pb2.Revision(boot=revision.boot, counter=revision.counter, digest=revision.digest)


def to_cluster_data(cluster: route_service_pb2.ClusterData) -> ClusterData:
    """Convert a cluster from the wire."""
    return ClusterData(cluster.cluster, tuple(_to_broker_data(broker_data) for broker_data in cluster.broker_datas))


def to_broker_state(state: broker_pb2.BrokerState.ValueType) -> BrokerState:
    """Convert a state from the wire; UNKNOWN if this version does not know it."""
    return _STATES.get(state, BrokerState.UNKNOWN)


def _to_absent_broker(broker: route_service_pb2.AbsentBroker) -> AbsentBroker:
    identity = broker.identity
    return AbsentBroker(
        cluster=identity.cluster,
        broker_name=identity.broker_name,
        broker_id=identity.broker_id,
        addr=identity.addr,
        is_registered=broker.is_registered,
        reason=broker.reason,
        since=broker.since.ToDatetime(tzinfo=UTC) if broker.HasField("since") else None,
    )


def _to_queue_data(queue_data: route_service_pb2.QueueData) -> QueueData:
    return QueueData(
        cluster=queue_data.cluster,
        broker_name=queue_data.broker_name,
        read_queue_nums=queue_data.read_queue_nums,
        write_queue_nums=queue_data.write_queue_nums,
        perm=queue_data.perm,
        topic_sys_flag=queue_data.topic_sys_flag,
        queue_weight=queue_data.queue_weight or 1,
    )


def _from_queue_data(data: QueueData) -> route_service_pb2.QueueData:
    weight = 0 if data.queue_weight == 1 else data.queue_weight
    return route_service_pb2.QueueData(**asdict(data) | {"queue_weight": weight})


def _to_broker_data(broker_data: broker_pb2.BrokerData) -> BrokerData:
    return BrokerData(
        cluster=broker_data.cluster,
        broker_name=broker_data.broker_name,
        replicas=tuple(_to_replica(replica) for replica in broker_data.replicas),
        zone=broker_data.zone,
        acting_master=broker_data.acting_master,
    )


def _to_replica(replica: broker_pb2.BrokerReplica) -> BrokerReplica:
    return BrokerReplica(
        broker_id=replica.broker_id,
        addr=replica.addr,
        ha_addr=replica.ha_addr,
        agent_addr=replica.agent_addr,
        state=to_broker_state(replica.state),
        filter_servers=tuple(replica.filter_servers),
    )
