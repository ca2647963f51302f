"""Look at the name servers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import click

from pointsman.v1 import broker_pb2
from pointsman_client.errors import TopicNotFoundError
from pointsman_client.routes.question import ask_route
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl import node_document, node_table
from pointsman_ctl.argument import read_addr
from pointsman_ctl.client_description import ClientDescription, read_description
from pointsman_ctl.client_difference import (
    NodeRoute,
    are_equal,
    client_difference_parts,
    to_client_difference_document,
)
from pointsman_ctl.digest_difference import digest_difference
from pointsman_ctl.failure import EXIT_FAILED, EXIT_OK, to_node_complaint
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.question import NodeHealth, digests_of, health_of, node_info_of
from pointsman_ctl.setting_difference import setting_differences
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.wording import node_state_words, printable

MAX_NAMED = 5
"""Settings that a warning names."""


@click.command()
@click.option("--configuration", is_flag=True, help="Show the configuration that it runs with, too.")
@pass_settings
def info(settings: Settings, configuration: bool) -> int:
    """Show what each name server says of itself.

    Its version, state and sizes, the guards of its clusters, and what it complains of. JSON has the configuration
    always. Asks all servers listed; exits 1 if one did not answer.

    \b
    JSON: nodes[].{addr, node, version, nodeState, boot, uptimeSeconds,
            provisionalBrokers, sizes, guards[].{as in guard}, complaints[],
            configuration} or {addr, error}

    \b
    Examples:
      pointsmanctl info
      pointsmanctl info --configuration
      pointsmanctl -o json info | jq -r '.nodes[0].configuration'
    """
    nodes = settings.ask_every(node_info_of)
    parts = node_table.info_parts(nodes, with_configuration=configuration)
    return settings.finish(nodes, node_document.to_info_document(nodes), parts)


@click.command()
@pass_settings
def health(settings: Settings) -> int:
    """Exit 0 if every server listed is READY, 1 otherwise.

    Settings of operators on which several servers differ are a warning, and do not count.

    For containers and scripts. WARMING is a server that has just started: one with a snapshot says how many of its
    brokers it has heard. DRAINING is one that sends its clients elsewhere. Complaints are shown and do not count.

    \b
    JSON: nodes[].{addr, node, nodeState, provisionalBrokers, complaints[]}
          or {addr, error}

    \b
    Examples:
      pointsmanctl health
      pointsmanctl --namesrv 127.0.0.1:9876 --timeout 1 health
    """
    answers = settings.ask_every(
        lambda link, seconds: health_of(link, seconds, with_settings=len(settings.name_servers) > 1)
    )
    nodes = [NodeAnswer(each.addr, each.answer.info if each.answer else None, each.failure) for each in answers]
    code = settings.finish(nodes, node_document.to_health_document(nodes), node_table.health_parts(nodes))
    _warn_of_settings(settings, answers)
    states = {node.addr: node.answer.state for node in nodes if node.answer is not None}
    not_ready = {addr: state for addr, state in states.items() if state != broker_pb2.NODE_STATE_READY}
    if not_ready:
        where = ", ".join(f"{addr} is {node_state_words(state)}" for addr, state in not_ready.items())
        settings.warn("NODE_NOT_READY", where)
    return EXIT_FAILED if not_ready else code


def _warn_of_settings(settings: Settings, nodes: Sequence[NodeAnswer[NodeHealth]]) -> None:
    """Report settings on which the servers differ: each keeps what it was sent, and none corrects another."""
    found = {node.addr: node.answer.settings for node in nodes if node.answer and node.answer.settings is not None}
    differences = setting_differences(found)
    if differences:
        named = ", ".join(printable(each.label) for each in differences[:MAX_NAMED])
        more = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
        settings.warn(
            "SETTINGS_DIFFER",
            f"the name servers differ in what operators set: {named}{more}",
            "`pointsmanctl diff NODE NODE` shows the values; set them again to make them equal",
        )


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE NODE]")
@click.option(
    "--client",
    type=click.File("rb"),
    metavar="FILE",
    help="Compare a client's route: what its describe(topic) returned, as JSON; - reads standard input.",
)
@pass_settings
def diff(settings: Settings, nodes: tuple[str, ...], client: BinaryIO | None) -> int:
    """Show where name servers, or a client and they, differ.

    Compares digests of all routes, the states of brokers included: where something has just changed, nodes differ for
    some seconds. Compares also what operators set: KV, order topics, wiped permissions, hidden topics, guards,
    maintenance. Two nodes need no --namesrv. A client's route is compared with that of each server listed: + stands at
    what the server has and the client has not. Exits 0 if all are equal, 1 if they differ or one did not answer.

    \b
    JSON: equal, first.{addr, node, nodeState, topicCount}, second.{as first},
          differing[], onlyFirst[], onlySecond[], settings[].{kind, name[],
          first.{value, remainingSeconds} or null, second.{as first}}
    with --client: equal, topic, client.{revision, ageSeconds, sourceNode,
          stale}, nodes[].{addr, equal, revision, differences[]}
          or {addr, error}

    \b
    Examples:
      pointsmanctl diff ns1:9876 ns2:9876
      pointsmanctl -o json diff ns1:9876 ns2:9876 | jq '.differing'

    \b
    A client's route, as json.dumps(client.describe("orders")) wrote it:
      pointsmanctl --namesrv ns1:9876,ns2:9876 diff --client orders.json
    """
    if client is not None:
        if nodes:
            raise click.UsageError("--client compares with the servers of --namesrv: name no NODE")
        return _diff_client(settings, read_description(client.read(), source=client.name))
    if len(nodes) > 2:
        raise click.UsageError(f"Got unexpected extra argument ({nodes[2]})")
    if len(nodes) < 2:
        raise click.UsageError("Missing argument 'NODE': two nodes are compared, or --client FILE with the servers")
    context = click.get_current_context()
    first, second = (read_addr(context, context.command.params[0], node) for node in nodes)
    return _diff_nodes(settings, first, second)


def _diff_nodes(settings: Settings, first: str, second: str) -> int:
    if first == second:
        raise click.UsageError(f"{first} is the same node twice")
    nodes = settings.ask_every(digests_of, addrs=(first, second))
    ours, theirs = (node.answer for node in nodes)
    if ours is None or theirs is None:
        failures = {node.addr: node.failure for node in nodes if node.failure is not None}
        complaint = to_node_complaint(failures, of=(first, second), is_change=False)
        click.echo(complaint.render(settings.output), err=True)
        return EXIT_FAILED
    difference = digest_difference(ours, theirs)
    addrs, sides = (first, second), (ours, theirs)
    of_settings = setting_differences({first: ours.settings, second: theirs.settings})
    settings.show(
        node_document.to_difference_document(addrs, sides, difference, of_settings),
        node_table.difference_parts(addrs, sides, difference, of_settings),
    )
    return EXIT_OK if difference.is_empty and not of_settings else EXIT_FAILED


def _diff_client(settings: Settings, client: ClientDescription) -> int:
    async def ask(link: NameServerLink, seconds: float) -> NodeRoute:
        try:
            return NodeRoute(await ask_route(link, client.topic, seconds, zone=client.zone))
        except TopicNotFoundError:
            return NodeRoute(None)

    nodes = settings.ask_every(ask)
    code = settings.finish(nodes, to_client_difference_document(client, nodes), client_difference_parts(client, nodes))
    return code if are_equal(client, nodes) else EXIT_FAILED


COMMANDS = (info, health, diff)
