"""The commands ``nsaddr``: lists of name servers that RocketMQ's brokers and clients get over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman import address_list
from pointsman.names import addr_problem
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman_ctl.commands.server_changes import Outcome, change_every
from pointsman_ctl.options.command_options import (
    CommandGroup,
    Consent,
    change_options,
    confirm,
    read_name,
)
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.output_layout import new_table, node_documents, node_parts
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse

Edit = Callable[[tuple[str, ...]], tuple[str, ...]]
"""From the addresses of a list to the new ones; empty: no list."""


def _read_addrs(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    addrs = tuple(dict.fromkeys(values))
    for addr in addrs:
        if problem := addr_problem(addr):
            raise click.BadParameter(f"{addr!r} {problem}")
    if problem := address_list.list_problem(address_list.to_text(addrs)):
        raise click.BadParameter(f"the list {problem}")
    return addrs


_unit = click.option(
    "--unit", callback=read_name, metavar="NAME", help="The list of brokers and clients with this unit name."
)
_addrs = click.argument("addrs", metavar="HOST:PORT...", nargs=-1, required=True, callback=_read_addrs)


@click.group(cls=CommandGroup)
def nsaddr() -> None:
    """Show and change lists of name servers over HTTP.

    RocketMQ's brokers (fetchNamesrvAddrByAddressServer=true) and clients without a list of name servers ask
    http://rocketmq.namesrv.domain/rocketmq/nsaddr, again every two minutes at the latest. A name server answers with
    `[address_server] listen` set.

    \b
    Examples:
      pointsmanctl nsaddr show
      pointsmanctl nsaddr set ns1:9876 ns2:9876
    """


@nsaddr.command("show")
@pass_invocation
def nsaddr_show(invocation: Invocation) -> int:
    """Show the lists at each server.

    Queries all servers listed; exits 1 if one failed.

    \b
    JSON: nodes[].{addr, node, lists[].{unit, addrs[]}} or {addr, error}

    \b
    Examples:
      pointsmanctl nsaddr show
      pointsmanctl -o json nsaddr show | jq '.nodes[].lists'
    """
    nodes = _query(invocation)
    return invocation.finish(nodes, node_documents(nodes, _to_lists), node_parts(nodes, _lists))


@nsaddr.command("set")
@_addrs
@_unit
@change_options
@pass_invocation
def nsaddr_set(invocation: Invocation, addrs: tuple[str, ...], unit: str, consent: Consent) -> int:
    """Set a list to these addresses.

    What brokers and clients have now and will have is shown before, and you must confirm (without a terminal: --yes).
    Sent to all servers listed; exits 1 if one failed. Repeating it is safe.

    \b
    JSON: nodes[].{addr, changed, unit, before[], after[]} or {addr, error}

    \b
    Examples:
      pointsmanctl nsaddr set ns1:9876 ns2:9876
      pointsmanctl nsaddr set ns1:9876 --unit blue --dry-run
    """
    return _edit(invocation, unit, lambda _: addrs, consent)


@nsaddr.command("add")
@_addrs
@_unit
@change_options
@pass_invocation
def nsaddr_add(invocation: Invocation, addrs: tuple[str, ...], unit: str, consent: Consent) -> int:
    """Add addresses to a list, as `nsaddr set`.

    \b
    JSON: nodes[].{addr, changed, unit, before[], after[]} or {addr, error}

    \b
    Examples:
      pointsmanctl nsaddr add ns3:9876
      pointsmanctl --namesrv ns1:9877,ns2:9877 nsaddr add ns3:9876 --yes
    """
    return _edit(invocation, unit, lambda held: tuple(dict.fromkeys((*held, *addrs))), consent)


@nsaddr.command("remove")
@_addrs
@_unit
@change_options
@pass_invocation
def nsaddr_remove(invocation: Invocation, addrs: tuple[str, ...], unit: str, consent: Consent) -> int:
    """Remove addresses from a list, as `nsaddr set`.

    After the last one there is no list, and brokers and clients keep the one that they have.

    \b
    JSON: nodes[].{addr, changed, unit, before[], after[]} or {addr, error}

    \b
    Examples:
      pointsmanctl nsaddr remove ns1:9876
      pointsmanctl nsaddr remove ns1:9876 --unit blue --yes
    """
    return _edit(invocation, unit, lambda held: tuple(addr for addr in held if addr not in addrs), consent)


def _edit(invocation: Invocation, unit: str, edit: Edit, consent: Consent) -> int:
    """Change the list of each server from what that server has: lists may differ while they are changed."""
    key = address_list.key_of(unit)
    if not consent.dry_run and not consent.yes:
        nodes = _query(invocation)
        found = [node.response for node in nodes if node.response is not None]
        moves = sorted({_move(held, edit(held)) for held in (_held(response, key) for response in found)})
        confirm(f"{_name(unit)}: {'; '.join(moves)}. Change it?", yes=not moves)

    async def change(server: PointsmanNameServer, deadline: float) -> Outcome:
        request = admin.ListKvRequest(namespace=address_list.NAMESPACE)
        before = _held(await server.call(server.admin.ListKv, request, deadline=deadline), key)
        after = edit(before)
        is_change = before != after
        if is_change and not consent.dry_run:
            await _write(server, key, after, consent.by, deadline)
        text = f"{_name(unit)}: {_move(before, after) if is_change else f'{_shown(before)}, unchanged'}"
        facts: Document = {"unit": unit, "before": list(before), "after": list(after)}
        return Outcome(f"{text} (dry run)" if consent.dry_run else text, is_change and not consent.dry_run, facts)

    return change_every(invocation, change)


async def _write(server: PointsmanNameServer, key: str, addrs: tuple[str, ...], by: str, deadline: float) -> None:
    if not addrs:
        removal = admin.DeleteKvRequest(namespace=address_list.NAMESPACE, key=key, by=by)
        await server.call(server.admin.DeleteKv, removal, deadline=deadline)
        return
    text = address_list.to_text(addrs)
    request = admin.PutKvRequest(namespace=address_list.NAMESPACE, key=key, value=text, by=by)
    await server.call(server.admin.PutKv, request, deadline=deadline)


def _query(invocation: Invocation) -> list[NodeResponse[admin.ListKvResponse]]:
    request = admin.ListKvRequest(namespace=address_list.NAMESPACE)
    return invocation.query_every(lambda server, deadline: server.call(server.admin.ListKv, request, deadline=deadline))


def _held(response: admin.ListKvResponse, key: str) -> tuple[str, ...]:
    return next((address_list.to_addrs(entry.value) for entry in response.entries if entry.key == key), ())


def _name(unit: str) -> str:
    return f"list of unit {unit}" if unit else "list"


def _shown(addrs: tuple[str, ...]) -> str:
    return ", ".join(addrs) or "none"


def _move(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    return f"{_shown(before)} -> {_shown(after)}"


def _lists(response: admin.ListKvResponse) -> Iterable[RenderableType]:
    table = new_table("UNIT", "NAME SERVERS")
    for entry in response.entries:
        unit = address_list.unit_of(entry.key)
        table.add_row(unit or "-", _shown(address_list.to_addrs(entry.value)))
    yield table if response.entries else Text("no list is set")


def _to_lists(response: admin.ListKvResponse) -> Document:
    lists = [
        {"unit": address_list.unit_of(entry.key) or "", "addrs": list(address_list.to_addrs(entry.value))}
        for entry in response.entries
    ]
    return {"node": response.node, "lists": lists}
