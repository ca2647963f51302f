"""Protection of a cluster from false alarms: expiry guard and scheduled maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import grpc
from google.protobuf.duration_pb2 import Duration
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import MAX_TEXT_LENGTH, printable, text_problem
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import duration_text, guard_text
from pointsman.wire.wire_time import seconds_of
from pointsman_client import RequestRejectedError
from pointsman_ctl.commands.server_changes import Outcome, change_every, not_there
from pointsman_ctl.options.command_options import (
    CommandGroup,
    GroupTarget,
    by_option,
    duration_option,
    read_group_target,
    read_name,
)
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_clusters, complete_targets
from pointsman_ctl.output.output_layout import ALARM, new_table, node_documents, node_parts
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse

_MODES = {"auto": admin.GUARD_MODE_AUTO, "hold": admin.GUARD_MODE_HOLD, "off": admin.GUARD_MODE_OFF}
InfoNodes = Sequence[NodeResponse[admin.GetNodeInfoResponse]]


@click.command()
@click.argument("mode", type=click.Choice(["show", *_MODES]), default="show")
@click.option(
    "--cluster",
    callback=read_name,
    shell_complete=complete_clusters,
    metavar="NAME",
    help="Cluster; required except for show.",
)
@duration_option("1d", help="Return to auto after this time, e.g. 10m (max 1d).")
@by_option
@pass_invocation
def guard(invocation: Invocation, mode: str, cluster: str, seconds: int | None, by: str) -> int:
    """Show or set the expiry guard of a cluster.

    When too many brokers of a cluster are lost at the same time, the cause may be the network. The guard then becomes
    ACTIVE and the brokers stay in the routes, PROTECTED. LOST counts them, BASELINE is the number of brokers that were
    up one expiry (120 s by default) earlier.

    \b
    Modes:
      show  show the guards (default)
      auto  protect brokers while too many are lost at the same time
      hold  protect every broker, however few are lost
      off   expire brokers as usual, however many are lost

    Queries or changes all servers listed; exits 1 if one failed.

    \b
    JSON of show: nodes[].{addr, node, guards[].{cluster, mode, active, lost,
                  baseline, up, activeForSeconds, reason, modeRemainingSeconds}}
    JSON of a change: nodes[].{addr, changed, guard.{as above}} or {addr, error};
                  warning if it could not be saved to disk

    \b
    Examples:
      pointsmanctl guard
      pointsmanctl guard hold --cluster c1 --for 30m
      pointsmanctl guard off --cluster c1 --for 10m
      pointsmanctl guard auto --cluster c1
    """
    if mode == "show":
        if seconds is not None:
            raise click.UsageError("--for goes with hold or off")
        nodes = invocation.query_every(PointsmanNameServer.node_info)
        return invocation.finish(nodes, to_guards_document(nodes, cluster), guards_parts(nodes, cluster))
    if not cluster:
        raise click.UsageError(f"guard {mode} needs --cluster")
    if mode == "auto" and seconds is not None:
        raise click.UsageError("--for goes with hold or off; both end in auto")
    request = admin.SetGuardRequest(cluster=cluster, mode=_MODES[mode], by=by)
    if seconds is not None:
        request.duration.CopyFrom(Duration(seconds=seconds))

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        response = await server.call(server.admin.SetGuard, request, deadline=deadline)
        facts: Document = {"guard": to_document(response.guard)}
        return Outcome(guard_text(response.guard), facts=facts, warning=response.warning)

    return change_every(invocation, change)


@click.group(cls=CommandGroup)
def maintenance() -> None:
    """Schedule maintenance; departures are not outages.

    \b
    Examples:
      pointsmanctl maintenance on c1/broker-a --for 30m --note 'new disks'
      pointsmanctl maintenance list
    """


def _read_note(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    problem = text_problem(value, longest=MAX_TEXT_LENGTH)
    if problem:
        raise click.BadParameter(f"{value!r} {problem}" if len(value) <= MAX_TEXT_LENGTH else problem)
    return value


_target = click.argument(
    "target", callback=read_group_target, shell_complete=complete_targets, metavar="CLUSTER[/BROKER]"
)


@maintenance.command("on")
@_target
@duration_option("7d", required=True, help="Duration, e.g. 90s, 30m, 2h or 1d (max 7d).")
@click.option("--note", callback=_read_note, default="", metavar="TEXT", help="Reason, shown to other operators.")
@by_option
@pass_invocation
def maintenance_on(invocation: Invocation, target: GroupTarget, seconds: int, note: str, by: str) -> int:
    """Open a maintenance window for a cluster or a broker name.

    Repeating it for the same target replaces the window. A cluster or broker that is not registered yet is accepted and
    reported. Sent to all servers listed; exits 1 if one failed. Repeating it is safe.

    \b
    JSON: nodes[].{addr, changed, known} or {addr, error}; warning as in guard

    \b
    Examples:
      pointsmanctl maintenance on c1/broker-a --for 30m --note 'new disks'
      pointsmanctl maintenance on c1 --for 2h --note 'moving racks'
    """
    request = admin.SetMaintenanceRequest(
        cluster=target.cluster, broker_name=target.broker_name, duration=Duration(seconds=seconds), note=note, by=by
    )

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        known = await _is_known(server, deadline, target)
        response = await server.call(server.admin.SetMaintenance, request, deadline=deadline)
        text = f"{target} is in maintenance for {duration_text(seconds)}"
        if not known:
            text += f"; no such {'broker' if target.broker_name else 'cluster'} is registered here now"
        return Outcome(text, response.changed, {"known": known}, response.warning)

    return change_every(invocation, change)


@maintenance.command("off")
@_target
@by_option
@pass_invocation
def maintenance_off(invocation: Invocation, target: GroupTarget, by: str) -> int:
    """End the maintenance window of a cluster or broker name.

    Sent to all servers listed; exits 1 if one failed or if none had it.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}; warning as in guard

    \b
    Examples:
      pointsmanctl maintenance off c1/broker-a
      pointsmanctl maintenance off c1
    """
    request = admin.SetMaintenanceRequest(cluster=target.cluster, broker_name=target.broker_name, by=by)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        response = await server.call(server.admin.SetMaintenance, request, deadline=deadline)
        if not response.changed:
            raise not_there(server, f"no maintenance window of {target} is open", "MAINTENANCE_NOT_FOUND")
        return Outcome(f"{target}: maintenance ended", warning=response.warning)

    return change_every(invocation, change, absent=f"{target}: no window was open")


async def _is_known(server: PointsmanNameServer, deadline: float, target: GroupTarget) -> bool:
    request = admin.ListBrokersRequest(cluster=target.cluster, broker_name=target.broker_name, page_size=1)
    try:
        response = await server.call(server.admin.ListBrokers, request, deadline=deadline)
    except RequestRejectedError as refusal:
        if refusal.status is grpc.StatusCode.NOT_FOUND:
            return False
        raise
    return bool(response.brokers)


@maintenance.command("list")
@pass_invocation
def maintenance_list(invocation: Invocation) -> int:
    """List the open maintenance windows of each server.

    Queries all servers listed; exits 1 if one failed.

    \b
    JSON: nodes[].{addr, node, windows[].{cluster, brokerName,
          remainingSeconds, note, by}} or {addr, error}

    \b
    Examples:
      pointsmanctl maintenance list
      pointsmanctl -o json maintenance list | jq '.nodes[].windows[].note'
    """
    request = admin.ListMaintenanceRequest()
    nodes = invocation.query_every(
        lambda server, deadline: server.call(server.admin.ListMaintenance, request, deadline=deadline)
    )
    return invocation.finish(nodes, node_documents(nodes), node_parts(nodes, _windows))


def to_guards_document(nodes: InfoNodes, cluster: str) -> Document:
    """Render the guards of each node, or of one cluster."""

    def guards(response: admin.GetNodeInfoResponse) -> Document:
        shown = [to_document(guard) for guard in response.guards if cluster in {"", guard.cluster}]
        return {"node": response.node, "guards": shown}

    return node_documents(nodes, guards)


def guards_parts(nodes: InfoNodes, cluster: str) -> Iterable[RenderableType]:
    """Show the guards of each node, or of one cluster."""

    def guards(response: admin.GetNodeInfoResponse) -> Iterable[RenderableType]:
        shown = [guard for guard in response.guards if cluster in {"", guard.cluster}]
        if not shown:
            yield Text(f"cluster {cluster} is unknown here" if cluster else "no cluster is registered here")
            return
        numbers = ("LOST", "BASELINE", "UP", "SINCE", "AUTO RESUMES IN")
        table = new_table("CLUSTER", "MODE", "ACTIVE", *numbers, right=numbers)
        for guard in shown:
            table.add_row(
                guard.cluster,
                enum_name(guard, "mode"),
                Text("yes", style=ALARM) if guard.active else "no",
                str(guard.lost),
                str(guard.baseline),
                str(guard.up),
                duration_text(seconds_of(guard.active_for)) if guard.active else "-",
                duration_text(seconds_of(guard.mode_remaining)) if guard.HasField("mode_remaining") else "-",
            )
        yield table
        for guard in shown:
            if guard.reason:
                yield Text(f"{guard.cluster}: {printable(guard.reason)}", style=ALARM if guard.active else "")

    return node_parts(nodes, guards)


def _windows(response: admin.ListMaintenanceResponse) -> Iterable[RenderableType]:
    table = new_table("CLUSTER", "BROKER", "REMAINING", "AUTHOR", "NOTE", right=("REMAINING",))
    for window in response.windows:
        remaining = duration_text(seconds_of(window.remaining))
        name = window.broker_name or "(all)"
        table.add_row(window.cluster, name, remaining, printable(window.by), printable(window.note))
    yield table if response.windows else Text("no maintenance window is open")
