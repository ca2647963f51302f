"""The command ``why``: state of each replica of a broker with rule and evidence, outages, timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.broker_explanation import (
    Fact,
    event_sentence,
    gone_facts,
    gone_since,
    outage_document,
    outage_facts,
    position_of_status,
    replica_facts,
    since_text,
)
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import earlier_runs_text, moment_text, time_text, utc_of
from pointsman.wire.outage_timeline import NOT_ROUTED, Position, TimelineEvent, timeline_of
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.moment_options import at_option
from pointsman_ctl.options.name_completion import complete_all_broker_names
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, BrokerNotFoundError
from pointsman_ctl.output.output_layout import ALARM, STATE_STYLES, WARNING, node_documents, node_parts
from pointsman_ctl.servers.name_servers import BrokerHistory
from pointsman_ctl.servers.past_answers import agree
from pointsman_ctl.servers.server_calls import NodeResponse

MAX_PAST_EVENTS = 1_000
_FACT_WIDTH = len("heartbeat")


@click.command()
@click.argument("broker", callback=read_name, shell_complete=complete_all_broker_names)
@in_cluster
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Events per server.")
@at_option
@pass_invocation
def why(invocation: Invocation, broker: str, cluster: str, limit: int, at: datetime | None) -> int:
    """Explain the state of BROKER and its past outages.

    For each replica: its state, the rule that applies, and the evidence. Then the timeline, oldest first: the effect of
    each event on the routes, and the length of each outage. Also for departed brokers. Queries all servers listed;
    exits 1 if one failed, or if none has an event of the broker. At its start a name server reads its events back.

    With --at, the state and the last events up to that time, from the history files of all servers listed; exits 1 also
    if they disagreed.

    \b
    JSON: brokerName, nodes[].{addr, node, earlierRuns,
            brokers[].{as in brokers}, guards[].{as in guard}, outages[],
            events[]} or {addr, error};
          outages[].{cluster, brokerName, brokerId, beganAt, beginKnown,
            endedAt, seconds, planned, plannedSeconds, newProcess};
          events[].{eventAt, event, reason, cluster, brokerName, brokerId,
            brokerAddr, generation, incarnation, intervalSeconds, state,
            planned, seq, bootId, detail};
          with --at: brokerName, at, agreed, nodes[].{addr, node, nodeState,
            rowsMissing, replicas[].{cluster, brokerName, brokerId,
            brokerAddr, state, planned, since, event, reason, recordedAt},
            outages[], events[]} or {addr, error}

    \b
    Examples:
      pointsmanctl why broker-a
      pointsmanctl --namesrv ns1:9876,ns2:9876 why broker-a --limit 5
      pointsmanctl why broker-a --at 2026-11-27T03:12Z
      pointsmanctl -o json why broker-a | jq '.nodes[].outages'
    """
    if at is not None:
        return _why_then(invocation, broker, cluster, at, limit)
    nodes = invocation.query_every(
        lambda server, deadline: server.history(deadline, cluster=cluster, broker_name=broker)
    )
    if all(node.response is not None and not node.response.may_know for node in nodes):
        raise BrokerNotFoundError(broker, cluster)
    return invocation.finish(
        nodes, to_why_document(broker, nodes, limit=limit), why_parts(nodes, limit=limit, now=datetime.now(UTC))
    )


def _why_then(invocation: Invocation, broker: str, cluster: str, at: datetime, limit: int) -> int:
    """Show a broker name as it was at a moment."""
    request = admin.GetPastBrokerRequest(broker_name=broker, cluster=cluster, limit=min(limit, MAX_PAST_EVENTS))
    request.at.FromDatetime(at)
    nodes = invocation.patient().query_every(lambda server, deadline: server.past_broker(request, deadline))
    responses = [node.response for node in nodes if node.response is not None]
    if responses and len(responses) == len(nodes) and not any(each.replicas or each.events for each in responses):
        raise BrokerNotFoundError(broker, cluster)
    is_agreed = agree(responses)

    def document(response: admin.GetPastBrokerResponse) -> Document:
        outages = timeline_of(response.events).outages
        return to_document(response) | {"outages": list(map(outage_document, outages))}

    def parts() -> Iterable[RenderableType]:
        yield Text(f"at {time_text(at)} (UTC)", style="bold")
        if not is_agreed:
            yield Text("the name servers disagreed", style=ALARM)
        yield from node_parts(nodes, lambda response: _replicas_then(response, at))

    found = {"brokerName": broker, "at": moment_text(at), "agreed": is_agreed, **node_documents(nodes, document)}
    return invocation.finish(nodes, found, parts()) or (EXIT_OK if is_agreed else EXIT_FAILED)


def _replicas_then(response: admin.GetPastBrokerResponse, at: datetime) -> Iterable[RenderableType]:
    timeline = timeline_of(response.events)
    if not response.node_state:
        yield Text("this name server was not running then, or its rows are missing", style=WARNING)
    elif not response.replicas:
        yield Text("it had no replica then")
    if response.rows_missing:
        yield Text(f"{response.rows_missing} rows of the two days before are missing", style=WARNING)
    for one in response.replicas:
        position = (one.identity.cluster, one.identity.broker_name, one.identity.broker_id)
        since = f"since {time_text(utc_of(one.since))} (UTC)" if one.HasField("since") else "since unknown"
        yield _heading(position, one.identity.addr, one.state or "UNKNOWN", since)
        planned = ", planned" if one.planned else ""
        reason = f"{printable(one.event)} {printable(one.reason)}".rstrip() + planned
        yield from _facts([("reason", reason), ("last row", f"{time_text(utc_of(one.recorded_at))} (UTC)")])
        yield from _facts(outage_facts(timeline.outage_of(position), at))
    yield ""
    yield from _event_lines(timeline.events)


def to_why_document(broker_name: str, nodes: Iterable[NodeResponse[BrokerHistory]], *, limit: int) -> Document:
    """Render the replicas, outages and last ``limit`` events of a broker name at each node."""

    def history(response: BrokerHistory) -> Document:
        clusters = sorted({status.identity.cluster for status in response.brokers} & set(response.guards))
        return {
            "node": response.node,
            "earlierRuns": response.earlier_runs,
            "brokers": list(map(to_document, response.brokers)),
            "guards": [to_document(response.guards[cluster]) for cluster in clusters],
            "outages": list(map(outage_document, response.timeline.outages)),
            "events": [to_document(step.event) for step in response.timeline.events[-limit:]],
        }

    return {"brokerName": broker_name, **node_documents(nodes, history)}


def why_parts(nodes: Sequence[NodeResponse[BrokerHistory]], *, limit: int, now: datetime) -> Iterable[RenderableType]:
    """Show the replicas, outages and last ``limit`` events of a broker name at each node.

    ``now``: UTC by this machine's clock, for the length of an outage that lasts.
    """

    def history(response: BrokerHistory) -> Iterable[RenderableType]:
        yield from _replicas(response, now)
        yield ""
        if missing := earlier_runs_text(response.earlier_runs):
            yield Text(missing, style="dim")
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
        line = ": ".join(filter(None, (where, event_sentence(step))))
        yield Padding(Text(line, style="dim"), (0, 0, 0, 4), expand=False)


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
