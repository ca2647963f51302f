"""Name servers themselves: the commands ``info`` and ``health``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import earlier_runs_text, guard_text, uptime_text
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.error_report import EXIT_FAILED
from pointsman_ctl.output.node_difference import setting_differences
from pointsman_ctl.output.output_layout import ALARM, failure_line, new_table, node_documents, node_parts, state_cell
from pointsman_ctl.servers.name_servers import NodeHealth, PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse

MAX_NAMED = 5
"""Settings that a warning names."""
InfoNodes = Sequence[NodeResponse[admin.GetNodeInfoResponse]]


@click.command()
@click.option("--configuration", is_flag=True, help="Show the effective configuration, too.")
@pass_invocation
def info(invocation: Invocation, configuration: bool) -> int:
    """Show version, state and sizes of each name server.

    Also the guards of its clusters, and its problems. JSON always has the configuration. Queries all servers listed;
    exits 1 if one failed.

    \b
    JSON: nodes[].{addr, node, version, nodeState, boot, uptimeSeconds,
            provisionalBrokers, sizes, guards[].{as in guard}, guardsLeftOut,
            earlierRuns, complaints[], configuration, observed,
            observedNameServers[]} or {addr, error}

    \b
    Examples:
      pointsmanctl info
      pointsmanctl info --configuration
      pointsmanctl -o json info | jq -r '.nodes[0].configuration'
    """
    nodes = invocation.query_every(PointsmanNameServer.node_info)
    parts = node_parts(nodes, partial(info_parts, with_configuration=configuration))
    return invocation.finish(nodes, node_documents(nodes, _to_info), parts)


@click.command()
@pass_invocation
def health(invocation: Invocation) -> int:
    """Check that every name server is READY; exit 1 if not.

    For containers and scripts. A WARMING server has just started; with a snapshot it shows how many of its brokers have
    sent a heartbeat. A DRAINING server moves its clients to other servers. Problems, and operator settings that differ
    between servers, are shown but do not change the exit code.

    \b
    JSON: nodes[].{addr, node, nodeState, provisionalBrokers, complaints[]}
          or {addr, error}

    \b
    Examples:
      pointsmanctl health
      pointsmanctl --namesrv 127.0.0.1:9876 --timeout 1 health
    """
    responses = invocation.query_every(
        lambda server, deadline: server.health(deadline, with_settings=len(invocation.name_servers) > 1)
    )
    nodes = [NodeResponse(each.addr, each.response.info if each.response else None, each.failure) for each in responses]
    code = invocation.finish(nodes, node_documents(nodes, _to_health), health_parts(nodes))
    _warn_of_settings(invocation, responses)
    states = {node.addr: enum_name(node.response, "state") for node in nodes if node.response is not None}
    not_ready = [f"{addr} is {state}" for addr, state in states.items() if state != "READY"]
    if not_ready:
        where = ", ".join(not_ready)
        invocation.warn("NODE_NOT_READY", where)
    return EXIT_FAILED if not_ready else code


def _warn_of_settings(invocation: Invocation, nodes: Sequence[NodeResponse[NodeHealth]]) -> None:
    """Warn of operator settings that differ between servers; servers do not correct each other."""
    found = {
        node.addr: node.response.settings for node in nodes if node.response and node.response.settings is not None
    }
    differences = setting_differences(found)
    if differences:
        named = ", ".join(printable(each.label) for each in differences[:MAX_NAMED])
        more = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
        invocation.warn(
            "SETTINGS_DIFFER",
            f"operator settings differ between name servers: {named}{more}",
            "see `pointsmanctl diff NODE NODE`, and set them again to make them equal",
        )


def _to_info(response: admin.GetNodeInfoResponse) -> Document:
    document = to_document(response)
    # As in all other documents.
    return document | {"nodeState": document.pop("state")}


def _to_health(response: admin.GetNodeInfoResponse) -> Document:
    info = _to_info(response)
    return {key: info[key] for key in ("node", "nodeState", "provisionalBrokers", "complaints")}


def info_parts(info: admin.GetNodeInfoResponse, *, with_configuration: bool) -> Iterable[RenderableType]:
    """Show a node's version, state, sizes, problems and guards."""
    facts = new_table("PROPERTY", "VALUE")
    facts.add_row("version", printable(info.version) or "unknown")
    facts.add_row("state", state_cell(enum_name(info, "state")))
    facts.add_row("boot", f"{info.boot:016x}")
    facts.add_row("uptime", uptime_text(info))
    if info.provisional_brokers:
        facts.add_row("provisional brokers", str(info.provisional_brokers))
    for name, size in sorted(info.sizes.items()):
        facts.add_row(printable(name).replace("_", " "), str(size))
    yield facts
    if missing := earlier_runs_text(enum_name(info, "earlier_runs")):
        yield Text(missing, style="dim")
    yield from _problems(info)
    for guard in info.guards:
        yield Text(guard_text(guard), style=ALARM if guard.active else "")
    if with_configuration and info.configuration:
        yield ""
        for line in info.configuration.rstrip().splitlines():
            yield Text(printable(line), style="dim")


def health_parts(nodes: InfoNodes) -> Iterable[RenderableType]:
    """Show the state of each node in one line."""
    for node in nodes:
        if node.response is None:
            yield failure_line(node)
            continue
        state = enum_name(node.response, "state")
        yield Text(f"{node.addr} ").append_text(state_cell(state)).append(_progress(node.response))
        yield from _problems(node.response)


def _progress(info: admin.GetNodeInfoResponse) -> str:
    """Return the progress of the warm-up; without a snapshot the expected number of brokers is unknown."""
    if info.state != broker_pb2.NODE_STATE_WARMING or not info.provisional_brokers or "brokers" not in info.sizes:
        return ""
    brokers = info.sizes["brokers"]
    return f": {brokers - info.provisional_brokers} of {brokers} brokers have sent a heartbeat"


def _problems(info: admin.GetNodeInfoResponse) -> Iterable[RenderableType]:
    return [Text(f"PROBLEM: {printable(problem)}", style=ALARM) for problem in info.complaints]
