"""Look at the name servers themselves."""

from __future__ import annotations

import click

from pointsman.v1 import broker_pb2
from pointsman_client.ctl import node_document, node_table
from pointsman_client.ctl.argument import read_addr
from pointsman_client.ctl.digest_difference import digest_difference
from pointsman_client.ctl.failure import EXIT_FAILED, EXIT_OK, to_node_complaint
from pointsman_client.ctl.question import digests_of, node_info_of
from pointsman_client.ctl.settings import Settings, pass_settings
from pointsman_client.ctl.wording import node_state_words


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
    nodes = settings.ask_every(node_info_of)
    code = settings.finish(nodes, node_document.to_health_document(nodes), node_table.health_parts(nodes))
    states = {node.addr: node.answer.state for node in nodes if node.answer is not None}
    not_ready = {addr: state for addr, state in states.items() if state != broker_pb2.NODE_STATE_READY}
    if not_ready:
        where = ", ".join(f"{addr} is {node_state_words(state)}" for addr, state in not_ready.items())
        settings.warn("NODE_NOT_READY", where)
    return EXIT_FAILED if not_ready else code


@click.command()
@click.argument("first", callback=read_addr, metavar="NODE")
@click.argument("second", callback=read_addr, metavar="NODE")
@pass_settings
def diff(settings: Settings, first: str, second: str) -> int:
    """Show on which topics two name servers differ.

    Compares digests of all routes, the states of brokers included: where something has just changed, nodes differ for
    some seconds. Exits 0 if they are equal, 1 if they differ or one did not answer. Needs no --namesrv.

    \b
    JSON: equal, first.{addr, node, nodeState, topicCount}, second.{as first},
          differing[], onlyFirst[], onlySecond[]

    \b
    Examples:
      pointsmanctl diff ns1:9876 ns2:9876
      pointsmanctl -o json diff ns1:9876 ns2:9876 | jq '.differing'
    """
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
    settings.show(
        node_document.to_difference_document(addrs, sides, difference),
        node_table.difference_parts(addrs, sides, difference),
    )
    return EXIT_OK if difference.is_empty else EXIT_FAILED


COMMANDS = (info, health, diff)
