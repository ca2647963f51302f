"""The command ``producers``: who is connected to the brokers of a topic to send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import duration_text
from pointsman_client import PointsmanError
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_OK, queues_failed
from pointsman_ctl.output.output_layout import new_table
from pointsman_ctl.servers.producer_connections import Sender
from pointsman_ctl.servers.stored_messages import HeldQueue, of_every

NOT_BY_TOPIC = "brokers do not know the topics of a producer: these send to the topic's brokers, maybe other topics"


@click.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@click.option("--group", callback=read_name, metavar="NAME", help="Only this producer group of RocketMQ.")
@in_cluster
@pass_invocation
def producers(invocation: Invocation, topic: str, group: str, cluster: str) -> int:
    """List the producers that are connected to TOPIC's brokers.

    No broker knows the topics of a producer, so these send to the same brokers, maybe to other topics. RocketMQ
    brokers know producers by the heartbeats of RocketMQ's clients, each with its group; this client's producers send
    none. A broker that does not list all groups needs --group, as mqadmin producerConnection does. Redis servers know
    connections: those whose last command was a write of a stream, which needs the permission for CLIENT LIST. Exits 1
    if a broker failed.

    \b
    JSON: topic, brokers[].{broker, producers[].{group, clientId, addr, client,
            user, idleSeconds}} or {broker, error}

    \b
    Examples:
      pointsmanctl producers orders
      pointsmanctl producers orders --group order-service
    """
    found = asyncio.run(_producers(invocation, topic, group, cluster))
    document: Document = {"topic": topic, "brokers": [_document(*each) for each in found]}
    failures = {_broker(held): result for held, result in found if isinstance(result, PointsmanError)}
    if len(failures) < len(found):
        invocation.show(document, _parts(found))
    return invocation.fail(queues_failed(failures)) if failures else EXIT_OK


async def _producers(
    invocation: Invocation, topic: str, group: str, cluster: str
) -> list[tuple[HeldQueue, list[Sender] | PointsmanError]]:
    async with invocation.stored_messages() as stored:
        brokers = {held.queue.broker_key: held for held in reversed(await stored.queues(topic, cluster))}
        return await of_every(sorted(brokers.values()), lambda held: stored.senders(held, group))


def _broker(held: HeldQueue) -> str:
    return "/".join(held.queue.broker_key)


def _document(held: HeldQueue, result: list[Sender] | PointsmanError) -> Document:
    if isinstance(result, PointsmanError):
        return {"broker": _broker(held), "error": queues_failed({_broker(held): result}).to_document()}
    return {
        "broker": _broker(held),
        "producers": [
            {
                "group": each.group or None,
                "clientId": each.client_id or None,
                "addr": each.addr,
                "client": each.client or None,
                "user": each.user or None,
                "idleSeconds": each.idle_seconds,
            }
            for each in result
        ],
    }


def _parts(found: Iterable[tuple[HeldQueue, list[Sender] | PointsmanError]]) -> Iterable[RenderableType]:
    table = new_table("BROKER", "GROUP", "CLIENT ID", "ADDR", "CLIENT", "USER", "IDLE", right=("IDLE",))
    for held, result in found:
        for each in result if isinstance(result, list) else ():
            idle = "-" if each.idle_seconds is None else duration_text(each.idle_seconds)
            cells = (each.group, each.client_id, each.addr, each.client, each.user)
            table.add_row(printable(_broker(held)), *(printable(cell) or "-" for cell in cells), idle)
    yield table if table.row_count else "no producer is connected"
    if table.row_count:
        yield Text(NOT_BY_TOPIC, style="dim")
