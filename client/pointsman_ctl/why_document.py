"""``pointsmanctl why`` as a JSON document: replicas, guards, outages, events. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.json_format import MessageToDict

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import moment_text, seconds_of, utc_text
from pointsman_ctl.document import to_guard_document, to_node_document, to_status_document
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import BrokerHistory
from pointsman_ctl.timeline import Outage


def to_why_document(broker_name: str, nodes: Iterable[NodeAnswer[BrokerHistory]], *, limit: int) -> Document:
    """Render what each node knows of a broker name; of its events the last ``limit``, oldest first."""

    def history(answer: BrokerHistory) -> Document:
        return {
            "node": answer.node,
            "brokers": [to_status_document(status) for status in answer.brokers],
            "guards": [
                to_guard_document(answer.guards[cluster])
                for cluster in sorted({status.identity.cluster for status in answer.brokers} & set(answer.guards))
            ],
            "outages": [_to_outage(outage) for outage in answer.timeline.outages],
            "events": [_to_event(step.event) for step in answer.timeline.events[-limit:]],
        }

    return {"brokerName": broker_name, "nodes": [to_node_document(node, history) for node in nodes]}


def _to_outage(outage: Outage) -> Document:
    cluster, broker_name, broker_id = outage.position
    return {
        "cluster": cluster,
        "brokerName": broker_name,
        "brokerId": broker_id,
        "beganAt": moment_text(outage.began_at),
        "beginKnown": outage.is_begin_known,
        "endedAt": moment_text(outage.ended_at) if outage.ended_at else None,
        "seconds": outage.seconds,
        "planned": outage.is_planned,
        "plannedSeconds": outage.planned_seconds,
        "newProcess": outage.has_new_process,
    }


def _to_event(event: admin.BrokerEvent) -> Document:
    return {
        "eventAt": utc_text(event.event_at),
        "event": event.event,
        "reason": event.reason,
        "cluster": event.identity.cluster,
        "brokerName": event.identity.broker_name,
        "brokerId": event.identity.broker_id,
        "brokerAddr": event.identity.addr,
        "generation": str(event.generation),
        "incarnation": event.incarnation,
        "silenceSeconds": seconds_of(event.interval) if event.HasField("interval") else None,
        "state": event.state,
        "planned": event.planned,
        "seq": event.seq,
        "detail": _whole_numbers(MessageToDict(event.detail)),
    }


def _whole_numbers(value: object) -> object:
    # A protobuf Struct knows only doubles; the history has 4 where it would show 4.0.
    if isinstance(value, dict):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
