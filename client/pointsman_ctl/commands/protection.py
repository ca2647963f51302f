"""What keeps a cluster whole: its guard, and announced maintenance."""

from __future__ import annotations

import click
import grpc
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.names import MAX_TEXT_LENGTH, text_problem
from pointsman_client.errors import RequestRejectedError
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl import operator_document, operator_table
from pointsman_ctl.argument import GroupTarget, by_option, duration_option, read_group_target, read_name
from pointsman_ctl.change import Done, change_every, not_there
from pointsman_ctl.document import to_guard_document
from pointsman_ctl.question import node_info_of, time_left
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.shared_option import CommandGroup
from pointsman_ctl.wording import duration_words, guard_words

_MODES = {"auto": admin.GUARD_MODE_AUTO, "hold": admin.GUARD_MODE_HOLD, "off": admin.GUARD_MODE_OFF}


@click.command()
@click.argument("mode", type=click.Choice(["show", *_MODES]), default="show")
@click.option("--cluster", callback=read_name, metavar="NAME", help="The cluster; needed for all but show.")
@duration_option("1d", help="Back to auto after this, as 10m; at most 1d.")
@by_option
@pass_settings
def guard(settings: Settings, mode: str, cluster: str, seconds: int | None, by: str) -> int:
    """Show or set how the guard of a cluster works.

    When too many brokers of a cluster are LOST at the same time, the network may be the cause: the guard then keeps
    them in the routes, PROTECTED. BASELINE is how many were alive when the window began.

    \b
      show  show the guards (default)
      auto  keep brokers while too many are lost at the same time
      hold  keep every broker, however few are lost
      off   expire brokers as usual, however many

    Queries or changes all servers listed; exits 1 if one failed.

    \b
    JSON of show: nodes[].{addr, node, guards[].{cluster, mode, active, lost,
                  baseline, up, activeForSeconds, reason, modeRemainingSeconds}}
    JSON of a change: nodes[].{addr, changed, guard.{as above}} or {addr, error};
                  warning where the disk refused it, so that a restart loses it

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
        nodes = settings.ask_every(node_info_of)
        whole = operator_document.to_guards_document(nodes, cluster)
        return settings.finish(nodes, whole, operator_table.guards_parts(nodes, cluster))
    if not cluster:
        raise click.UsageError(f"guard {mode} needs --cluster")
    if mode == "auto" and seconds is not None:
        raise click.UsageError("--for goes with hold or off: auto is what they end in")
    request = admin.SetGuardRequest(cluster=cluster, mode=_MODES[mode], by=by)
    if seconds is not None:
        request.duration.CopyFrom(Duration(seconds=seconds))

    async def change(link: NameServerLink, timeout_seconds: float) -> Done:
        answer = await link.call(link.admin.SetGuard, request, timeout_seconds=timeout_seconds)
        facts: Document = {"guard": to_guard_document(answer.guard)}
        return Done(guard_words(answer.guard), facts=facts, warning=answer.warning)

    return change_every(settings, change)


@click.group(cls=CommandGroup)
def maintenance() -> None:
    """Announce absences: who leaves meanwhile is no outage.

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


_target = click.argument("target", callback=read_group_target, metavar="CLUSTER[/BROKER]")


@maintenance.command("on")
@_target
@duration_option("7d", required=True, help="How long, as 90s, 30m, 2h or 1d; at most 7d.")
@click.option("--note", callback=_read_note, default="", metavar="TEXT", help="What for.")
@by_option
@pass_settings
def maintenance_on(settings: Settings, target: GroupTarget, seconds: int, note: str, by: str) -> int:
    """Announce that a cluster, or one broker name of it, may be away.

    Again for the same target replaces the window. A broker that is not known now may come later: it is accepted, and
    said. Sent to all servers listed; exits 1 if one failed, and may be repeated.

    \b
    JSON: nodes[].{addr, changed, known} or {addr, error}; warning as of guard

    \b
    Examples:
      pointsmanctl maintenance on c1/broker-a --for 30m --note 'new disks'
      pointsmanctl maintenance on c1 --for 2h --note 'moving racks'
    """
    request = admin.SetMaintenanceRequest(
        cluster=target.cluster, broker_name=target.broker_name, duration=Duration(seconds=seconds), note=note, by=by
    )

    async def change(link: NameServerLink, timeout_seconds: float) -> Done:
        left = time_left(timeout_seconds)
        known = await _is_known(link, left(), target)
        answer = await link.call(link.admin.SetMaintenance, request, timeout_seconds=left())
        words = f"{target} is in maintenance for {duration_words(seconds)}"
        if not known:
            words += f"; no such {'broker' if target.broker_name else 'cluster'} is known here now"
        return Done(words, answer.changed, {"known": known}, answer.warning)

    return change_every(settings, change)


@maintenance.command("off")
@_target
@by_option
@pass_settings
def maintenance_off(settings: Settings, target: GroupTarget, by: str) -> int:
    """End the maintenance window of a cluster or broker name.

    Sent to all servers listed; exits 1 if one failed or if none had it.

    \b
    JSON: nodes[].{addr, changed} or {addr, error}; warning as of guard

    \b
    Examples:
      pointsmanctl maintenance off c1/broker-a
      pointsmanctl maintenance off c1
    """
    request = admin.SetMaintenanceRequest(cluster=target.cluster, broker_name=target.broker_name, by=by)

    async def change(link: NameServerLink, timeout_seconds: float) -> Done:
        answer = await link.call(link.admin.SetMaintenance, request, timeout_seconds=timeout_seconds)
        if not answer.changed:
            raise not_there(link, f"no maintenance window of {target} is open", "MAINTENANCE_NOT_FOUND")
        return Done(f"{target}: maintenance ended", warning=answer.warning)

    return change_every(settings, change, absent=f"{target}: there was no window to end")


async def _is_known(link: NameServerLink, timeout_seconds: float, target: GroupTarget) -> bool:
    request = admin.ListBrokersRequest(cluster=target.cluster, broker_name=target.broker_name, page_size=1)
    try:
        answer = await link.call(link.admin.ListBrokers, request, timeout_seconds=timeout_seconds)
    except RequestRejectedError as refusal:
        if refusal.status is grpc.StatusCode.NOT_FOUND:
            return False
        raise
    return bool(answer.brokers)


@maintenance.command("list")
@pass_settings
def maintenance_list(settings: Settings) -> int:
    """Show the maintenance windows that are open on each server.

    Asks all servers listed; exits 1 if one did not answer.

    \b
    JSON: nodes[].{addr, node, windows[].{cluster, brokerName,
          remainingSeconds, note, by}} or {addr, error}

    \b
    Examples:
      pointsmanctl maintenance list
      pointsmanctl -o json maintenance list | jq '.nodes[].windows[].note'
    """
    request = admin.ListMaintenanceRequest()
    nodes = settings.ask_every(
        lambda link, seconds: link.call(link.admin.ListMaintenance, request, timeout_seconds=seconds)
    )
    whole = operator_document.to_maintenance_document(nodes)
    return settings.finish(nodes, whole, operator_table.maintenance_parts(nodes))


COMMANDS = (guard, maintenance)
