"""The command ``top``: name servers and brokers live, and which brokers are unhealthy."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.wire_time import seconds_of
from pointsman_client import RequestRejectedError
from pointsman_ctl.answer_layout import ALARM, WARNING, failure_line, new_table, node_document, show, state_cell
from pointsman_ctl.broker_commands import brokers_by_state, guard_lines, is_flapping
from pointsman_ctl.command_options import in_cluster
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.name_server_queries import NodeBrokers, brokers_of
from pointsman_ctl.operator_texts import duration_words, moment_text, printable, reason_words, time_words
from pointsman_ctl.server_calls import NodeAnswer, ToServer, ask_every

REFRESH_SECONDS = 2.0
MAX_UNHEALTHY = 20
"""Brokers that a frame names; the rest is a number."""
_STATES = tuple(name.removeprefix("BROKER_STATE_") for name in broker_pb2.BrokerState.keys()[1:])
COUNTER_SUFFIX = "_total"
"""Sizes with this ending only rise: their rise a second is shown."""


@click.command()
@click.option("--once", is_flag=True, help="Show it once and end.")
@in_cluster
@pass_invocation
def top(invocation: Invocation, once: bool, cluster: str) -> int:
    """Watch name servers and brokers live.

    Refreshed every 2 s. Counters of a node are shown as rates per second, from the second refresh on. UNHEALTHY are
    brokers that are not UP, and those with a flap penalty above 3,000. Ctrl-C ends it. With --output json each refresh
    is one object per line; without a terminal the refreshes follow one another. --once exits 1 if a server failed.

    \b
    JSON: at, nodes[].{addr, node, nodeState, uptimeSeconds, sizes,
            ratesPerSecond, brokersByState, complaints[],
            guards[].{as in guard}, troubled[].{as in brokers}}
          or {addr, error}

    \b
    Examples:
      pointsmanctl --namesrv ns1:9876,ns2:9876 top
      pointsmanctl top --once
      pointsmanctl -o json top | jq -c '.nodes[].brokersByState'
    """
    if once:
        frame = asyncio.run(_one_frame(invocation, cluster))
        return invocation.finish(frame.nodes, to_frame_document(frame), frame_parts(frame), on_one_line=True)
    return asyncio.run(_frames(invocation, cluster))


async def _one_frame(invocation: Invocation, cluster: str) -> Frame:
    async with invocation.connections() as to:
        return await _next(invocation, cluster, to, None)


async def _frames(invocation: Invocation, cluster: str) -> int:
    is_live = sys.stdout.isatty() and not invocation.is_json
    console = Console(highlight=False, markup=False, emoji=False)
    frame: Frame | None = None
    async with invocation.connections() as to:
        with Live(console=console, screen=True, auto_refresh=False) if is_live else nullcontext() as live:
            while True:
                frame = await _next(invocation, cluster, to, frame)
                if invocation.is_json:
                    click.echo(json.dumps(to_frame_document(frame)))
                elif live:
                    live.update(Group(*frame_parts(frame)), refresh=True)
                else:
                    show([*frame_parts(frame), ""])
                await asyncio.sleep(max(0.0, frame.monotonic_seconds + REFRESH_SECONDS - time.monotonic()))


async def _next(invocation: Invocation, cluster: str, to: ToServer, before: Frame | None) -> Frame:
    at, monotonic_seconds = datetime.now(UTC), time.monotonic()
    nodes = await ask_every(
        to,
        invocation.name_servers,
        lambda server, deadline: brokers_of(server, deadline, cluster=cluster),
        invocation.timeout_seconds,
    )
    return next_frame(before, nodes, at=at, monotonic_seconds=monotonic_seconds)


@dataclass(frozen=True, slots=True)
class Frame:
    """The answers of all servers at one moment. Pure: the times are arguments."""

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
            "nodeState": enum_name(info, "state") if info else None,
            "uptimeSeconds": seconds_of(info.uptime) if info else None,
            "sizes": dict(sorted(info.sizes.items())) if info else {},
            "ratesPerSecond": dict(frame.rates.get(addr, {})),
            "brokersByState": brokers_by_state(answer.brokers),
            "troubled": list(map(to_document, _unhealthy(answer.brokers))),
            "guards": list(map(to_document, info.guards)) if info else [],
            "complaints": list(info.complaints) if info else [],
        }

    nodes = [node_document(node, partial(one, node.addr)) for node in frame.nodes]
    return {"at": moment_text(frame.at), "nodes": nodes}


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
        state = state_cell(enum_name(info, "state")) if info else Text("UNKNOWN")
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
        for problem in info.complaints if info else ():
            yield Text(f"{node.addr} COMPLAINT: {printable(problem)}", style=ALARM)
        yield from guard_lines(info.guards if info else (), prefix=f"{node.addr} ")


def _size(info: admin.GetNodeInfoResponse | None, name: str) -> str:
    return str(info.sizes[name]) if info is not None and name in info.sizes else "-"


def _brokers_by_state(frame: Frame) -> Iterable[RenderableType]:
    table = new_table("CLUSTER", "NODE", *_STATES, right=_STATES)
    rows: list[tuple[str, ...]] = []
    for node in frame.nodes:
        brokers = node.answer.brokers if node.answer else []
        for cluster in sorted({status.identity.cluster for status in brokers}):
            counts = brokers_by_state(status for status in brokers if status.identity.cluster == cluster)
            rows.append((cluster, node.addr, *(str(counts.get(state, 0)) for state in _STATES)))
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
        state = state_cell(enum_name(status, "state"))
        table.add_row(_who(status), addr, state, reason_words(status), silence, f"{status.penalty:.0f}")
    yield ""
    yield table
    if len(found) > MAX_UNHEALTHY:
        yield Text(f"and {len(found) - MAX_UNHEALTHY} more: see `pointsmanctl brokers`", style=WARNING)


def _who(status: broker_pb2.BrokerStatus) -> str:
    return f"{status.identity.cluster}/{status.identity.broker_name}/{status.identity.broker_id}"


def _unhealthy(brokers: Iterable[broker_pb2.BrokerStatus]) -> list[broker_pb2.BrokerStatus]:
    up = broker_pb2.BROKER_STATE_UP
    return [status for status in brokers if status.state != up or is_flapping(status)]


COMMANDS = (top,)
