"""The KV configuration, and order topics, which are keys of one of its namespaces."""

from __future__ import annotations

import click
import grpc

from pointsman.v1 import admin_service_pb2 as admin
from pointsman_client.core.message_queue import to_publish_queues
from pointsman_client.core.route import Revision, TopicRoute
from pointsman_client.errors import OrderTopicConfError, RequestRejectedError
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl import operator_document, operator_table
from pointsman_ctl.argument import by_option, read_name
from pointsman_ctl.change import Done, change_every, not_there
from pointsman_ctl.failure import EXIT_FAILED, EXIT_OK, KeyNotFoundError
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.shared_option import CommandGroup

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


@click.group(cls=CommandGroup)
def kv() -> None:
    """Show and change the KV configuration.

    \b
    Examples:
      pointsmanctl kv list
      pointsmanctl kv put LIMITS orders 100
    """


@kv.command("list")
@click.argument("namespace", required=False, callback=read_name)
@pass_settings
def kv_list(settings: Settings, namespace: str) -> int:
    """Show all keys, or those of NAMESPACE, on each server.

    Asks all servers listed; exits 1 if one did not answer.

    \b
    JSON: nodes[].{addr, node, entries[].{namespace, key, value}} or {addr, error}

    \b
    Examples:
      pointsmanctl kv list
      pointsmanctl kv list ORDER_TOPIC_CONFIG
    """
    nodes = _ask(settings, namespace)
    return settings.finish(nodes, operator_document.to_kv_document(nodes), operator_table.kv_parts(nodes))


@kv.command("get")
@click.argument("namespace", callback=read_name)
@click.argument("key", callback=read_name)
@pass_settings
def kv_get(settings: Settings, namespace: str, key: str) -> int:
    """Show the value of one KEY.

    The value alone, if all servers listed have the same; else that of each, and exit code 1.

    \b
    JSON: nodes[].{addr, node, value} or {addr, error}; value is null where there
          is none

    \b
    Examples:
      pointsmanctl kv get LIMITS orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 kv get ORDER_TOPIC_CONFIG orders
    """
    nodes = _ask(settings, namespace)
    values = [operator_document.value_of(node.answer, key) for node in nodes if node.answer is not None]
    if values and all(value is None for value in values) and len(values) == len(nodes):
        raise KeyNotFoundError(namespace, key)
    whole = operator_document.to_value_document(nodes, key)
    code = settings.finish(nodes, whole, operator_table.value_parts(nodes, key))
    if code == EXIT_OK and len(set(values)) > 1:
        settings.warn("NODES_DIFFER", "the name servers differ", "put the key again to make them equal")
        return EXIT_FAILED
    return code


@kv.command("put")
@click.argument("namespace", callback=read_name)
@click.argument("key", callback=read_name)
@click.argument("value")
@by_option
@pass_settings
def kv_put(settings: Settings, namespace: str, key: str, value: str, by: str) -> int:
    """Set KEY in NAMESPACE to VALUE.

    Sent to all servers listed; exits 1 if one failed, and may be repeated.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl kv put LIMITS orders 100
      pointsmanctl --namesrv ns1:9876,ns2:9876 kv put LIMITS orders 100
    """
    return _put(settings, namespace, key, value, by)


@kv.command("delete")
@click.argument("namespace", callback=read_name)
@click.argument("key", callback=read_name)
@by_option
@pass_settings
def kv_delete(settings: Settings, namespace: str, key: str, by: str) -> int:
    """Remove KEY from NAMESPACE.

    Sent to all servers listed; exits 1 if one failed or if none had it.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl kv delete LIMITS orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 kv delete LIMITS orders
    """
    return _delete(settings, namespace, key, by)


@click.group(cls=CommandGroup)
def order_topic() -> None:
    """Show and change which topics are order topics.

    An order topic has its queues in a fixed order that does not move when a broker is away: that of its configuration.

    \b
    Examples:
      pointsmanctl order-topic list
      pointsmanctl order-topic set orders 'broker-a:4;broker-b:4'
    """


