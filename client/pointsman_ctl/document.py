"""Answers as JSON documents, in the style of routes (``pointsman_client.routes.route_document``). Pure.

64-bit numbers that a JavaScript reader would round (boot, generation, digest) are text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman_client.core.route import ClusterData
from pointsman_client.routes.codec import to_broker_state
from pointsman_client.routes.route_document import NO_MASTER, Document, to_broker_data_document
from pointsman_client.rpc.wire_time import seconds_of, utc_text
from pointsman_ctl.condition import missing_masters
from pointsman_ctl.failure import to_complaint
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import NodeBrokers, NodeState
from pointsman_ctl.wording import guard_mode_words, node_state_words

AnswerT = TypeVar("AnswerT")


def to_topics_document(topics: Sequence[str], state: NodeState) -> Document:
    """Render the names, and whether the server that told them knew all."""
    return {"topics": list(topics), "nodeState": node_state_words(state)}


def to_clusters_document(clusters: Sequence[ClusterData], state: NodeState) -> Document:
    """Render the clusters, and whether the server that told them knew all."""
    return {
        "nodeState": node_state_words(state),
        "clusters": [
            {
                "cluster": cluster.cluster,
                "brokerDatas": [to_broker_data_document(data) for data in cluster.broker_datas],
            }
            for cluster in clusters
        ],
    }


def to_brokers_document(nodes: Iterable[NodeAnswer[NodeBrokers]]) -> Document:
    """Render each node's brokers."""
    return {"nodes": [to_node_document(node, _to_node_brokers) for node in nodes]}


def to_node_document(node: NodeAnswer[AnswerT], to_answer: Callable[[AnswerT], Document]) -> Document:
    """Render what one node answered, or how it failed."""
    if node.answer is not None:
        return {"addr": node.addr, **to_answer(node.answer)}
    return {"addr": node.addr, "error": to_complaint(node.failure).to_document() if node.failure else None}


def _to_node_brokers(answer: NodeBrokers) -> Document:
    return {
        "node": answer.node,
        "nodeState": node_state_words(answer.info.state) if answer.info else None,
        "brokers": [to_status_document(status) for status in answer.brokers],
        "conditions": [
            {"cluster": cluster, "brokerName": broker_name, "condition": NO_MASTER}
            for cluster, broker_name in missing_masters(answer.brokers)
        ],
        "guards": [to_guard_document(guard) for guard in answer.info.guards] if answer.info else [],
        "gone": [
            {
                "cluster": score.cluster,
                "brokerName": score.broker_name,
                "brokerId": score.broker_id,
                "lastEvent": score.last_event,
                "lastEventAgoSeconds": seconds_of(score.last_event_ago),
            }
            for score in answer.gone
        ],
    }


def to_guard_document(guard: admin_service_pb2.GuardStatus) -> Document:
    """Render the guard of one cluster."""
    return {
        "cluster": guard.cluster,
        "mode": guard_mode_words(guard.mode),
        "active": guard.active,
        "lost": guard.lost,
        "baseline": guard.baseline,
        "up": guard.up,
        "activeForSeconds": seconds_of(guard.active_for) if guard.active else None,
        "reason": guard.reason,
        "modeRemainingSeconds": seconds_of(guard.mode_remaining) if guard.HasField("mode_remaining") else None,
    }


def to_status_document(status: broker_pb2.BrokerStatus) -> Document:
    """Render a replica."""
    health, version = status.health, status.data_version
    return {
        "cluster": status.identity.cluster,
        "brokerName": status.identity.broker_name,
        "brokerId": status.identity.broker_id,
        "brokerAddr": status.identity.addr,
        "state": str(to_broker_state(status.state)),
        "generation": str(status.generation),
        "haAddr": status.ha_addr,
        "agentAddr": status.agent_addr,
        "zoneName": status.zone,
        "host": status.host,
        "labels": dict(status.labels),
        "brokerVersion": status.broker_version,
        "agentVersion": status.agent_version,
        "incarnation": status.incarnation,
        "dataVersion": {
            "stateVersion": str(version.state_version),
            "timestampMillis": version.timestamp_millis,
            "counter": str(version.counter),
        },
        "topicCount": status.topic_count,
        "bringsTopics": status.brings_topics,
        "heartbeatIntervalSeconds": seconds_of(status.heartbeat_interval),
        "expirySeconds": seconds_of(status.expiry),
        "registeredAt": utc_text(status.registered_at),
        "silenceSeconds": seconds_of(status.silence),
        "streamOpen": status.stream_open,
        "probe": broker_pb2.ProbeStatus.Name(health.status).removeprefix("PROBE_STATUS_"),
        "probeDetail": health.detail,
        "probeEvidence": broker_pb2.ProbeEvidence.Name(health.evidence).removeprefix("PROBE_EVIDENCE_"),
        "probeEverPassed": health.ever_passed if health.HasField("ever_passed") else None,
        "enableActingMaster": status.acting_master,
        "reason": status.reason,
        "planned": status.planned,
        "stateForSeconds": seconds_of(status.state_for) if status.HasField("state_for") else None,
        "rule": status.rule,
        "writeWiped": status.write_wiped,
        "inMaintenance": status.in_maintenance,
        "penalty": status.penalty,
    }
