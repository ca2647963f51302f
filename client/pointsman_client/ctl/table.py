"""Answers as tables for people: fit 80 columns, plain text when piped, conditions spelled out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from io import StringIO

from google.protobuf.json_format import MessageToDict
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman_client.codec import to_broker_state
from pointsman_client.ctl.condition import missing_masters
from pointsman_client.ctl.failure import to_complaint
from pointsman_client.ctl.node import NodeAnswer
from pointsman_client.ctl.wire_time import seconds_of, utc_of
from pointsman_client.ctl.wording import (
    detail_words,
    duration_words,
    explanation,
    perm_words,
    printable,
    time_words,
)
from pointsman_client.route import BrokerData, BrokerState, ClusterData, TopicRoute

PIPED_WIDTH = 10_000
"""Wide enough that no row breaks: what reads a pipe wants one row a line."""

_STATE_STYLES = {
    BrokerState.UP: "green",
    BrokerState.SUSPECT: "yellow",
    BrokerState.PROVISIONAL: "yellow",
    BrokerState.PROTECTED: "magenta",
    BrokerState.PROBE_FAILED: "bold red",
}
_EVENT_STYLES = {"EXPIRED": "bold red", "PROBE_FAILED": "bold red", "REJECTED": "red", "SUSPECTED": "yellow"}
_ALARM = "bold red"


def show(parts: Iterable[RenderableType]) -> None:
    """Print to standard output, coloured on a terminal only, without blanks at the ends of lines."""
    is_piped = not sys.stdout.isatty()
    width = PIPED_WIDTH if is_piped and "COLUMNS" not in os.environ else None
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    for line in StringIO(captured.get()):
        sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def route_parts(route: TopicRoute) -> Iterable[RenderableType]:
    """Show where a topic is."""
    queues = _table("CLUSTER", "BROKER", "READ", "WRITE", "PERM", right=("READ", "WRITE"))
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


def brokers_parts(nodes: Sequence[NodeAnswer[admin_service_pb2.ListBrokersResponse]]) -> Iterable[RenderableType]:
    """Show each node's brokers under the node's name."""
    for position, node in enumerate(nodes):
        yield from _node_heading(position, node.addr, node.answer.node if node.answer else "")
        if node.answer is None:
            yield _failure_line(node)
            continue
        if not node.answer.brokers:
            yield Text("no broker is registered")
            continue
        yield _status_table(node.answer.brokers)
        for cluster, broker_name in missing_masters(node.answer.brokers):
            yield Text(f"NO MASTER in {cluster}/{broker_name}: it cannot be written", style=_ALARM)
        for status in node.answer.brokers:
            if status.state == broker_pb2.BROKER_STATE_PROBE_FAILED:
                who = f"{status.identity.cluster}/{status.identity.broker_name} {status.identity.broker_id}"
                yield Text(f"PROBE FAILED of {who}: {printable(status.health.detail) or 'no detail'}", style=_ALARM)


def events_parts(nodes: Sequence[NodeAnswer[admin_service_pb2.ListBrokerEventsResponse]]) -> Iterable[RenderableType]:
    """Show each node's last events of a broker, each with a line that says what it means."""
    for position, node in enumerate(nodes):
        yield from _node_heading(position, node.addr, node.answer.node if node.answer else "")
        if node.answer is None:
            yield _failure_line(node)
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
            str(event.identity.broker_id),
            duration_words(seconds_of(event.interval)) if event.HasField("interval") else "-",
        )
        for event in events
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield _line(rows[0], widths, style="bold")
    for row, event in zip(rows[1:], events, strict=True):
        yield _line(row, widths, style=_EVENT_STYLES.get(event.event, ""))
        words = [explanation(event.event, event.reason), detail_words(MessageToDict(event.detail))]
        sentence = "; ".join(word for word in words if word)
        where = f"{event.identity.cluster}, {event.identity.addr}"
        yield Padding(Text(f"{where}: {sentence}" if sentence else where, style="dim"), (0, 0, 0, 4), expand=False)


def _line(row: Sequence[str], widths: Sequence[int], *, style: str) -> Text:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return Text("  ".join(cells), style=style)


def _status_table(brokers: Iterable[broker_pb2.BrokerStatus]) -> Table:
    table = _table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", "SILENT", "TOPICS", right=("ID", "SILENT", "TOPICS"))
    for status in brokers:
        table.add_row(
            status.identity.cluster,
            status.identity.broker_name,
            str(status.identity.broker_id),
            status.identity.addr,
            _state(to_broker_state(status.state)),
            duration_words(seconds_of(status.silence)),
            str(status.topic_count),
        )
    return table


def _group_table(groups: Sequence[BrokerData]) -> Table:
    has_zones = any(data.zone for data in groups)
    table = _table("CLUSTER", "BROKER", "ID", "ADDR", "STATE", *(("ZONE",) if has_zones else ()), right=("ID",))
    for data in groups:
        for condition in _conditions(data):
            table.add_row(data.cluster, data.broker_name, "0", "-", Text(condition, style=_ALARM))
        for replica in data.replicas:
            zone = (printable(data.zone),) if has_zones else ()
            name = (data.cluster, data.broker_name, str(replica.broker_id))
            table.add_row(*name, printable(replica.addr), _state(replica.state), *zone)
    return table


def _conditions(data: BrokerData) -> Iterable[str]:
    if not data.replicas:
        yield "NO BROKER"
    elif data.master is None:
        yield f"NO MASTER, {data.replicas[0].broker_id} ACTS" if data.acting_master else "NO MASTER"


def _node_heading(position: int, addr: str, node: str) -> Iterable[RenderableType]:
    if position:
        yield ""
    name = f" ({printable(node)})" if node and node != addr else ""
    yield Text(f"node {addr}{name}", style="bold")


def _failure_line(node: NodeAnswer[object]) -> Text:
    return Text(to_complaint(node.failure).message if node.failure else "", style=_ALARM)


def _state(state: BrokerState) -> Text:
    return Text(str(state), style=_STATE_STYLES.get(state, ""))


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table
