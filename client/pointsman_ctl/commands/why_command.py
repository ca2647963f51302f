"""The command ``why``: state of each replica of a broker with rule and evidence, outages, timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import click
from google.protobuf.json_format import MessageToDict
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.moment_options import at_option
from pointsman_ctl.options.name_completion import complete_all_broker_names
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, BrokerNotFoundError
from pointsman_ctl.output.operator_texts import (
    HANGS,
    change_text,
    detail_text,
    duration_text,
    earlier_runs_text,
    evidence_text,
    explanation,
    hang_text,
    moment_text,
    outage_text,
    reason_text,
    time_text,
    utc_of,
)
from pointsman_ctl.output.output_layout import ALARM, STATE_STYLES, WARNING, node_documents, node_parts
from pointsman_ctl.servers.name_servers import BrokerHistory
from pointsman_ctl.servers.outage_timeline import NOT_ROUTED, Outage, Position, TimelineEvent, timeline_of
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
        return to_document(response) | {"outages": list(map(_to_outage, outages))}

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
        yield _fact("reason", f"{printable(one.event)} {printable(one.reason)}".rstrip() + planned)
        yield _fact("last row", f"{time_text(utc_of(one.recorded_at))} (UTC)")
        yield from _outage(timeline.outage_of(position), at)
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
        if missing := earlier_runs_text(response.earlier_runs):
            yield Text(missing, style="dim")
        events = response.timeline.events[-limit:]
        if events:
            yield from _event_lines(events)
        else:
            yield Text("no events here")

    return node_parts(nodes, history)


def _replicas(history: BrokerHistory, now: datetime) -> Iterable[RenderableType]:
    for status in history.brokers:
        yield from _replica(status, history, now)
    here = {_position(status) for status in history.brokers}
    gone = {
        position: event
        for position, event in history.timeline.latest.items()
        if event.state == "GONE" and position not in here
    }
    for position, event in gone.items():
        yield from _gone(position, event)
        yield from _outage(history.timeline.outage_of(position), now)
    if not history.brokers and not gone:
        yield Text("no replica is registered here")


def _gone(position: Position, event: admin.BrokerEvent) -> Iterable[RenderableType]:
    detail, at = MessageToDict(event.detail), utc_of(event.event_at)
    absent = detail.get("absent_seconds") or (seconds_of(event.state_for) if event.HasField("state_for") else 0.0)
    since = time_text(at - timedelta(seconds=float(absent)))
    yield _heading(position, event.identity.addr, "GONE", f"since {since} (UTC)")
    planned = ", planned" if event.planned else ""
    # The event itself may be older than what the server read back.
    kind, reason = ("EXPIRED", str(detail["gone_reason"])) if "gone_reason" in detail else (event.event, event.reason)
    yield _fact("reason", f"{printable(kind)} {printable(reason)}{planned}")
    if detail.get("outlived_window"):
        yield _fact("window", f"its maintenance window ended at {time_text(at)} (UTC)")
    if hang := hang_text(detail):
        yield _fact("stream", hang)


def _replica(status: broker_pb2.BrokerStatus, history: BrokerHistory, now: datetime) -> Iterable[RenderableType]:
    position, state = _position(status), enum_name(status, "state")
    since = f"for {duration_text(seconds_of(status.state_for))}" if status.HasField("state_for") else "since unknown"
    yield _heading(position, status.identity.addr, state, since)
    yield _fact("rule", printable(status.rule) or "unknown")
    if status.reason:
        yield _fact("reason", reason_text(status))
    yield _fact(
        "heartbeat",
        f"{duration_text(seconds_of(status.silence))} ago; "
        f"sent every {duration_text(seconds_of(status.heartbeat_interval))}, "
        f"expires after {duration_text(seconds_of(status.expiry))}",
    )
    yield _fact("stream", _stream_text(status))
    yield _fact("probe", _probe_text(status.health))
    yield from _outage(history.timeline.outage_of(position), now)
    guard = history.guards.get(status.identity.cluster)
    if status.state == broker_pb2.BROKER_STATE_PROTECTED and guard is not None:
        active = f"active for {duration_text(seconds_of(guard.active_for))}" if guard.active else "no longer active"
        counts = f"{guard.lost} lost, {guard.up} up, baseline {guard.baseline}"
        yield _fact("guard", f"{enum_name(guard, 'mode')}, {active}: {counts}")
    if status.in_maintenance:
        yield _fact("window", "maintenance window is open")
    for other in status.also_at_addr:
        name = printable(f"{other.cluster}/{other.broker_name} {other.broker_id}")
        yield _fact("conflict", f"{name} is registered at this address too")


def _stream_text(status: broker_pb2.BrokerStatus) -> str:
    if not status.stream_open:
        return "broken" if status.reason == "STREAM_BROKEN" else "not open"
    return HANGS["connection" if status.self_registered else "stream"] if status.reason == "SILENCE" else "open"


def _outage(outage: Outage | None, now: datetime) -> Iterable[RenderableType]:
    if outage is None:
        return
    if outage.ended_at is not None:
        yield _fact("outage", f"{outage_text(outage)}; back at {time_text(outage.ended_at)} (UTC)")
        return
    before, least = ("", "") if outage.is_begin_known else ("before ", "at least ")
    planned = "planned" if outage.is_planned else "unplanned"
    if outage.planned_seconds and not outage.is_planned:
        planned += f" after the first {duration_text(outage.planned_seconds)}"
    lasts = duration_text(max(0.0, (now - outage.began_at).total_seconds()))
    yield _fact("outage", f"for {least}{lasts}, since {before}{time_text(outage.began_at)} (UTC), {planned}")


def _probe_text(health: broker_pb2.BrokerHealth) -> str:
    if health.status == broker_pb2.PROBE_STATUS_UNSPECIFIED:
        return "none"
    text = enum_name(health, "status").lower()
    if health.status == broker_pb2.PROBE_STATUS_FAILING:
        text += f", {evidence_text(health)}"
        if health.HasField("ever_passed"):
            text += ", passed before" if health.ever_passed else ", never passed"
    return text + (f": {printable(health.detail)}" if health.detail else "")


def _position(status: broker_pb2.BrokerStatus) -> Position:
    return status.identity.cluster, status.identity.broker_name, status.identity.broker_id


def _heading(position: Position, addr: str, state: str, since: str) -> Text:
    cluster, broker_name, broker_id = position
    heading = Text(f"{cluster}/{broker_name} {broker_id} at {printable(addr)}: ")
    return heading.append(state, style=ALARM if state in NOT_ROUTED else STATE_STYLES.get(state, "")).append(
        f" {since}"
    )


def _fact(name: str, value: str) -> RenderableType:
    return Padding(Text(f"{name.ljust(_FACT_WIDTH)}  {value}"), (0, 0, 0, 4), expand=False)


def _event_lines(events: Sequence[TimelineEvent]) -> Iterable[RenderableType]:
    rows = [("TIME (UTC)", "EVENT", "REASON", "ID", "STATE"), *(_row(step.event) for step in events)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield _line(rows[0], widths, style="bold")
    for row, step in zip(rows[1:], events, strict=True):
        yield _line(row, widths, style=STATE_STYLES.get(step.event.state, "") if step.event.state != "UP" else "")
        # Events of a replica group have no address.
        where = ", ".join(filter(None, (step.event.identity.cluster, printable(step.event.identity.addr))))
        sentence = _sentence(step)
        line = ": ".join(filter(None, (where, sentence)))
        yield Padding(Text(line, style="dim"), (0, 0, 0, 4), expand=False)


def _row(event: admin.BrokerEvent) -> tuple[str, ...]:
    return (
        time_text(utc_of(event.event_at)),
        printable(event.event),
        printable(event.reason) or "-",
        str(event.identity.broker_id) if event.identity.addr else "-",
        printable(event.state) or "-",
    )


def _sentence(step: TimelineEvent) -> str:
    event, detail = step.event, MessageToDict(step.event.detail)
    hang = hang_text(detail)
    detail = {name: value for name, value in detail.items() if not (hang and name in HANGS)}
    silence = f"last heartbeat {duration_text(seconds_of(event.interval))} before" if event.HasField("interval") else ""
    parts = (
        explanation(event.event, event.reason),
        change_text(step),
        silence,
        hang,
        detail_text(detail),
    )
    return "; ".join(part for part in parts if part)


def _line(row: Sequence[str], widths: Sequence[int], *, style: str) -> Text:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    return Text("  ".join(cells), style=style)
