"""Shell completion of the names of topics, clusters and brokers. Failures are silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import click

from pointsman.names import name_problem
from pointsman_ctl.options.access_options import read_access

if TYPE_CHECKING:
    from pointsman_ctl.options.invocation import Invocation

COMPLETION_SECONDS = 0.5
"""Deadline for the name servers, and then for the agents."""
MAX_NAMES = 1_000
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]
Lookup: TypeAlias = "Callable[[Invocation, click.Context], Iterable[str]]"


def completer(look_up: Lookup) -> Completer:
    """Return a callback for ``shell_complete=``; a name that a shell could interpret is not offered."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            names = set(look_up(_invocation(ctx), ctx))
        except Exception:  # noqa: BLE001  # any output would spoil the line that the user types
            return []
        return sorted(name for name in names if name.startswith(incomplete) and _is_safe(name))[:MAX_NAMES]

    return complete


def chosen_cluster(ctx: click.Context) -> str:
    """Return the value of --cluster, if it is given before the name."""
    return ctx.params.get("cluster") or ""


def _invocation(ctx: click.Context) -> Invocation:
    from pointsman_ctl.options.invocation import Invocation  # noqa: PLC0415  # imports gRPC, and every command this

    given = ctx.find_root().params
    name_servers = given.get("name_servers") or given["namesrv"]
    return Invocation(name_servers, "table", COMPLETION_SECONDS, read_access(given))


def _is_safe(name: str) -> bool:
    return not any(name_problem(part) or "|" in part for part in name.split("/"))


def _topics(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    cluster = chosen_cluster(ctx)
    return invocation.query_first(lambda server, deadline: server.topics(deadline, cluster=cluster)).topics


def _clusters(invocation: Invocation, _ctx: click.Context) -> Iterable[str]:
    response = invocation.query_first(lambda server, deadline: server.clusters(deadline))
    return (each.cluster for each in response.clusters)


def _brokers(
    invocation: Invocation, ctx: click.Context, *, with_departed: bool = False
) -> Iterator[tuple[str, str, int]]:
    cluster = chosen_cluster(ctx)
    found = invocation.query_first(
        lambda server, deadline: server.brokers(deadline, cluster=cluster, with_departed=with_departed)
    )
    for who in (status.identity for status in found.brokers):
        yield who.cluster, who.broker_name, who.broker_id
    for score in found.departed:
        yield score.cluster, score.broker_name, score.broker_id


def _broker_names(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    return (name for _, name, _ in _brokers(invocation, ctx))


def _all_broker_names(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    return (name for _, name, _ in _brokers(invocation, ctx, with_departed=True))


def _all_names(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    yield from _topics(invocation, ctx)
    yield from _all_broker_names(invocation, ctx)


def _replicas(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    return ("/".join(map(str, position)) for position in _brokers(invocation, ctx, with_departed=True))


def _targets(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    for cluster, name, _ in _brokers(invocation, ctx):
        yield from (cluster, f"{cluster}/{name}")


complete_topics = completer(_topics)
complete_clusters = completer(_clusters)
complete_broker_names = completer(_broker_names)
complete_all_broker_names = completer(_all_broker_names)
"""Departed brokers, too."""
complete_all_names = completer(_all_names)
"""Topics and broker names; groups are not offered, since agents would have to be queried."""
complete_replicas = completer(_replicas)
"""CLUSTER/BROKER/ID, also of departed brokers."""
complete_targets = completer(_targets)
"""CLUSTER and CLUSTER/BROKER."""
