"""One look at all name servers for ``pointsmanctl top``: how they are, and which brokers are unhealthy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman_client.core.route import BrokerState
from pointsman_client.errors import RequestRejectedError
from pointsman_client.routes.codec import to_broker_state
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import moment_text, seconds_of
from pointsman_ctl.condition import is_flapping
from pointsman_ctl.document import to_guard_document, to_node_document
from pointsman_ctl.layout import ALARM, WARNING, failure_line, new_table, state_cell
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import NodeBrokers
from pointsman_ctl.wording import (
    duration_words,
    guard_words,
    node_state_words,
    printable,
    reason_words,
    time_words,
)

MAX_UNHEALTHY = 20
"""Brokers that a frame names; the rest is a number."""
COUNTER_SUFFIX = "_total"
"""Sizes with this ending only rise: their rise a second is shown."""

_BY_STATE = tuple(state for state in BrokerState if state is not BrokerState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Frame:
    """What all servers said at one moment. Pure: whoever asks gives the times."""

    at: datetime
    monotonic_seconds: float
    nodes: Sequence[NodeAnswer[NodeBrokers]]
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Address to counter to its rise a second since the frame before; empty on the first."""


def next_frame(
    before: Frame | None, nodes: Sequence[NodeAnswer[NodeBrokers]], *, at: datetime, monotonic_seconds: float
) -> Frame:
    """Make a frame, with rates against the one before."""
    rates: dict[str, dict[str, float]] = {}
    infos = _infos(before.nodes) if before else {}
    seconds = monotonic_seconds - before.monotonic_seconds if before else 0.0
    for addr, info in _infos(nodes).items():
        last = infos.get(addr)
        # Another boot counts from zero again.
        if last is not None and last.boot == info.boot and seconds > 0:
            rates[addr] = {
                name.removesuffix(COUNTER_SUFFIX): (info.sizes[name] - last.sizes[name]) / seconds
                for name in sorted(info.sizes)
                if name.endswith(COUNTER_SUFFIX) and name in last.sizes
            }
    return Frame(at, monotonic_seconds, nodes, rates)


def _infos(nodes: Iterable[NodeAnswer[NodeBrokers]]) -> dict[str, admin.GetNodeInfoResponse]:
    return {node.addr: node.answer.info for node in nodes if node.answer is not None and node.answer.info is not None}


def to_frame_document(frame: Frame) -> Document:
    """Render a frame."""

    def one(addr: str, answer: NodeBrokers) -> Document:
        info = answer.info
        return {
            "node": answer.node,
            "nodeState": node_state_words(info.state) if info else None,
            "uptimeSeconds": seconds_of(info.uptime) if info else None,
            "sizes": dict(sorted(info.sizes.items())) if info else {},
            "ratesPerSecond": dict(frame.rates.get(addr, {})),
            "brokersByState": {str(state): count for state, count in _by_state(answer.brokers).items()},
            "troubled": [_to_unhealthy(status) for status in _unhealthy(answer.brokers)],
            "guards": [to_guard_document(guard) for guard in info.guards] if info else [],
            "complaints": list(info.complaints) if info else [],
        }

    nodes = [to_node_document(node, partial(one, node.addr)) for node in frame.nodes]
    return {"at": moment_text(frame.at), "nodes": nodes}


def _to_unhealthy(status: broker_pb2.BrokerStatus) -> Document:
    return {
        "cluster": status.identity.cluster,
        "brokerName": status.identity.broker_name,
        "brokerId": status.identity.broker_id,
        "brokerAddr": status.identity.addr,
        "state": str(to_broker_state(status.state)),
        "reason": status.reason,
        "planned": status.planned,
        "silenceSeconds": seconds_of(status.silence),
        "penalty": status.penalty,
    }


def frame_parts(frame: Frame) -> Iterable[RenderableType]:
    """Show a frame."""
    yield Text(f"{time_words(frame.at)} UTC", style="dim")
    yield from _nodes(frame)
    yield ""
    yield from _brokers_by_state(frame)
    yield from _unhealthy_brokers(frame)


