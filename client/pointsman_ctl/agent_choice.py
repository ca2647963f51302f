"""Which agents a command is for: those of the brokers that the name servers know, or those named by address."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from pointsman.wire.names import addr_problem
from pointsman_ctl.argument import in_cluster


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """Whom to ask."""

    addrs: tuple[str, ...] = ()
    """These alone, without asking a name server."""
    cluster: str = ""
    """Only its agents; empty: all."""
    replicas_too: bool = False


def read_agent_addrs(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Read addresses; one given twice counts once."""
    for value in values:
        problem = addr_problem(value)
        if problem:
            raise click.BadParameter(f"agent address {value!r} {problem}")
    return tuple(dict.fromkeys(values))


agent_option = click.option(
    "--agent",
    "addrs",
    multiple=True,
    callback=read_agent_addrs,
    metavar="HOST:PORT",
    help="Ask this agent, and no name server; may be repeated.",
)
_all_option = click.option("--all", "replicas_too", is_flag=True, help="Agents of replicas, too, not of masters alone.")


def of_agents(command: Callable[..., int]) -> Callable[..., int]:
    """Give a look the options --agent, --cluster and --all; it gets them as ``choice``."""

    @agent_option
    @in_cluster
    @_all_option
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, replicas_too: bool, **options: object) -> int:
        if addrs and (cluster or replicas_too):
            raise click.UsageError("--agent asks these agents alone: leave --cluster and --all away")
        return command(*arguments, choice=AgentChoice(addrs, cluster, replicas_too), **options)

    return chosen


def of_every_agent(command: Callable[..., int]) -> Callable[..., int]:
    """Give a change the options --agent and --cluster; it gets them as ``choice``, of replicas as well."""

    @agent_option
    @in_cluster
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, **options: object) -> int:
        if addrs and cluster:
            raise click.UsageError("--agent tells these agents alone: leave --cluster away")
        return command(*arguments, choice=AgentChoice(addrs, cluster, replicas_too=True), **options)

    return chosen
