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

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.broker_explanation import silence_text
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import moment_text, reading_text, reason_text, time_text, uptime_text
from pointsman.wire.wire_time import seconds_of
from pointsman_client import RequestRejectedError
from pointsman_ctl.commands.broker_commands import brokers_by_state, guard_lines, is_flapping
from pointsman_ctl.options.command_options import in_cluster, read_seconds
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.output_layout import ALARM, WARNING, failure_line, new_table, node_document, show, state_cell
from pointsman_ctl.servers.name_servers import NodeBrokers, PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse, To, query_every

MAX_UNHEALTHY = 20
"""Unhealthy brokers listed in a frame; of the others only the number is shown."""
_STATES = tuple(name.removeprefix("BROKER_STATE_") for name in broker_pb2.BrokerState.keys()[1:])
COUNTER_SUFFIX = "_total"
"""Sizes with this suffix are counters, shown as rates per second."""


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    callback=read_seconds,
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between refreshes.",
)
@in_cluster
@pass_invocation
def top(invocation: Invocation, once: bool, interval: float, cluster: str) -> int:
    """Monitor name servers and brokers live.

    Counters of a node are shown as rates per second, from the second refresh on. UNHEALTHY brokers are not UP, or have
    a flap penalty above 3,000. Ctrl-C ends it. With --output json each refresh is one object per line. --once exits 1
    if a server failed.

    \b
    JSON: at, nodes[].{addr, node, nodeState, uptimeSeconds, sizes,
            ratesPerSecond, brokersByState, complaints[],
            guards[].{as in guard}, unhealthy[].{as in brokers}}
          or {addr, error}

    \b
    Examples:
      pointsmanctl --namesrv ns1:9876,ns2:9876 top
      pointsmanctl top --once
      pointsmanctl top --interval 10 --cluster DefaultCluster
      pointsmanctl -o json top | jq -c '.nodes[].brokersByState'
    """
    if once:
        frame = asyncio.run(_one_frame(invocation, cluster))
        return invocation.finish(frame.nodes, to_frame_document(frame), frame_parts(frame), on_one_line=True)
    return asyncio.run(_frames(invocation, cluster, interval))


async def _one_frame(invocation: Invocation, cluster: str) -> Frame:
    async with invocation.connections() as to:
        return await _next(invocation, cluster, to, None)


async def _frames(invocation: Invocation, cluster: str, interval: float) -> int:
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
                await asyncio.sleep(max(0.0, frame.monotonic_seconds + interval - time.monotonic()))


async def _next(invocation: Invocation, cluster: str, to: To[PointsmanNameServer], before: Frame | None) -> Frame:
    at, monotonic_seconds = datetime.now(UTC), time.monotonic()
    nodes = await query_every(
        to,
        invocation.name_servers,
        lambda server, deadline: server.brokers(deadline, cluster=cluster),
        invocation.timeout_seconds,
    )
    return next_frame(before, nodes, at=at, monotonic_seconds=monotonic_seconds)


