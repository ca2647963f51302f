"""The command ``why``: state of each replica of a broker with rule and evidence, outages, timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.broker_explanation import (
    Fact,
    event_sentence,
    gone_facts,
    gone_since,
    position_of_status,
    replica_facts,
    since_text,
)
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import moment_text, printable, time_text, utc_of
from pointsman.wire.outage_timeline import NOT_ROUTED, Outage, Position, TimelineEvent
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_all_broker_names
from pointsman_ctl.output.error_report import BrokerNotFoundError
from pointsman_ctl.output.output_layout import ALARM, STATE_STYLES, node_documents, node_parts
from pointsman_ctl.servers.name_servers import BrokerHistory
from pointsman_ctl.servers.server_calls import NodeResponse

_FACT_WIDTH = len("heartbeat")


@click.command()
@click.argument("broker", callback=read_name, shell_complete=complete_all_broker_names)
@in_cluster
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Events per server.")
@pass_invocation
def why(invocation: Invocation, broker: str, cluster: str, limit: int) -> int:
    """Explain the state of BROKER and its past outages.

    For each replica: its state, the rule that applies, and the evidence. Then the timeline, oldest first: the effect of
    each event on the routes, and the length of each outage. Also for departed brokers. Queries all servers listed;
    exits 1 if one failed, or if none has an event of the broker.

    \b
    JSON: brokerName, nodes[].{addr, node, brokers[].{as in brokers},
            guards[].{as in guard}, outages[], events[]} or {addr, error};
          outages[].{cluster, brokerName, brokerId, beganAt, beginKnown,
            endedAt, seconds, planned, plannedSeconds, newProcess};
          events[].{eventAt, event, reason, cluster, brokerName, brokerId,
            brokerAddr, generation, incarnation, intervalSeconds, state,
            planned, seq, detail}

    \b
    Examples:
      pointsmanctl why broker-a
      pointsmanctl --namesrv ns1:9876,ns2:9876 why broker-a --limit 5
      pointsmanctl -o json why broker-a | jq '.nodes[].outages'
    """
    nodes = invocation.query_every(
        lambda server, deadline: server.history(deadline, cluster=cluster, broker_name=broker)
    )
    if all(
        node.response is not None and not (node.response.brokers or node.response.timeline.events) for node in nodes
    ):
        raise BrokerNotFoundError(broker, cluster)
    return invocation.finish(
        nodes, to_why_document(broker, nodes, limit=limit), why_parts(nodes, limit=limit, now=datetime.now(UTC))
    )


def to_why_document(broker_name: str, nodes: Iterable[NodeResponse[BrokerHistory]], *, limit: int) -> Document:
    """Render the replicas, outages and last ``limit`` events of a broker name at each node."""

    def history(response: BrokerHistory) -> Document:
        clusters = sorted({status.identity.cluster for status in response.brokers} & set(response.guards))
        return {
            "node": response.node,
            "brokers": list(map(to_document, response.brokers)),
            "guards": [to_document(response.guards[cluster]) for cluster in clusters],
            "outages": list(map(_to_outage, response.timeline.outages)),
            "events": [to_document(step.event) for step in response.timeline.events[-limit:]],
        }

    return {"brokerName": broker_name, **node_documents(nodes, history)}


def _to_outage(outage: Outage) -> Document:
    cluster, broker_name, broker_id = outage.position
    return {
        "cluster": cluster,
        "brokerName": broker_name,
        "brokerId": broker_id,
        "beganAt": moment_text(outage.began_at),
        "beginKnown": outage.is_begin_known,
        "endedAt": moment_text(outage.ended_at) if outage.ended_at else None,
        "seconds": outage.seconds,
        "planned": outage.is_planned,
        "plannedSeconds": outage.planned_seconds,
        "newProcess": outage.has_new_process,
    }


def why_parts(nodes: Sequence[NodeResponse[BrokerHistory]], *, limit: int, now: datetime) -> Iterable[RenderableType]:
    """Show the replicas, outages and last ``limit`` events of a broker name at each node.

    ``now``: UTC by this machine's clock, for the length of an outage that lasts.
    """

    def history(response: BrokerHistory) -> Iterable[RenderableType]:
        yield from _replicas(response, now)
        yield ""
        events = response.timeline.events[-limit:]
        if events:
            yield from _event_lines(events)
        else:
            yield Text("no events here")

    return node_parts(nodes, history)


def _replicas(history: BrokerHistory, now: datetime) -> Iterable[RenderableType]:
    timeline = history.timeline
    for status in history.brokers:
        position = position_of_status(status)
        yield _heading(position, status.identity.addr, enum_name(status, "state"), since_text(status))
        guard = history.guards.get(status.identity.cluster)
        yield from _facts(replica_facts(status, timeline.outage_of(position), guard, now))
    here = set(map(position_of_status, history.brokers))
    gone = {
        position: event for position, event in timeline.latest.items() if event.state == "GONE" and position not in here
    }
    for position, event in gone.items():
        yield _heading(position, event.identity.addr, "GONE", f"since {time_text(gone_since(event))} (UTC)")
        yield from _facts(gone_facts(event, timeline.outage_of(position), now))
    if not history.brokers and not gone:
        yield Text("no replica is registered here")


def _heading(position: Position, addr: str, state: str, since: str) -> Text:
    cluster, broker_name, broker_id = position
    heading = Text(f"{cluster}/{broker_name} {broker_id} at {printable(addr)}: ")
    return heading.append(state, style=ALARM if state in NOT_ROUTED else STATE_STYLES.get(state, "")).append(
        f" {since}"
    )


def _facts(facts: Iterable[Fact]) -> Iterable[RenderableType]:
    for name, text in facts:
        yield Padding(Text(f"{name.ljust(_FACT_WIDTH)}  {text}"), (0, 0, 0, 4), expand=False)


def _event_lines(events: Sequence[TimelineEvent]) -> Iterable[RenderableType]:
    rows = [("TIME (UTC)", "EVENT", "REASON", "ID", "STATE"), *(_row(step.event) for step in events)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield _line(rows[0], widths, style="bold")
    for row, step in zip(rows[1:], events, strict=True):
        yield _line(row, widths, style=STATE_STYLES.get(step.event.state, "") if step.event.state != "UP" else "")
        # Events of a replica group have no address.
        where = ", ".join(filter(None, (step.event.identity.cluster, printable(step.event.identity.addr))))
        sentence = event_sentence(step)
        yield Padding(Text(f"{where}: {sentence}" if sentence else where, style="dim"), (0, 0, 0, 4), expand=False)


def _row(event: admin.BrokerEvent) -> tuple[str, ...]:
    return (
        time_text(utc_of(event.event_at)),
        printable(event.event),
        printable(event.reason) or "-",
        str(event.identity.broker_id) if event.identity.addr else "-",
        printable(event.state) or "-",
    )


def _line(row: Sequence[str], widths: Sequence[int], *, style: str) -> Text:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return Text("  ".join(cells), style=style)
