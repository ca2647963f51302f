"""Name servers themselves: the commands ``info`` and ``health``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.answer_layout import ALARM, failure_line, new_table, node_documents, node_parts, state_cell
from pointsman_ctl.error_report import EXIT_FAILED
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.name_server_queries import NodeHealth, health_of, node_info_of
from pointsman_ctl.node_difference import setting_differences
from pointsman_ctl.operator_texts import duration_words, guard_words, printable
from pointsman_ctl.server_calls import NodeAnswer

MAX_NAMED = 5
"""Invocation that a warning names."""
InfoNodes = Sequence[NodeAnswer[admin.GetNodeInfoResponse]]


@click.command()
@click.option("--configuration", is_flag=True, help="Show the configuration that it runs with, too.")
@pass_invocation
def info(invocation: Invocation, configuration: bool) -> int:
    """Show version, state and sizes of each name server.

    Also the guards of its clusters, and its problems. JSON has the configuration
    always. Asks all servers listed; exits 1 if one did not answer.

    \b
    JSON: nodes[].{addr, node, version, nodeState, boot, uptimeSeconds,
            provisionalBrokers, sizes, guards[].{as in guard}, guardsLeftOut,
            complaints[], configuration} or {addr, error}

    \b
    Examples:
      pointsmanctl info
      pointsmanctl info --configuration
      pointsmanctl -o json info | jq -r '.nodes[0].configuration'
    """
    nodes = invocation.ask_every(node_info_of)
    parts = node_parts(nodes, partial(info_parts, with_configuration=configuration))
    return invocation.finish(nodes, node_documents(nodes, _to_info), parts)


@click.command()
@pass_invocation
def health(invocation: Invocation) -> int:
    """Exit 0 if every server listed is READY, 1 otherwise.

    Invocation of operators on which several servers differ are a warning, and do not count.

    For containers and scripts. WARMING is a server that has just started: one with a snapshot shows how many of its
    brokers have sent a heartbeat. DRAINING is one that sends its clients elsewhere. Problems are shown, and do not
    count.

    \b
    JSON: nodes[].{addr, node, nodeState, provisionalBrokers, complaints[]}
          or {addr, error}

    \b
    Examples:
      pointsmanctl health
      pointsmanctl --namesrv 127.0.0.1:9876 --timeout 1 health
    """
    answers = invocation.ask_every(
        lambda server, deadline: health_of(server, deadline, with_settings=len(invocation.name_servers) > 1)
    )
    nodes = [NodeAnswer(each.addr, each.answer.info if each.answer else None, each.failure) for each in answers]
    code = invocation.finish(nodes, node_documents(nodes, _to_health), health_parts(nodes))
    _warn_of_settings(invocation, answers)
    states = {node.addr: enum_name(node.answer, "state") for node in nodes if node.answer is not None}
    not_ready = [f"{addr} is {state}" for addr, state in states.items() if state != "READY"]
    if not_ready:
        where = ", ".join(not_ready)
        invocation.warn("NODE_NOT_READY", where)
    return EXIT_FAILED if not_ready else code


def _warn_of_settings(invocation: Invocation, nodes: Sequence[NodeAnswer[NodeHealth]]) -> None:
    """Report settings on which the servers differ: each keeps what it was sent, and none corrects another."""
    found = {node.addr: node.answer.settings for node in nodes if node.answer and node.answer.settings is not None}
    differences = setting_differences(found)
    if differences:
        named = ", ".join(printable(each.label) for each in differences[:MAX_NAMED])
        more = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
        invocation.warn(
            "SETTINGS_DIFFER",
            f"the name servers differ in what operators set: {named}{more}",
            "`pointsmanctl diff NODE NODE` shows the values; set them again to make them equal",
        )


def _to_info(answer: admin.GetNodeInfoResponse) -> Document:
    document = to_document(answer)
    # As in all other answers.
    return document | {"nodeState": document.pop("state")}


def _to_health(answer: admin.GetNodeInfoResponse) -> Document:
    info = _to_info(answer)
    return {key: info[key] for key in ("node", "nodeState", "provisionalBrokers", "complaints")}


def info_parts(info: admin.GetNodeInfoResponse, *, with_configuration: bool) -> Iterable[RenderableType]:
    """Show a node's version, state, sizes, problems and guards."""
    facts = new_table("FACT", "VALUE")
    facts.add_row("version", printable(info.version))
    facts.add_row("state", state_cell(enum_name(info, "state")))
    facts.add_row("boot", f"{info.boot:016x}")
    facts.add_row("uptime", duration_words(seconds_of(info.uptime)))
    if info.provisional_brokers:
        facts.add_row("not heard since restart", str(info.provisional_brokers))
    for name, size in sorted(info.sizes.items()):
        facts.add_row(printable(name).replace("_", " "), str(size))
    yield facts
    yield from _complaints(info)
    for guard in info.guards:
        yield Text(guard_words(guard), style=ALARM if guard.active else "")
    if with_configuration and info.configuration:
        yield ""
        for line in info.configuration.rstrip().splitlines():
            yield Text(printable(line), style="dim")


def health_parts(nodes: InfoNodes) -> Iterable[RenderableType]:
    """Show in a line what each node may be asked."""
    for node in nodes:
        if node.answer is None:
            yield failure_line(node)
            continue
        state = enum_name(node.answer, "state")
        yield Text(f"{node.addr} ").append_text(state_cell(state)).append(_progress(node.answer))
        yield from _complaints(node.answer)


def _progress(info: admin.GetNodeInfoResponse) -> str:
    """Without a snapshot the number of brokers to come is unknown."""
    if info.state != broker_pb2.NODE_STATE_WARMING or not info.provisional_brokers or "brokers" not in info.sizes:
        return ""
    brokers = info.sizes["brokers"]
    return f": {brokers - info.provisional_brokers} of {brokers} brokers heard"


def _complaints(info: admin.GetNodeInfoResponse) -> Iterable[RenderableType]:
    return [Text(f"COMPLAINT: {printable(problem)}", style=ALARM) for problem in info.complaints]


COMMANDS = (info, health)