@dataclass(frozen=True, slots=True)
class Frame:
    """The responses of all servers at one time. Pure."""

    at: datetime
    monotonic_seconds: float
    nodes: Sequence[NodeResponse[NodeBrokers]]
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Increase per second since the previous frame, by address and counter; empty in the first frame."""


def next_frame(
    before: Frame | None, nodes: Sequence[NodeResponse[NodeBrokers]], *, at: datetime, monotonic_seconds: float
) -> Frame:
    """Return a frame with rates since the previous one."""
    rates: dict[str, dict[str, float]] = {}
    infos = _infos(before.nodes) if before else {}
    seconds = monotonic_seconds - before.monotonic_seconds if before else 0.0
    for addr, info in _infos(nodes).items():
        last = infos.get(addr)
        # Counters restart at zero with the process.
        if last is not None and last.boot == info.boot and seconds > 0:
            rates[addr] = {
                name.removesuffix(COUNTER_SUFFIX): (info.sizes[name] - last.sizes[name]) / seconds
                for name in sorted(info.sizes)
                if name.endswith(COUNTER_SUFFIX) and name in last.sizes
            }
    return Frame(at, monotonic_seconds, nodes, rates)


def _infos(nodes: Iterable[NodeResponse[NodeBrokers]]) -> dict[str, admin.GetNodeInfoResponse]:
    return {node.addr: node.response.info for node in nodes if node.response is not None}


def to_frame_document(frame: Frame) -> Document:
    """Render a frame."""

    def one(addr: str, response: NodeBrokers) -> Document:
        info = response.info
        return {
            "node": response.node,
            "nodeState": enum_name(info, "state"),
            "uptimeSeconds": seconds_of(info.uptime) if info.HasField("uptime") else None,
            "sizes": dict(sorted(info.sizes.items())),
            "ratesPerSecond": dict(frame.rates.get(addr, {})),
            "brokersByState": brokers_by_state(response.brokers),
            "unhealthy": list(map(to_document, _unhealthy(response.brokers))),
            "guards": list(map(to_document, info.guards)),
            "complaints": list(info.complaints),
        }

    nodes = [node_document(node, partial(one, node.addr)) for node in frame.nodes]
    return {"at": moment_text(frame.at), "nodes": nodes}


def frame_parts(frame: Frame) -> Iterable[RenderableType]:
    """Show a frame."""
    yield Text(f"{time_text(frame.at)} UTC", style="dim")
    yield from _nodes(frame)
    yield ""
    yield from _brokers_by_state(frame)
    yield from _unhealthy_brokers(frame)


def _nodes(frame: Frame) -> Iterable[RenderableType]:
    numbers = ("UPTIME", "BROKERS", "TOPICS", "WATCHERS")
    table = new_table("NODE", "STATE", *numbers, right=numbers)
    for node in frame.nodes:
        if node.response is None:
            state = "REJECTED" if isinstance(node.failure, RequestRejectedError) else "NO RESPONSE"
            table.add_row(node.addr, Text(state, style=ALARM), "-", "-", "-", "-")
            continue
        info = node.response.info
        uptime, brokers = uptime_text(info), str(len(node.response.brokers))
        sizes = [str(info.sizes[name]) if name in info.sizes else "-" for name in ("topics", "watchers")]
        table.add_row(node.addr, state_cell(enum_name(info, "state")), uptime, brokers, *sizes)
    yield table
    for node in frame.nodes:
        if node.response is None:
            yield failure_line(node)
            continue
        rates = frame.rates.get(node.addr, {})
        if rates:
            text = ", ".join(f"{printable(name).replace('_', ' ')} {rate:.1f}" for name, rate in rates.items())
            yield Text(f"{node.addr} per second: {text}", style="dim")
        info = node.response.info
        if missing := reading_text(info):
            yield Text(f"{node.addr} {missing}", style="dim")
        for problem in info.complaints:
            yield Text(f"{node.addr} PROBLEM: {printable(problem)}", style=ALARM)
        yield from guard_lines(info.guards, prefix=f"{node.addr} ")


def _brokers_by_state(frame: Frame) -> Iterable[RenderableType]:
    table = new_table("CLUSTER", "NODE", *_STATES, right=_STATES)
    rows: list[tuple[str, ...]] = []
    for node in frame.nodes:
        brokers = node.response.brokers if node.response else []
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
        if node.response is not None
        for status in _unhealthy(node.response.brokers)
    ]
    if not found:
        return
    found.sort(key=lambda pair: (_who(pair[0]), pair[1]))
    numbers = ("LAST HEARTBEAT", "PENALTY")
    table = new_table("UNHEALTHY", "NODE", "STATE", "REASON", *numbers, right=numbers)
    for status, addr in found[:MAX_UNHEALTHY]:
        state = state_cell(enum_name(status, "state"))
        table.add_row(_who(status), addr, state, reason_text(status), silence_text(status), f"{status.penalty:.0f}")
    yield ""
    yield table
    if len(found) > MAX_UNHEALTHY:
        yield Text(f"and {len(found) - MAX_UNHEALTHY} more: see `pointsmanctl brokers`", style=WARNING)


def _who(status: broker_pb2.BrokerStatus) -> str:
    return f"{status.identity.cluster}/{status.identity.broker_name}/{status.identity.broker_id}"


def _unhealthy(brokers: Iterable[broker_pb2.BrokerStatus]) -> list[broker_pb2.BrokerStatus]:
    up = broker_pb2.BROKER_STATE_UP
    return [status for status in brokers if status.state != up or is_flapping(status)]
