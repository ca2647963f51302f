"""Differences of two name servers in route digests and operator settings, as JSON and as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import route_service_pb2
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted, duration_text
from pointsman_ctl.output.output_layout import WARNING, new_table
from pointsman_ctl.servers.name_servers import Key, NodeDigests, NodeSettings, Setting
from pointsman_ctl.servers.rocketmq_name_server import TopicRoutes


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One setting on which servers differ."""

    key: Key
    at: Mapping[str, Setting | None]
    """By address; None: not set there."""

    @property
    def label(self) -> str:
        """Kind and name of the setting, e.g. ``guard c1``."""
        return setting_label(self.key)


def setting_differences(nodes: Mapping[str, NodeSettings]) -> list[SettingDifference]:
    """Return the settings on which servers differ, sorted by kind and name; ``nodes`` is by address."""
    differences = []
    for key in sorted({key for settings in nodes.values() for key in settings}):
        at = {addr: settings.get(key) for addr, settings in nodes.items()}
        first = next(iter(at.values()))
        if not all(each is first or (each and first and first.is_same(each)) for each in at.values()):
            differences.append(SettingDifference(key, at))
    return differences


@dataclass(frozen=True, slots=True)
class DigestDifference:
    """Topics on which two nodes differ, sorted."""

    differing: tuple[str, ...]
    """Both have a route, with different digests."""
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the nodes agree on all topics."""
        return not (self.differing or self.only_first or self.only_second)


def digest_difference(first: NodeDigests, second: NodeDigests) -> DigestDifference:
    """Compare two nodes' routes."""
    ours, theirs = first.digests, second.digests
    return DigestDifference(
        differing=tuple(sorted(topic for topic in ours.keys() & theirs.keys() if ours[topic] != theirs[topic])),
        only_first=tuple(sorted(ours.keys() - theirs.keys())),
        only_second=tuple(sorted(theirs.keys() - ours.keys())),
    )


def comparable(node: TopicRoutes) -> dict[str, route_service_pb2.TopicRoute]:
    """Reduce routes to what name servers of both kinds have: queues, permissions, and addresses of brokers."""
    return {topic: _comparable(route) for topic, route in node.routes.items()}


def to_digests(node: TopicRoutes) -> NodeDigests:
    """Return digests of what name servers of both kinds have."""
    digests = {topic: route.SerializeToString(deterministic=True) for topic, route in comparable(node).items()}
    return NodeDigests(node.node, node.state, digests)


def _comparable(route: route_service_pb2.TopicRoute) -> route_service_pb2.TopicRoute:
    reduced = route_service_pb2.TopicRoute(topic=route.topic)
    for data in sorted(route.queue_datas, key=lambda each: (each.cluster, each.broker_name)):
        reduced.queue_datas.add(
            cluster=data.cluster,
            broker_name=data.broker_name,
            read_queue_nums=data.read_queue_nums,
            write_queue_nums=data.write_queue_nums,
            perm=data.perm,
        )
    for group in sorted(route.broker_datas, key=lambda each: (each.cluster, each.broker_name)):
        added = reduced.broker_datas.add(cluster=group.cluster, broker_name=group.broker_name)
        for replica in sorted(group.replicas, key=lambda each: each.broker_id):
            added.replicas.add(broker_id=replica.broker_id, addr=replica.addr)
    return reduced


def to_difference_document(
    addrs: tuple[str, str],
    sides: tuple[NodeDigests, NodeDigests],
    difference: DigestDifference,
    settings: Sequence[SettingDifference],
) -> Document:
    """Render the differences of two nodes."""

    def side(addr: str, digests: NodeDigests) -> Document:
        return {"addr": addr, "node": digests.node, "nodeState": digests.state, "topicCount": len(digests.digests)}

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
                "first": setting_document(each.at[addrs[0]]),
                "second": setting_document(each.at[addrs[1]]),
            }
            for each in settings
        ],
    }


def setting_document(setting: Setting | None) -> Document | None:
    """Render a setting at one server; None: not set there."""
    if setting is None:
        return None
    return {"value": setting.value, "remainingSeconds": setting.remaining_seconds}


def difference_parts(
    addrs: tuple[str, str],
    sides: tuple[NodeDigests, NodeDigests],
    difference: DigestDifference,
    settings: Sequence[SettingDifference],
) -> Iterable[RenderableType]:
    """Show the topics and settings on which two nodes differ."""
    first, second = addrs
    found = [(topic, "differs") for topic in difference.differing]
    found += [(topic, f"only at {first}") for topic in difference.only_first]
    found += [(topic, f"only at {second}") for topic in difference.only_second]
    if found:
        table = new_table("TOPIC", "DIFFERENCE")
        for topic, text in sorted(found):
            table.add_row(printable(topic), text)
        yield table
    ours, theirs = len(sides[0].digests), len(sides[1].digests)
    counts = f"{counted(ours, 'topic')} at {first}, {theirs} at {second}"
    result = f"{len(found)} differ{'s' if len(found) == 1 else ''}" if found else "equal"
    yield Text(f"{counts}: {result}", style=WARNING if found else "green")
    if settings:
        table = new_table("SETTING", *addrs)
        for each in settings:
            table.add_row(printable(each.label), *(setting_text(each.at[addr]) for addr in addrs))
        yield table
    settled = sides[0].settings.keys() | sides[1].settings.keys()
    result = f"{len(settings)} of {len(settled)} differ" if settings else f"{len(settled)} equal"
    if settled:
        yield Text(f"operator settings: {result}", style=WARNING if settings else "green")
    for addr, side in zip(addrs, sides, strict=True):
        if side.state == "WARMING":
            yield Text(f"{addr} is WARMING: some brokers may not have registered yet", style=WARNING)


def setting_label(key: Key) -> str:
    """Return kind and name of a setting, e.g. ``guard c1``."""
    return f"{key[0].lower().replace('_', ' ')} {'/'.join(part for part in key[1:] if part)}"


def setting_text(setting: Setting | None) -> str:
    """Show the value of a setting at one server, and for how long it applies."""
    if setting is None:
        return "not set"
    remaining = "" if setting.remaining_seconds is None else f" for {duration_text(setting.remaining_seconds)}"
    return f"{printable(setting.value) or 'set'}{remaining}"