def _nodes(frame: Frame) -> Iterable[RenderableType]:
    numbers = ("UPTIME", "BROKERS", "TOPICS", "WATCHERS")
    table = new_table("NODE", "STATE", *numbers, right=numbers)
    for node in frame.nodes:
        if node.answer is None:
            word = "REFUSED" if isinstance(node.failure, RequestRejectedError) else "NO ANSWER"
            table.add_row(node.addr, Text(word, style=ALARM), "-", "-", "-", "-")
            continue
        info = node.answer.info
        uptime = duration_words(seconds_of(info.uptime)) if info else "-"
        state = state_cell(node_state_words(info.state)) if info else Text("UNKNOWN")
        sizes = [_size(info, name) for name in ("topics", "watchers")]
        table.add_row(node.addr, state, uptime, str(len(node.answer.brokers)), *sizes)
    yield table
    for node in frame.nodes:
        if node.answer is None:
            yield failure_line(node)
            continue
        rates = frame.rates.get(node.addr, {})
        if rates:
            words = ", ".join(f"{printable(name).replace('_', ' ')} {rate:.1f}" for name, rate in rates.items())
            yield Text(f"{node.addr} a second: {words}", style="dim")
        info = node.answer.info
        for complaint in info.complaints if info else ():
            yield Text(f"{node.addr} COMPLAINT: {printable(complaint)}", style=ALARM)
        for guard in info.guards if info else ():
            if guard.active or guard.mode != admin.GUARD_MODE_AUTO:
                yield Text(f"{node.addr} {guard_words(guard)}", style=ALARM if guard.active else WARNING)


def _size(info: admin.GetNodeInfoResponse | None, name: str) -> str:
    return str(info.sizes[name]) if info is not None and name in info.sizes else "-"


def _brokers_by_state(frame: Frame) -> Iterable[RenderableType]:
    columns = [str(state) for state in _BY_STATE]
    table = new_table("CLUSTER", "NODE", *columns, right=columns)
    rows: list[tuple[str, ...]] = []
    for node in frame.nodes:
        brokers = node.answer.brokers if node.answer else []
        for cluster in sorted({status.identity.cluster for status in brokers}):
            counts = _by_state([status for status in brokers if status.identity.cluster == cluster])
            rows.append((cluster, node.addr, *(str(counts[state]) for state in _BY_STATE)))
    for row in sorted(rows):
        table.add_row(*row)
    yield table if rows else Text("no broker is registered")


def _unhealthy_brokers(frame: Frame) -> Iterable[RenderableType]:
    found = [
        (status, node.addr)
        for node in frame.nodes
        if node.answer is not None
        for status in _unhealthy(node.answer.brokers)
    ]
    if not found:
        return
    found.sort(key=lambda pair: (_who(pair[0]), pair[1]))
    table = new_table("UNHEALTHY", "NODE", "STATE", "REASON", "HEARTBEAT", "PENALTY", right=("HEARTBEAT", "PENALTY"))
    for status, addr in found[:MAX_UNHEALTHY]:
        silence = duration_words(seconds_of(status.silence))
        state = state_cell(str(to_broker_state(status.state)))
        table.add_row(_who(status), addr, state, reason_words(status), silence, f"{status.penalty:.0f}")
    yield ""
    yield table
    if len(found) > MAX_UNHEALTHY:
        yield Text(f"and {len(found) - MAX_UNHEALTHY} more: see `pointsmanctl brokers`", style=WARNING)


def _who(status: broker_pb2.BrokerStatus) -> str:
    return f"{status.identity.cluster}/{status.identity.broker_name}/{status.identity.broker_id}"


def _by_state(brokers: Iterable[broker_pb2.BrokerStatus]) -> Counter[BrokerState]:
    return Counter(to_broker_state(status.state) for status in brokers)


def _unhealthy(brokers: Iterable[broker_pb2.BrokerStatus]) -> list[broker_pb2.BrokerStatus]:
    up = broker_pb2.BROKER_STATE_UP
    return [status for status in brokers if status.state != up or is_flapping(status)]
