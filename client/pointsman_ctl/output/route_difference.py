"""The difference of two routes of a topic as lines that begin with +, - or ~. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pointsman.names import printable
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import enum_name
from pointsman.wire.operator_texts import logical_queues_text, perm_text
from pointsman_ctl.output.output_layout import ALARM

UNWEIGHTED = ("queue weight", "1")
"""Of most queues: shown only where it changes."""
DIFFERENCE_STYLES = {"+": "green", "-": ALARM, "~": "yellow"}
Key = tuple[str | int, ...]


def route_difference(old: route_service_pb2.TopicRoute, new: route_service_pb2.TopicRoute) -> list[str]:
    """Return a line for each change; none if only fields unknown to this version changed."""
    return [
        *_lines(_queues(old), _queues(new)),
        *_lines(_replicas(old), _replicas(new)),
        *_lines(_groups(old), _groups(new)),
        *_changes("order topic", [("", old.order_topic_conf, new.order_topic_conf)]),
        *_lines(_static_topic(old), _static_topic(new)),
    ]


def _queues(route: route_service_pb2.TopicRoute) -> dict[Key, dict[str, str]]:
    def facts(data: route_service_pb2.QueueData) -> dict[str, str]:
        return {
            "read queues": str(data.read_queue_nums),
            "write queues": str(data.write_queue_nums),
            "perm": perm_text(data.perm),
            UNWEIGHTED[0]: str(data.queue_weight or 1),
        }

    return {("queues of", data.cluster, data.broker_name): facts(data) for data in route.queue_datas}


def _replicas(route: route_service_pb2.TopicRoute) -> dict[Key, dict[str, str]]:
    def facts(replica: broker_pb2.BrokerReplica) -> dict[str, str]:
        return {
            "addr": replica.addr,
            "state": enum_name(replica, "state"),
            "ha addr": replica.ha_addr,
            "agent addr": replica.agent_addr,
            "filter servers": ",".join(replica.filter_servers),
        }

    return {
        ("broker", data.cluster, data.broker_name, replica.broker_id): facts(replica)
        for data in route.broker_datas
        for replica in data.replicas
    }


def _groups(route: route_service_pb2.TopicRoute) -> dict[Key, dict[str, str]]:
    # Replicas show when a group appears or disappears; only changes of an existing group are listed.
    return {
        ("group", data.cluster, data.broker_name): {
            "zone": data.zone,
            "acting master": "yes" if data.acting_master else "no",
        }
        for data in route.broker_datas
    }


def _static_topic(route: route_service_pb2.TopicRoute) -> dict[Key, dict[str, str]]:
    def facts(mapping: broker_pb2.StaticTopicMapping) -> dict[str, str]:
        return {
            "queues": logical_queues_text(mapping),
            "total": str(mapping.total_queues),
            "epoch": str(mapping.epoch),
            "scope": mapping.scope,
            "dirty": "yes" if mapping.dirty else "no",
        }

    return {
        ("logical queues of", mapping.cluster, mapping.broker_name): facts(mapping)
        for mapping in route.static_topic_mappings
    }


def _lines(old: Mapping[Key, dict[str, str]], new: Mapping[Key, dict[str, str]]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys(), key=lambda key: tuple(str(part).zfill(10) for part in key)):
        before, after = old.get(key), new.get(key)
        if before is not None and after is not None:
            yield from _changes(_name(key), [(fact, before[fact], after[fact]) for fact in after])
        elif key[0] != "group":
            facts = after if after is not None else before or {}
            text = ", ".join(
                f"{fact} {printable(value)}" for fact, value in facts.items() if value and (fact, value) != UNWEIGHTED
            )
            yield f"{'+' if after is not None else '-'} {_name(key)}: {text}"


def _changes(name: str, facts: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    changed = [
        f"{fact} {printable(before) or 'none'} -> {printable(after) or 'none'}".lstrip()
        for fact, before, after in facts
        if before != after
    ]
    if changed:
        yield f"~ {name}: {', '.join(changed)}"


def _name(key: Key) -> str:
    kind, cluster, broker_name, *rest = key
    return " ".join([f"{kind} {cluster}/{broker_name}", *map(str, rest)])
