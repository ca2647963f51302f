"""Answers as tables for people: fit 80 columns, plain text when piped, conditions spelled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from google.protobuf.json_format import MessageToDict
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman_client.ctl.condition import is_flapping, missing_masters
from pointsman_client.ctl.layout import ALARM, WARNING, failure_line, new_table, node_heading, state_cell
from pointsman_client.ctl.node import NodeAnswer
from pointsman_client.ctl.question import NodeBrokers
from pointsman_client.ctl.wording import (
    detail_words,
    duration_words,
    explanation,
    guard_words,
    node_state_words,
    perm_words,
    printable,
    time_words,
)
from pointsman_client.route import BrokerData, BrokerState, ClusterData, TopicRoute
from pointsman_client.routes.codec import to_broker_state
from pointsman_client.rpc.wire_time import seconds_of, utc_of

MOST_GONE = 5
"""Brokers that left which a node's list names; the rest is a number."""

_EVENT_STYLES = {"EXPIRED": "bold red", "PROBE_FAILED": "bold red", "REJECTED": "red", "SUSPECTED": "yellow"}


def route_parts(route: TopicRoute) -> Iterable[RenderableType]:
    """Show where a topic is."""
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
        if status.state == broker_pb2.BROKER_STATE_OUT:
            yield Text(f"PROBE FAILED of {_who(status)}: {printable(status.health.detail) or 'no detail'}", style=ALARM)
    protected = [status for status in brokers if status.state == broker_pb2.BROKER_STATE_PROTECTED]
    for reason in sorted({status.reason for status in protected}):
        kept = [_who(status) for status in protected if status.reason == reason]
        yield Text(f"PROTECTED from {printable(reason)}: {', '.join(kept)}", style="magenta")
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


def events_parts(nodes: Sequence[NodeAnswer[admin_service_pb2.ListBrokerEventsResponse]]) -> Iterable[RenderableType]:
    """Show each node's last events of a broker, each with a line that says what it means."""
    for position, node in enumerate(nodes):
        yield from node_heading(position, node.addr, node.answer.node if node.answer else "")
        if node.answer is None:
            yield failure_line(node)
        elif not node.answer.events:
            yield Text("no event of it is remembered here")
        else:
            yield from _event_lines(node.answer.events)


def _event_lines(events: Sequence[admin_service_pb2.BrokerEvent]) -> Iterable[RenderableType]:
    rows = [("TIME (UTC)", "EVENT", "REASON", "ID", "SILENCE")]
    rows += [
        (
            time_words(utc_of(event.event_at)),
            printable(event.event),
            printable(event.reason) or "-",
            str(event.identity.broker_id) if event.identity.addr else "-",
            duration_words(seconds_of(event.interval)) if event.HasField("interval") else "-",
        )
        for event in events
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield _line(rows[0], widths, style="bold")
    for row, event in zip(rows[1:], events, strict=True):
        yield _line(row, widths, style=_EVENT_STYLES.get(event.event, ""))
        detail = MessageToDict(event.detail)
        words = [explanation(event.event, event.reason, detail), detail_words(detail)]
        sentence = "; ".join(word for word in words if word)
        # An event of a whole group has no address.
        where = ", ".join(filter(None, (event.identity.cluster, printable(event.identity.addr))))
        yield Padding(Text(f"{where}: {sentence}" if sentence else where, style="dim"), (0, 0, 0, 4), expand=False)


def _line(row: Sequence[str], widths: Sequence[int], *, style: str) -> Text:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return Text("  ".join(cells), style=style)


def _status_table(brokers: Iterable[broker_pb2.BrokerStatus]) -> Table:
    table = new_table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", "SILENT", "TOPICS", right=("ID", "SILENT", "TOPICS"))
    for status in brokers:
        table.add_row(
            status.identity.cluster,
            status.identity.broker_name,
            str(status.identity.broker_id),
            status.identity.addr,
            state_cell(to_broker_state(status.state)),
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
