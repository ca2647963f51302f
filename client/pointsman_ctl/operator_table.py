"""What operators set, as tables: KV configuration, order topics, guards, maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.layout import ALARM, failure_line, new_table, node_heading
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.operator_document import value_of
from pointsman_ctl.wording import duration_words, guard_mode_words, printable

AnswerT = TypeVar("AnswerT", admin.ListKvResponse, admin.GetNodeInfoResponse, admin.ListMaintenanceResponse)
KvNodes = Sequence[NodeAnswer[admin.ListKvResponse]]


def kv_parts(nodes: KvNodes) -> Iterable[RenderableType]:
    """Show each node's keys."""

    def entries(answer: admin.ListKvResponse) -> RenderableType:
        if not answer.entries:
            return Text("no key is set")
        table = new_table("NAMESPACE", "KEY", "VALUE")
        for entry in answer.entries:
            table.add_row(printable(entry.namespace), printable(entry.key), printable(entry.value))
        return table

    return _each(nodes, entries)


def value_parts(nodes: KvNodes, key: str) -> Iterable[RenderableType]:
    """Show the value alone where all nodes have the same, so that it can be piped on; else that of each."""
    values = {None if node.answer is None else value_of(node.answer, key) for node in nodes}
    agreed = values.pop() if len(values) == 1 else None
    if agreed is not None:
        return [Text(printable(agreed))]

    def value(answer: admin.ListKvResponse) -> RenderableType:
        found = value_of(answer, key)
        return Text("the key is not set" if found is None else printable(found))

    return _each(nodes, value)


def order_topics_parts(nodes: KvNodes) -> Iterable[RenderableType]:
    """Show each node's order topics."""

    def order_topics(answer: admin.ListKvResponse) -> RenderableType:
        if not answer.entries:
            return Text("no topic is an order topic")
        table = new_table("TOPIC", "QUEUES")
        for entry in answer.entries:
            table.add_row(printable(entry.key), printable(entry.value))
        return table

    return _each(nodes, order_topics)


def guards_parts(nodes: Sequence[NodeAnswer[admin.GetNodeInfoResponse]], cluster: str) -> Iterable[RenderableType]:
    """Show each node's guards, or that of one cluster."""

    def guards(answer: admin.GetNodeInfoResponse) -> RenderableType:
        shown = [guard for guard in answer.guards if cluster in {"", guard.cluster}]
        if not shown:
            return Text(f"cluster {cluster} is not known here" if cluster else "no cluster is known here")
        numbers = ("LOST", "BASELINE", "UP", "SINCE", "AUTO RESUMES IN")
        table = new_table("CLUSTER", "MODE", "ACTIVE", *numbers, right=numbers)
        for guard in shown:
            table.add_row(
                guard.cluster,
                guard_mode_words(guard.mode),
                Text("yes", style=ALARM) if guard.active else "no",
                str(guard.lost),
                str(guard.baseline),
                str(guard.up),
                duration_words(seconds_of(guard.active_for)) if guard.active else "-",
                duration_words(seconds_of(guard.mode_remaining)) if guard.HasField("mode_remaining") else "-",
            )
        return table

    def reasons(answer: admin.GetNodeInfoResponse) -> Iterable[RenderableType]:
        for guard in answer.guards:
            if guard.reason and cluster in {"", guard.cluster}:
                yield Text(f"{guard.cluster}: {printable(guard.reason)}", style=ALARM if guard.active else "")

    return _each(nodes, guards, reasons)


def maintenance_parts(nodes: Sequence[NodeAnswer[admin.ListMaintenanceResponse]]) -> Iterable[RenderableType]:
    """Show each node's open windows."""

    def windows(answer: admin.ListMaintenanceResponse) -> RenderableType:
        if not answer.windows:
            return Text("no maintenance window is open")
        table = new_table("CLUSTER", "BROKER", "ENDS IN", "BY", "NOTE", right=("ENDS IN",))
        for window in answer.windows:
            remaining = duration_words(seconds_of(window.remaining))
            name = window.broker_name or "(all)"
            table.add_row(window.cluster, name, remaining, printable(window.by), printable(window.note))
        return table

    return _each(nodes, windows)


def _each(
    nodes: Sequence[NodeAnswer[AnswerT]],
    show: Callable[[AnswerT], RenderableType],
    more: Callable[[AnswerT], Iterable[RenderableType]] = lambda _: (),
) -> Iterable[RenderableType]:
    for position, node in enumerate(nodes):
        yield from node_heading(position, node.addr, node.answer.node if node.answer else "")
        if node.answer is None:
            yield failure_line(node)
        else:
            yield show(node.answer)
            yield from more(node.answer)
