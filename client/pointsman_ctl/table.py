"""Answers as tables for operators: plain text when piped, conditions spelled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman_client.core.route import BrokerData, BrokerState, ClusterData, TopicRoute
from pointsman_client.routes.codec import to_broker_state
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.condition import is_flapping, missing_masters
from pointsman_ctl.layout import ALARM, WARNING, failure_line, new_table, node_heading, state_cell
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import NodeBrokers
from pointsman_ctl.wording import (
    duration_words,
    evidence_words,
    guard_words,
    node_state_words,
    perm_words,
    printable,
    reason_words,
)

MOST_GONE = 5
"""Brokers that left which a node's list names; the rest is a number."""


def route_parts(route: TopicRoute) -> Iterable[RenderableType]:
    """Show where a topic is, or why none of its brokers is up."""
    if route.absent_brokers:
        table = new_table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", "REASON", "SINCE", right=("ID",))
        for broker in route.absent_brokers:
            state = "OUT" if broker.is_registered else "GONE"
            since = f"{broker.since:%Y-%m-%dT%H:%M:%SZ}" if broker.since else "-"
            who = (broker.cluster, broker.broker_name, str(broker.broker_id), broker.addr)
            table.add_row(*map(printable, who), state, printable(broker.reason) or "-", since)
        yield table
        return
    if not (route.queue_datas or route.broker_datas):
        yield Text("brokers have it, but none in the cluster and zone that was asked for", style=WARNING)
        return
    queues = new_table("CLUSTER", "BROKER", "READ", "WRITE", "PERM", right=("READ", "WRITE"))
    for data in route.queue_datas:
        counts = (str(data.read_queue_nums), str(data.write_queue_nums))
        queues.add_row(data.cluster, data.broker_name, *counts, perm_words(data.perm))
    yield queues
    yield ""
    yield _group_table(route.broker_datas)
    if route.order_topic_conf:
        yield ""
        yield Text(f"order topic: {printable(route.order_topic_conf)}")


def clusters_parts(clusters: Sequence[ClusterData]) -> Iterable[RenderableType]:
    """Show the clusters and their groups."""
    if not clusters:
        yield Text("no broker is registered")
        return
    yield _group_table([data for cluster in clusters for data in cluster.broker_datas])


def topics_parts(topics: Sequence[str]) -> Iterable[RenderableType]:
    """Show the names, one a line and nothing else, so that they can be piped on."""
    return [Text(topic) for topic in topics]


def brokers_parts(nodes: Sequence[NodeAnswer[NodeBrokers]]) -> Iterable[RenderableType]:
    """Show each node's brokers under the node's name, what is wrong or set below them, and their number."""
    for position, node in enumerate(nodes):
        if node.answer is None:
            yield from node_heading(position, node.addr, "")
            yield failure_line(node)
            continue
        info, brokers = node.answer.info, node.answer.brokers
        state = node_state_words(info.state) if info else ""
        yield from node_heading(position, node.addr, node.answer.node, state="" if state == "READY" else state)
        if not brokers:
            yield Text("no broker is registered")
        else:
            yield _status_table(brokers)
            yield from _remarks(brokers)
        yield from _gone(node.answer.gone)
        if info:
            clusters = {status.identity.cluster for status in brokers}
            for guard in info.guards:
                if guard.cluster in clusters and (guard.active or guard.mode != admin_service_pb2.GUARD_MODE_AUTO):
                    yield Text(guard_words(guard), style=ALARM if guard.active else WARNING)
        if brokers:
            yield Text(_summary(brokers), style="dim")


