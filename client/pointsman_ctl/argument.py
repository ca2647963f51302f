"""Arguments and options as people write them, read and checked before anything is asked."""

from __future__ import annotations

import getpass
import math
import os
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import click

from pointsman.wire.names import MAX_BROKER_ID, text_problem
from pointsman_client.core.checks import check_name, to_name_servers
from pointsman_client.errors import InvalidAddressError, InvalidNameError
from pointsman_ctl.duration import duration_problem, to_seconds

MAX_BY_LENGTH = 128
CommandT = TypeVar("CommandT", bound=Callable[..., object])


class GroupTarget(NamedTuple):
    """A cluster, or one broker name in it."""

    cluster: str
    broker_name: str
    """Empty: the whole cluster."""

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}" if self.broker_name else self.cluster


class ReplicaTarget(NamedTuple):
    """One place in a replica group."""

    cluster: str
    broker_name: str
    broker_id: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}/{self.broker_id}"


def read_name_servers(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    """Read a list of addresses."""
    try:
        return to_name_servers(value)
    except InvalidAddressError as error:
        raise click.BadParameter(str(error)) from error


def read_addr(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Read one address."""
    addrs = read_name_servers(ctx, param, value)
    if len(addrs) != 1:
        raise click.BadParameter(f"{value!r} is more than one address")
    return addrs[0]


def read_name(_ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Read a name of RocketMQ's grammar; an option that is not given reads as empty."""
    return "" if value is None else _checked(param.name or "name", value)


def read_names(_ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Read several names; one given twice counts once."""
    return tuple(dict.fromkeys(_checked(param.human_readable_name.lower().rstrip("s."), value) for value in values))


def read_seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    """Read a plain number of seconds."""
    if math.isnan(value):
        # It is neither below nor above a bound.
        raise click.BadParameter("nan is no number of seconds")
    return value


def duration_option(longest: str, *, help: str, required: bool = False) -> Callable[[CommandT], CommandT]:  # noqa: A002
    """Make the option ``--for``: a duration up to ``longest``; the command gets whole seconds, or None."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        problem = duration_problem(value, longest=longest)
        if problem:
            raise click.BadParameter(problem)
        return to_seconds(value)

    return click.option("--for", "seconds", callback=read, metavar="DURATION", required=required, help=help)


def read_group_target(_ctx: click.Context, _param: click.Parameter, value: str | None) -> GroupTarget | None:
    """Read CLUSTER or CLUSTER/BROKER."""
    if value is None:
        return None
    cluster, slash, broker_name = value.partition("/")
    return GroupTarget(_checked("cluster", cluster), _checked("broker", broker_name) if slash else "")


def read_replica_target(_ctx: click.Context, _param: click.Parameter, value: str) -> ReplicaTarget:
    """Read CLUSTER/BROKER/ID."""
    parts = value.split("/")
    if len(parts) != 3:
        raise click.BadParameter(f"{value!r} must be CLUSTER/BROKER/ID, as c1/broker-a/0")
    cluster, broker_name, broker_id = parts
    if not (broker_id.isascii() and broker_id.isdigit() and len(broker_id) <= 10 and int(broker_id) <= MAX_BROKER_ID):
        raise click.BadParameter(f"broker id {broker_id!r} must be a number from 0 to {MAX_BROKER_ID}")
    return ReplicaTarget(_checked("cluster", cluster), _checked("broker", broker_name), int(broker_id))


def read_by(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    """Read who asks, or find it out."""
    by = _user_at_host() if value is None else value
    problem = text_problem(by, longest=MAX_BY_LENGTH) if by else "must not be empty"
    if problem:
        raise click.BadParameter(f"{by!r} {problem}")
    return by


in_cluster = click.option("--cluster", callback=read_name, metavar="NAME", help="Only this cluster.")
by_option = click.option(
    "--by", callback=read_by, metavar="WHO", help="Who asks, for the history.  [default: user@host]"
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask whether it is meant.")


def _checked(kind: str, name: str) -> str:
    try:
        check_name(kind, name)
    except InvalidNameError as error:
        raise click.BadParameter(str(error)) from error
    return name


def _user_at_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user need not have a name.
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    by = f"{user}@{socket.gethostname()}"
    return "".join(character if character.isprintable() else "?" for character in by)[:MAX_BY_LENGTH]