@order_topic.command("list")
@pass_settings
def order_topic_list(settings: Settings) -> int:
    """Show the order topics of each server.

    Asks all servers listed; exits 1 if one did not answer.

    \b
    JSON: nodes[].{addr, node, orderTopics[].{topic, orderTopicConf}}
          or {addr, error}

    \b
    Examples:
      pointsmanctl order-topic list
      pointsmanctl -o json order-topic list | jq '.nodes[].orderTopics'
    """
    nodes = _ask(settings, ORDER_TOPIC_NAMESPACE)
    whole = operator_document.to_order_topics_document(nodes)
    return settings.finish(nodes, whole, operator_table.order_topics_parts(nodes))


@order_topic.command("set")
@click.argument("topic", callback=read_name)
@click.argument("configuration", metavar="BROKER:QUEUES;...")
@by_option
@pass_settings
def order_topic_set(settings: Settings, topic: str, configuration: str, by: str) -> int:
    """Make TOPIC an order topic with these queues, in this order.

    Quote it: a bare semicolon ends a shell's command. A server rejects more queues than a registered broker has of the
    topic, and names broker and numbers. It accepts them for a broker that is not registered yet, or a topic that no
    broker has yet: clients ignore the surplus, and `info` reports it. Sent to all servers listed; exits 1 if one
    failed, and may be repeated.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl order-topic set orders 'broker-a:4;broker-b:4'
      pointsmanctl --namesrv ns1:9876,ns2:9876 order-topic set orders broker-a:8
    """
    try:
        # As clients will read it.
        to_publish_queues(TopicRoute(topic, Revision(0, 0, b""), (), (), configuration))
    except OrderTopicConfError as error:
        raise click.BadParameter(str(error), param_hint="'BROKER:QUEUES;...'") from error
    if not configuration:
        raise click.BadParameter("must not be empty; see `order-topic remove`", param_hint="'BROKER:QUEUES;...'")
    return _put(settings, ORDER_TOPIC_NAMESPACE, topic, configuration, by)


@order_topic.command("remove")
@click.argument("topic", callback=read_name)
@by_option
@pass_settings
def order_topic_remove(settings: Settings, topic: str, by: str) -> int:
    """Make TOPIC a topic like any other.

    Sent to all servers listed; exits 1 if one failed or if none had it as an order topic.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl order-topic remove orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 order-topic remove orders
    """
    request = admin.DeleteKvRequest(namespace=ORDER_TOPIC_NAMESPACE, key=topic, by=by)

    async def change(link: NameServerLink, seconds: float) -> Done:
        try:
            await link.call(link.admin.DeleteKv, request, timeout_seconds=seconds)
        except RequestRejectedError as refusal:
            if refusal.status is grpc.StatusCode.NOT_FOUND:
                raise not_there(link, f"{topic} is no order topic", "ORDER_TOPIC_NOT_FOUND") from refusal
            raise
        return Done(f"{topic} is no order topic any more")

    return change_every(settings, change, absent=f"{topic} was no order topic")


def _ask(settings: Settings, namespace: str) -> list[NodeAnswer[admin.ListKvResponse]]:
    request = admin.ListKvRequest(namespace=namespace)
    return settings.ask_every(lambda link, seconds: link.call(link.admin.ListKv, request, timeout_seconds=seconds))


def _put(settings: Settings, namespace: str, key: str, value: str, by: str) -> int:
    request = admin.PutKvRequest(namespace=namespace, key=key, value=value, by=by)

    async def change(link: NameServerLink, seconds: float) -> Done:
        answer = await link.call(link.admin.PutKv, request, timeout_seconds=seconds)
        return Done(f"{namespace} {key} {'set' if answer.changed else 'was so already'}", answer.changed)

    return change_every(settings, change)


def _delete(settings: Settings, namespace: str, key: str, by: str) -> int:
    request = admin.DeleteKvRequest(namespace=namespace, key=key, by=by)

    async def change(link: NameServerLink, seconds: float) -> Done:
        await link.call(link.admin.DeleteKv, request, timeout_seconds=seconds)
        return Done(f"{namespace} {key} removed")

    return change_every(settings, change, absent=f"had no {namespace} {key}")


COMMANDS = (kv, order_topic)