def _remarks(brokers: Sequence[broker_pb2.BrokerStatus]) -> Iterable[RenderableType]:
    for cluster, broker_name in missing_masters(brokers):
        yield Text(f"NO MASTER in {cluster}/{broker_name}: it cannot be written", style=ALARM)
    for status in brokers:
        if status.health.status == broker_pb2.PROBE_STATUS_FAILING:
            detail = printable(status.health.detail) or "no detail"
            yield Text(f"PROBE FAILED of {_who(status)}: {detail} ({evidence_words(status.health)})", style=ALARM)
    yield from _remark("WRITE WIPED", brokers, lambda status: status.write_wiped, _group_name)
    yield from _remark("IN MAINTENANCE", brokers, lambda status: status.in_maintenance, _who)
    flappers = sorted(filter(is_flapping, brokers), key=lambda status: -status.penalty)
    if flappers:
        named = (f"{_who(status)} ({status.penalty:.0f})" for status in flappers)
        yield Text(f"FLAP PENALTY: {', '.join(named)}", style=WARNING)


def _gone(gone: Sequence[admin_service_pb2.FlapScore]) -> Iterable[RenderableType]:
    if gone:
        named = [
            f"{score.cluster}/{score.broker_name} {score.broker_id} "
            f"({printable(score.last_event)} {duration_words(seconds_of(score.last_event_ago))} ago)"
            for score in gone[:MOST_GONE]
        ]
        more = f" and {len(gone) - MOST_GONE} more: see `pointsmanctl flapping`" if len(gone) > MOST_GONE else ""
        yield Text(f"GONE: {', '.join(named)}{more}", style=ALARM)


def _remark(
    word: str,
    brokers: Iterable[broker_pb2.BrokerStatus],
    has: Callable[[broker_pb2.BrokerStatus], bool],
    name: Callable[[broker_pb2.BrokerStatus], str],
) -> Iterable[RenderableType]:
    names = dict.fromkeys(name(status) for status in brokers if has(status))
    if names:
        yield Text(f"{word}: {', '.join(names)}", style=WARNING)


def _group_name(status: broker_pb2.BrokerStatus) -> str:
    return f"{status.identity.cluster}/{status.identity.broker_name}"


def _who(status: broker_pb2.BrokerStatus) -> str:
    return f"{_group_name(status)} {status.identity.broker_id}"


def _summary(brokers: Sequence[broker_pb2.BrokerStatus]) -> str:
    clusters = len({status.identity.cluster for status in brokers})
    states = Counter(str(to_broker_state(status.state)) for status in brokers)
    counts = ", ".join(f"{states[state]} {state}" for state in BrokerState if states[state])
    return (
        f"{len(brokers)} broker{'s' if len(brokers) != 1 else ''} in {clusters} "
        f"cluster{'s' if clusters != 1 else ''}: {counts}"
    )


def _status_table(brokers: Sequence[broker_pb2.BrokerStatus]) -> Table:
    has_reasons = any(status.reason for status in brokers)
    reason = ("REASON",) if has_reasons else ()
    table = new_table(
        *("CLUSTER", "BROKER", "ID", "ADDR", "STATE", *reason, "HEARTBEAT", "TOPICS"),
        right=("ID", "HEARTBEAT", "TOPICS"),
    )
    for status in brokers:
        table.add_row(
            status.identity.cluster,
            status.identity.broker_name,
            str(status.identity.broker_id),
            status.identity.addr,
            state_cell(to_broker_state(status.state)),
            *((reason_words(status),) if has_reasons else ()),
            duration_words(seconds_of(status.silence)),
            str(status.topic_count),
        )
    return table


def _group_table(groups: Sequence[BrokerData]) -> Table:
    has_zones = any(data.zone for data in groups)
    table = new_table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", *(("ZONE",) if has_zones else ()), right=("ID",))
    for data in groups:
        for condition in _conditions(data):
            table.add_row(data.cluster, data.broker_name, "0", "-", Text(condition, style=ALARM))
        for replica in data.replicas:
            zone = (printable(data.zone),) if has_zones else ()
            name = (data.cluster, data.broker_name, str(replica.broker_id))
            table.add_row(*name, printable(replica.addr), state_cell(replica.state), *zone)
    return table


def _conditions(data: BrokerData) -> Iterable[str]:
    if not data.replicas:
        yield "NO BROKER"
    elif data.master is None:
        yield f"NO MASTER, {data.replicas[0].broker_id} ACTS" if data.acting_master else "NO MASTER"
