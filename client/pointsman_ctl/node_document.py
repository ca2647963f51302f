"""What nodes say of themselves, as JSON documents: information, flapping, watchers, digests. Pure.

64-bit numbers that a JavaScript reader would round (boot) are text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.digest_difference import DigestDifference
from pointsman_ctl.document import to_guard_document, to_node_document
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import NodeDigests
from pointsman_ctl.setting_difference import Setting, SettingDifference
from pointsman_ctl.wording import node_state_words

InfoNodes = Iterable[NodeAnswer[admin.GetNodeInfoResponse]]


def to_info_document(nodes: InfoNodes) -> Document:
    """Render what each node says of itself."""
    return {"nodes": [to_node_document(node, _to_info) for node in nodes]}


def _to_info(answer: admin.GetNodeInfoResponse) -> Document:
    return {
        "node": answer.node,
        "version": answer.version,
        "nodeState": node_state_words(answer.state),
        "boot": f"{answer.boot:016x}",
        "uptimeSeconds": seconds_of(answer.uptime),
        "provisionalBrokers": answer.provisional_brokers,
        "sizes": dict(sorted(answer.sizes.items())),
        "guards": [to_guard_document(guard) for guard in answer.guards],
        "complaints": list(answer.complaints),
        "configuration": answer.configuration,
    }


def to_health_document(nodes: InfoNodes) -> Document:
    """Render what each node may be asked."""

    def health(answer: admin.GetNodeInfoResponse) -> Document:
        return {
            "node": answer.node,
            "nodeState": node_state_words(answer.state),
            "provisionalBrokers": answer.provisional_brokers,
            "complaints": list(answer.complaints),
        }

    return {"nodes": [to_node_document(node, health) for node in nodes]}


def to_flapping_document(nodes: Iterable[NodeAnswer[admin.ListFlappingResponse]]) -> Document:
    """Render each node's penalties, the highest first."""

    def scores(answer: admin.ListFlappingResponse) -> Document:
        return {
            "node": answer.node,
            "scores": [
                {
                    "cluster": score.cluster,
                    "brokerName": score.broker_name,
                    "brokerId": score.broker_id,
                    "penalty": score.penalty,
                    "flapping": score.flapping,
                    "outages": score.outages,
                    "lastEvent": score.last_event,
                    "lastEventAgoSeconds": seconds_of(score.last_event_ago),
                }
                for score in answer.scores
            ],
        }

    return {"nodes": [to_node_document(node, scores) for node in nodes]}


def to_watchers_document(topic: str, nodes: Iterable[NodeAnswer[admin.ListWatchersResponse]]) -> Document:
    """Render who watches a topic at each node."""

    def watchers(answer: admin.ListWatchersResponse) -> Document:
        return {
            "node": answer.node,
            "total": answer.total,
            "watchers": [
                {
                    "peer": watcher.peer,
                    "ageSeconds": seconds_of(watcher.age),
                    "topics": watcher.topics,
                    "pending": watcher.pending,
                    "lagSeconds": seconds_of(watcher.lag),
                }
                for watcher in answer.watchers
            ],
        }

    return {"topic": topic, "nodes": [to_node_document(node, watchers) for node in nodes]}


def to_difference_document(
    addrs: tuple[str, str],
    sides: tuple[NodeDigests, NodeDigests],
    difference: DigestDifference,
    settings: Sequence[SettingDifference],
) -> Document:
    """Render where two nodes differ."""

    def side(addr: str, digests: NodeDigests) -> Document:
        return {
            "addr": addr,
            "node": digests.node,
            "nodeState": node_state_words(digests.state),
            "topicCount": len(digests.digests),
        }

    return {
        "equal": difference.is_empty and not settings,
        "first": side(addrs[0], sides[0]),
        "second": side(addrs[1], sides[1]),
        "differing": list(difference.differing),
        "onlyFirst": list(difference.only_first),
        "onlySecond": list(difference.only_second),
        "settings": [
            {
                "kind": each.key[0],
                "name": list(each.key[1:]),
                "first": _setting(each.at[addrs[0]]),
                "second": _setting(each.at[addrs[1]]),
            }
            for each in settings
        ],
    }


def _setting(setting: Setting | None) -> Document | None:
    if setting is None:
        return None
    return {"value": setting.value, "remainingSeconds": setting.remaining_seconds}
