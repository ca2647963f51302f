"""Questions about the past: the commands ``events`` and ``changes``, and ``route`` with ``--at``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

import click
from google.protobuf.json_format import MessageToDict
from rich.console import RenderableType
from rich.text import Text

from pointsman.history.past_route import RouteResult, merged
from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document, to_document
from pointsman.wire.operator_texts import detail_text, explanation, setting_text, time_text
from pointsman_ctl.options.command_options import in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.moment_options import FORMS, moment_option
from pointsman_ctl.options.name_completion import complete_all_broker_names, complete_topics
from pointsman_ctl.output.output_layout import STATE_STYLES, WARNING, failure_line, new_table, node_documents
from pointsman_ctl.servers.past_answers import Merged, PastPage, is_of_server, merged_changes, merged_events
from pointsman_ctl.servers.server_calls import NodeResponse, responses_of

_UTC = ZoneInfo("UTC")

MessageT = TypeVar("MessageT", admin.BrokerEvent, admin.OperatorChange)

since_option = moment_option("--since", help=f"Only from this time on, e.g. {FORMS}.")
until_option = moment_option("--until", help="Only up to this time.  [default: now]")

limit_option = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most per server, the newest."
)
_of_broker = click.option(
    "--broker",
    callback=read_name,
    shell_complete=complete_all_broker_names,
    metavar="NAME",
    help="Only this broker name.",
)
_by = click.option("--by", default="", metavar="WHO", help="Only what this operator did.")


@click.command()
@_of_broker
@click.option(
    "--topic",
    callback=read_name,
    shell_complete=complete_topics,
    metavar="NAME",
    help="Only brokers that had this topic, and its changes.",
)
@in_cluster
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="EVENT",
    help="Only these events of the history, e.g. EXPIRED. Repeatable.",
)
@since_option
@until_option
@_by
@limit_option
@pass_invocation
def events(
    invocation: Invocation,
    *,
    broker: str,
    topic: str,
    cluster: str,
    kinds: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    by: str,
    limit: int,
) -> int:
    """Show events of the history, oldest first.

    From the files of all servers listed; by default those of the last day, without heartbeats, queue statistics, topics
    and repeated states, unless --kind names them. The same event at several servers is one line; SERVERS counts them,
    and names them where not all have it. Exits 1 if a server failed.

    \b
    JSON: events[].{eventAt, nodes[], event, reason, cluster, brokerName,
            brokerId, brokerAddr, state, planned, bootId, seq, detail, as in
            why},
          nodes[].{addr, node, events, complete} or {addr, error}

    \b
    Examples:
      pointsmanctl events --broker broker-a --since 12h
      pointsmanctl events --kind EXPIRED --kind PROBE_FAILED --since 03:00
      pointsmanctl events --topic orders --since 2026-11-27T03:00Z --until 8h
    """
    request = admin.ListPastEventsRequest(
        cluster=cluster, broker_name=broker, topic=topic, kinds=[kind.upper() for kind in kinds], by=by
    )
    _set_span(request, since, until)
    nodes = invocation.patient().query_every(lambda server, deadline: server.past_events(request, limit, deadline))
    found = merged_events(_pages(nodes))
    document = {
        "events": [{**to_document(each.first), "nodes": each.nodes} for each in found],
        **node_documents(nodes, lambda page: _counted(page, "events")),
    }
    return invocation.finish(nodes, document, _event_parts(found, nodes))


@click.command()
@_of_broker
@in_cluster
@since_option
@until_option
@_by
@limit_option
@pass_invocation
def changes(
    invocation: Invocation,
    *,
    broker: str,
    cluster: str,
    since: datetime | None,
    until: datetime | None,
    by: str,
    limit: int,
) -> int:
    """Show what operators changed, oldest first.

    Who changed what, when, the old and the new value, and the command that undoes it where both are known. From the
    history of all servers listed, by default of the last seven days; the same change at several servers is one. Values
    above 1,024 characters, and those of namespaces in `[history] hide_kv`, are shown as length and SHA-256. Exits 1 if
    a server failed.

    \b
    JSON: changes[].{changedAt, nodes[], event, what, cluster, brokerName, by,
            claimedBy, before, beforeKnown, after, undo, bootId, seq},
          nodes[].{addr, node, changes, complete} or {addr, error}

    \b
    Examples:
      pointsmanctl changes
      pointsmanctl changes --by ann@host --since 30d
      pointsmanctl -o json changes | jq -r '.changes[].undo | select(. != "")'
    """
    request = admin.ListChangesRequest(cluster=cluster, broker_name=broker, by=by)
    _set_span(request, since, until)
    nodes = invocation.patient().query_every(lambda server, deadline: server.changes(request, limit, deadline))
    found = merged_changes(_pages(nodes))
    document = {
        "changes": [
            {**to_document(each.first), "beforeKnown": each.first.HasField("before"), "nodes": each.nodes}
            for each in found
        ],
        **node_documents(nodes, lambda page: _counted(page, "changes")),
    }
    return invocation.finish(nodes, document, _change_parts(found, nodes))


def past_route(invocation: Invocation, topic: str, cluster: str, at: datetime) -> int:
    """Show the route of a topic at a moment, as each name server returned it."""
    request = admin.GetPastRouteRequest(topic=topic, cluster=cluster)
    request.at.FromDatetime(at)
    nodes = invocation.patient().query_every(lambda server, deadline: server.past_route(request, deadline))
    result = merged([RouteResult.from_dict(MessageToDict(each.route)) for each in responses_of(nodes)])
    document = {**result.as_dict(), **node_documents(nodes, lambda response: {"node": response.node})}
    code = invocation.finish(nodes, document, [Text(result.text(_UTC)), *_failures(nodes)])
    return code or result.exit_code


def _set_span(
    request: admin.ListPastEventsRequest | admin.ListChangesRequest, since: datetime | None, until: datetime | None
) -> None:
    if since is not None and until is not None and until < since:
        raise click.BadParameter("--until is before --since")
    if since is not None:
        request.since.FromDatetime(since)
    if until is not None:
        request.until.FromDatetime(until)


def _pages(nodes: Sequence[NodeResponse[PastPage[MessageT]]]) -> list[PastPage[MessageT]]:
    return [node.response for node in nodes if node.response is not None]


def _counted(page: PastPage[MessageT], name: str) -> Document:
    return {"node": page.node, name: len(page.found), "complete": not page.is_cut}


def _failures(nodes: Iterable[NodeResponse[object]]) -> Iterable[RenderableType]:
    return (failure_line(node) for node in nodes if node.response is None)


def _event_parts(
    found: Sequence[Merged[admin.BrokerEvent]], nodes: Sequence[NodeResponse[PastPage[admin.BrokerEvent]]]
) -> Iterable[RenderableType]:
    table = new_table("TIME (UTC)", "EVENT", "REASON", "BROKER", "STATE", "SERVERS", "WHAT")
    pages = _pages(nodes)
    for each in found:
        event = each.first
        detail = _detail(event)
        text = explanation(event.event, event.reason, detail.pop("source", ""))
        sentence = "; ".join(filter(None, (text, detail_text(detail))))
        table.add_row(
            time_text(each.at),
            printable(event.event),
            printable(event.reason) or "-",
            _broker_text(event),
            Text(printable(event.state) or "-", style=STATE_STYLES.get(event.state, "")),
            _servers_cell(each, pages),
            sentence,
        )
    yield table if found else Text("no events")
    yield from _cut_note(pages)
    yield from _failures(nodes)


def _change_parts(
    found: Sequence[Merged[admin.OperatorChange]], nodes: Sequence[NodeResponse[PastPage[admin.OperatorChange]]]
) -> Iterable[RenderableType]:
    table = new_table("TIME (UTC)", "BY", "WHAT", "OLD", "NEW", "SERVERS", "UNDO")
    pages = _pages(nodes)
    for each in found:
        change = each.first
        target = "/".join(filter(None, (change.cluster, change.broker_name)))
        claimed = f" (as {printable(change.claimed_by)})" if change.claimed_by else ""
        table.add_row(
            time_text(each.at),
            printable(change.by) + claimed,
            printable(f"{change.what} of {target}" if target else change.what),
            setting_text(MessageToDict(change.before)) if change.HasField("before") else "unknown",
            setting_text(MessageToDict(change.after)),
            _servers_cell(each, pages),
            printable(change.undo) or "-",
        )
    yield table if found else Text("no changes")
    yield from _cut_note(pages)
    yield from _failures(nodes)


def _detail(event: admin.BrokerEvent) -> Document:
    document: Document = to_document(event)["detail"] or {}
    return document


def _broker_text(event: admin.BrokerEvent) -> str:
    who = event.identity
    name = "/".join(filter(None, (who.cluster, who.broker_name)))
    return printable(f"{name}/{who.broker_id}" if who.addr else name) or "-"


def _servers_cell(found: Merged[MessageT], pages: Sequence[PastPage[MessageT]]) -> Text:
    """Count the name servers that have an event; name them if another one that responded has it not."""
    names = ", ".join(map(printable, found.nodes))
    if is_of_server(found.first.event):
        return Text(names)
    if len(found.nodes) == len(pages):
        return Text(str(len(pages)))
    return Text(f"only {names}", style=WARNING)


def _cut_note(pages: Iterable[PastPage[MessageT]]) -> Iterable[RenderableType]:
    if any(page.is_cut for page in pages):
        yield Text("there are older ones: give --limit, or --until the first time above", style="dim")
