"""What operators set, as JSON documents: KV configuration, order topics, guards, maintenance. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.document import to_guard_document, to_node_document
from pointsman_ctl.node import NodeAnswer

KvNodes = Iterable[NodeAnswer[admin.ListKvResponse]]


def value_of(answer: admin.ListKvResponse, key: str) -> str | None:
    """Return the value of a key of the namespace that was asked for."""
    return next((entry.value for entry in answer.entries if entry.key == key), None)


def to_kv_document(nodes: KvNodes) -> Document:
    """Render each node's keys."""

    def entries(answer: admin.ListKvResponse) -> Document:
        return {
            "node": answer.node,
            "entries": [
                {"namespace": entry.namespace, "key": entry.key, "value": entry.value} for entry in answer.entries
            ],
        }

    return {"nodes": [to_node_document(node, entries) for node in nodes]}


def to_value_document(nodes: KvNodes, key: str) -> Document:
    """Render each node's value of one key."""

    def value(answer: admin.ListKvResponse) -> Document:
        return {"node": answer.node, "value": value_of(answer, key)}

    return {"nodes": [to_node_document(node, value) for node in nodes]}


def to_order_topics_document(nodes: KvNodes) -> Document:
    """Render each node's order topics."""

    def order_topics(answer: admin.ListKvResponse) -> Document:
        return {
            "node": answer.node,
            "orderTopics": [{"topic": entry.key, "orderTopicConf": entry.value} for entry in answer.entries],
        }

    return {"nodes": [to_node_document(node, order_topics) for node in nodes]}


def to_guards_document(nodes: Iterable[NodeAnswer[admin.GetNodeInfoResponse]], cluster: str) -> Document:
    """Render each node's guards, or that of one cluster."""

    def guards(answer: admin.GetNodeInfoResponse) -> Document:
        shown = [guard for guard in answer.guards if cluster in {"", guard.cluster}]
        return {"node": answer.node, "guards": [to_guard_document(guard) for guard in shown]}

    return {"nodes": [to_node_document(node, guards) for node in nodes]}


def to_maintenance_document(nodes: Iterable[NodeAnswer[admin.ListMaintenanceResponse]]) -> Document:
    """Render each node's open maintenance windows."""

    def windows(answer: admin.ListMaintenanceResponse) -> Document:
        return {
            "node": answer.node,
            "windows": [
                {
                    "cluster": window.cluster,
                    "brokerName": window.broker_name,
                    "remainingSeconds": seconds_of(window.remaining),
                    "note": window.note,
                    "by": window.by,
                }
                for window in answer.windows
            ],
        }

    return {"nodes": [to_node_document(node, windows) for node in nodes]}
