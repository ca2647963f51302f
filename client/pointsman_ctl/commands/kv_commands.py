"""The commands ``kv`` and ``order-topic``: order topics are keys of one namespace of the KV configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import grpc
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman_client import OrderTopicConfError, RequestRejectedError, Revision, TopicRoute, to_publish_queues
from pointsman_client.pointsman_grpc.codec import to_topic_route
from pointsman_ctl.commands.server_changes import Outcome, change_every, not_there
from pointsman_ctl.commands.settings_copy import KV, copy_settings, settings_of
from pointsman_ctl.options.command_options import (
    CommandGroup,
    Consent,
    by_option,
    change_options,
    confirm,
    read_addr,
    read_name,
    yes_option,
)
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, KeyNotFoundError
from pointsman_ctl.output.key_moves import KeyMoves, key_moves, largest
from pointsman_ctl.output.output_layout import new_table, node_documents, node_parts
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


@click.group(cls=CommandGroup)
def kv() -> None:
    """Show and change RocketMQ's key-value configuration.

    \b
    Examples:
      pointsmanctl kv list
      pointsmanctl kv put LIMITS orders 100
    """


@kv.command("list")
@click.argument("namespace", required=False, callback=read_name)
@pass_invocation
def kv_list(invocation: Invocation, namespace: str) -> int:
    """List all keys, or those of NAMESPACE, on each server.

    Queries all servers listed; exits 1 if one failed.

    \b
    JSON: nodes[].{addr, node, entries[].{namespace, key, value}} or {addr, error}

    \b
    Examples:
      pointsmanctl kv list
      pointsmanctl kv list ORDER_TOPIC_CONFIG
    """
    nodes = _query(invocation, namespace)
    return invocation.finish(nodes, node_documents(nodes), node_parts(nodes, _entries))


@kv.command("get")
@click.argument("namespace", callback=read_name)
@click.argument("key", callback=read_name)
@pass_invocation
def kv_get(invocation: Invocation, namespace: str, key: str) -> int:
    """Show the value of one KEY.

    Prints only the value if all servers listed agree; otherwise the value of each server, and exits 1.

    \b
    JSON: nodes[].{addr, node, value} or {addr, error}; value is null if not set

    \b
    Examples:
      pointsmanctl kv get LIMITS orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 kv get ORDER_TOPIC_CONFIG orders
    """
    nodes = _query(invocation, namespace)
    values = [value_of(node.response, key) for node in nodes if node.response is not None]
    if values and all(value is None for value in values) and len(values) == len(nodes):
        raise KeyNotFoundError(namespace, key)
    document = node_documents(nodes, lambda response: {"node": response.node, "value": value_of(response, key)})
    code = invocation.finish(nodes, document, value_parts(nodes, key))
    if code == EXIT_OK and len(set(values)) > 1:
        invocation.warn(
            "NODES_DIFFER", "the value differs between name servers", "put the key again to make them equal"
        )
        return EXIT_FAILED
    return code


@kv.command("put")
@click.argument("namespace", callback=read_name)
@click.argument("key", callback=read_name)
@click.argument("value")
@by_option
@pass_invocation
def kv_put(invocation: Invocation, namespace: str, key: str, value: str, by: str) -> int:
    """Set KEY in NAMESPACE to VALUE.

    Sent to all servers listed; exits 1 if one failed. Repeating it is safe.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl kv put LIMITS orders 100
      pointsmanctl --namesrv ns1:9876,ns2:9876 kv put LIMITS orders 100
    """
    return _put(invocation, namespace, key, value, by)


@kv.command("delete")
@click.argument("namespace", callback=read_name)
@click.argument("key", callback=read_name)
@by_option
@pass_invocation
def kv_delete(invocation: Invocation, namespace: str, key: str, by: str) -> int:
    """Remove KEY from NAMESPACE.

    Sent to all servers listed; exits 1 if one failed or if none had it.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl kv delete LIMITS orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 kv delete LIMITS orders
    """
    return _delete(invocation, namespace, key, by)


@kv.command("sync")
@click.option(
    "--from", "source", callback=read_addr, required=True, metavar="HOST:PORT", help="Name server that has the keys."
)
@change_options
@pass_invocation
def kv_sync(invocation: Invocation, source: str, consent: Consent) -> int:
    """Set the keys of another name server.

    For a new name server, or after `kv get` reported a difference. Shows what differs at each server listed, and you
    must confirm (without a terminal: --yes). Order topics are copied, too. Keys that only the server itself has are
    listed and kept. `settings restore --from` copies all settings. Sent to all servers listed but the source; exits 1
    if one failed or rejected a key. Repeating it is safe.

    \b
    JSON: as of `settings restore`

    \b
    Examples:
      pointsmanctl --namesrv ns3:9876 kv sync --from ns1:9876 --dry-run
      pointsmanctl --namesrv ns2:9876,ns3:9876 kv sync --from ns1:9876 --yes
    """
    return copy_settings(invocation, settings_of(invocation, source), (KV,), consent, source=source)


@click.group(cls=CommandGroup)
def order_topic() -> None:
    """Show and change order topics.

    The queues of an order topic have the fixed order of its configuration. It does not change while a broker is down.

    \b
    Examples:
      pointsmanctl order-topic list
      pointsmanctl order-topic set orders 'broker-a:4;broker-b:4'
    """


@order_topic.command("list")
@pass_invocation
def order_topic_list(invocation: Invocation) -> int:
    """List the order topics of each server.

    Queries all servers listed; exits 1 if one failed.

    \b
    JSON: nodes[].{addr, node, orderTopics[].{topic, orderTopicConf}}
          or {addr, error}

    \b
    Examples:
      pointsmanctl order-topic list
      pointsmanctl -o json order-topic list | jq '.nodes[].orderTopics'
    """
    nodes = _query(invocation, ORDER_TOPIC_NAMESPACE)
    return invocation.finish(nodes, node_documents(nodes, _to_order_topics), node_parts(nodes, _order_topics))


@order_topic.command("set")
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@click.argument("configuration", metavar="BROKER:QUEUES;...")
@yes_option
@by_option
@pass_invocation
def order_topic_set(invocation: Invocation, topic: str, configuration: str, yes: bool, by: str) -> int:
    """Make TOPIC an order topic with these queues, in this order.

    Quote the value: in a shell a semicolon ends the command. A server rejects more queues than a registered broker has
    of the topic; the error names the broker and the numbers. For a broker that is not registered yet it accepts them:
    clients ignore the surplus, and `info` reports it. Sent to all servers listed; exits 1 if one failed. Repeating it
    is safe.

    Other queues than now, or another order of them, move keys. A moved key is out of order until its old queue is
    empty. So the queues that change and the share of keys that move are shown before, and you must confirm (without a
    terminal: --yes).

    \b
    JSON: nodes[].{addr, changed, keyMoves} or {addr, error};
          keyMoves: null if no key moves, else {queuesBefore, queuesAfter,
          changedQueues, movedKeys.{hashRing, modulo}, brokers[].{cluster,
          brokerName, queuesBefore, queuesAfter}}

    \b
    Examples:
      pointsmanctl order-topic set orders 'broker-a:4;broker-b:4'
      pointsmanctl --namesrv ns1:9876,ns2:9876 order-topic set orders broker-a:8
    """
    try:
        # Checked as clients read it.
        to_publish_queues(TopicRoute(topic, Revision(0, 0, b""), (), (), configuration))
    except OrderTopicConfError as error:
        raise click.BadParameter(str(error), param_hint="'BROKER:QUEUES;...'") from error
    if not configuration:
        raise click.BadParameter("must not be empty; see `order-topic remove`", param_hint="'BROKER:QUEUES;...'")
    moves = _confirmed(invocation, topic, configuration, yes=yes)
    return _put(
        invocation, ORDER_TOPIC_NAMESPACE, topic, configuration, by, what=_what_moves(moves), facts=_facts(moves)
    )


@order_topic.command("remove")
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@yes_option
@by_option
@pass_invocation
def order_topic_remove(invocation: Invocation, topic: str, yes: bool, by: str) -> int:
    """Remove the order configuration of TOPIC.

    If keys move, you must confirm, as with `order-topic set`. Sent to all servers listed; exits 1 if one failed or if
    none had it as an order topic.

    \b
    JSON: nodes[].{addr, changed, keyMoves} or {addr, error}; see
          `order-topic set`

    \b
    Examples:
      pointsmanctl order-topic remove orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 order-topic remove orders
    """
    moves = _confirmed(invocation, topic, "", yes=yes)
    request = admin.DeleteKvRequest(namespace=ORDER_TOPIC_NAMESPACE, key=topic, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        try:
            await server.call(server.admin.DeleteKv, request, deadline=deadline)
        except RequestRejectedError as refusal:
            if refusal.status is grpc.StatusCode.NOT_FOUND:
                raise not_there(server, f"{topic} is not an order topic", "ORDER_TOPIC_NOT_FOUND") from refusal
            raise
        return Outcome(f"{topic} is no longer an order topic{_what_moves(moves)}", facts=_facts(moves))

    return change_every(invocation, change, absent=f"{topic} was not an order topic")


def _query(invocation: Invocation, namespace: str) -> list[NodeResponse[admin.ListKvResponse]]:
    request = admin.ListKvRequest(namespace=namespace)
    return invocation.query_every(lambda server, deadline: server.call(server.admin.ListKv, request, deadline=deadline))


def _confirmed(invocation: Invocation, topic: str, configuration: str, *, yes: bool) -> KeyMoves | None:
    """Return what the change does to keys, confirmed; None: it moves no key, as far as name servers responded."""

    async def compare(server: PointsmanNameServer, deadline: float) -> KeyMoves:
        return key_moves(to_topic_route(await server.route(topic, deadline)), configuration)

    nodes = invocation.query_every(compare)
    moves = largest([node.response for node in nodes if node.response is not None])
    if moves is not None:
        confirm(f"Keys of topic {topic} move: {moves.text()}. Change its order configuration?", yes=yes)
    return moves


def _what_moves(moves: KeyMoves | None) -> str:
    return "" if moves is None else f"; {moves.text()}"


def _facts(moves: KeyMoves | None) -> Document:
    return {"keyMoves": None if moves is None else moves.document()}


def _put(
    invocation: Invocation,
    namespace: str,
    key: str,
    value: str,
    by: str,
    *,
    what: str = "",
    facts: Document | None = None,
) -> int:
    request = admin.PutKvRequest(namespace=namespace, key=key, value=value, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        response = await server.call(server.admin.PutKv, request, deadline=deadline)
        text = f"{namespace} {key} {'set' if response.changed else 'unchanged'}{what}"
        return Outcome(text, response.changed, facts or {})

    return change_every(invocation, change)


def _delete(invocation: Invocation, namespace: str, key: str, by: str) -> int:
    request = admin.DeleteKvRequest(namespace=namespace, key=key, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        await server.call(server.admin.DeleteKv, request, deadline=deadline)
        return Outcome(f"{namespace} {key} removed")

    return change_every(invocation, change, absent=f"{namespace} {key} was not set")


def value_of(response: admin.ListKvResponse, key: str) -> str | None:
    """Return the value of a key of the namespace of the request."""
    return next((entry.value for entry in response.entries if entry.key == key), None)


def value_parts(nodes: Sequence[NodeResponse[admin.ListKvResponse]], key: str) -> Iterable[RenderableType]:
    """Show only the value if all nodes agree, so that it can be piped; else the value of each."""
    values = {None if node.response is None else value_of(node.response, key) for node in nodes}
    agreed = values.pop() if len(values) == 1 else None
    if agreed is not None:
        return [Text(printable(agreed))]

    def value(response: admin.ListKvResponse) -> Iterable[RenderableType]:
        found = value_of(response, key)
        yield Text("the key is not set" if found is None else printable(found))

    return node_parts(nodes, value)


def _entries(response: admin.ListKvResponse) -> Iterable[RenderableType]:
    table = new_table("NAMESPACE", "KEY", "VALUE")
    for entry in response.entries:
        table.add_row(printable(entry.namespace), printable(entry.key), printable(entry.value))
    yield table if response.entries else Text("no key is set")


def _order_topics(response: admin.ListKvResponse) -> Iterable[RenderableType]:
    table = new_table("TOPIC", "QUEUES")
    for entry in response.entries:
        table.add_row(printable(entry.key), printable(entry.value))
    yield table if response.entries else Text("no topic is an order topic")


def _to_order_topics(response: admin.ListKvResponse) -> Document:
    topics = [{"topic": entry.key, "orderTopicConf": entry.value} for entry in response.entries]
    return {"node": response.node, "orderTopics": topics}
