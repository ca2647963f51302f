"""Arguments and options of commands: read, and checked before anything is asked."""

from __future__ import annotations

import getpass
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import click

from pointsman.wire.names import MAX_BROKER_ID, addr_problem, name_problem, text_problem
from pointsman_client import Credentials
from pointsman_ctl.error_report import NotConfirmedError
from pointsman_ctl.invocation import Invocation

MAX_BY_LENGTH = 128
CommandT = TypeVar("CommandT", bound=Callable[..., object])
_SEPARATOR = re.compile(r"[,;]")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_NUMBER = re.compile(r"[0-9]{1,9}")


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
    """Read addresses, separated by commas or (as RocketMQ has it) semicolons, one at the end too."""
    addrs = [addr.strip() for addr in _SEPARATOR.split(value)]
    addrs = addrs if addrs[-1] else addrs[:-1]
    if not any(addrs):
        raise click.BadParameter("no name server given: pass at least one host:port")
    problems = [f"{addr!r} {problem}" for addr in addrs if (problem := addr_problem(addr))]
    if problems:
        raise click.BadParameter("name server address " + "; ".join(problems))
    return tuple(dict.fromkeys(addrs))


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


def read_duration(text: str, *, longest: str) -> int:
    """Read a duration as 90s, 10m, 2h or 1d and return seconds; ``longest`` is written in the same way."""
    match = _DURATION.fullmatch(text)
    if match is None:
        if _NUMBER.fullmatch(text):
            raise click.BadParameter(f"{text!r} has no unit: write {text}s, {text}m, {text}h or {text}d")
        raise click.BadParameter(f"{text!r} is no duration: write a whole number and a unit, as 90s, 10m, 2h or 1d")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds == 0:
        raise click.BadParameter(f"{text!r} must be more than zero")
    if text != longest and seconds > read_duration(longest, longest=longest):
        raise click.BadParameter(f"{text!r} is longer than {longest}")
    return seconds


def duration_option(longest: str, *, help: str, required: bool = False) -> Callable[[CommandT], CommandT]:  # noqa: A002
    """Make the option ``--for``: a duration up to ``longest``; the command gets whole seconds, or None."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
        return None if value is None else read_duration(value, longest=longest)

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
    problem = name_problem(name)
    if problem:
        raise click.BadParameter(f"{kind} {name!r} {problem}")
    return name


def _user_at_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user need not have a name.
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    by = f"{user}@{socket.gethostname()}"
    return "".join(character if character.isprintable() else "?" for character in by)[:MAX_BY_LENGTH]


def confirm(question: str, *, yes: bool) -> None:
    """Return if it is meant. Raises NotConfirmedError, or a usage error where there is no terminal to ask on."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes")
    if not click.confirm(question, err=True):
        raise NotConfirmedError


ACCESS_OPTIONS = {
    "tls": ("tls", "Connect with TLS; on with any option of it below."),
    "tls_ca": ("ca", "CAs of the servers' certificates, PEM.  [default: public ones]"),
    "tls_certificate": ("certificate", "Own certificate, PEM, if servers ask for one."),
    "tls_key": ("key", "Private key of that certificate, PEM."),
    "tls_server_name": ("server_name", "Name in their certificates, if not the host."),
    "token_file": ("token_file", "Bearer token, over TLS or to loopback only."),
}
"""Of the whole command: the field of Credentials, and the help."""


def access_options(command: CommandT) -> CommandT:
    """Add the options of access, each with its environment variable."""
    for name, (_, text) in reversed(ACCESS_OPTIONS.items()):
        flag = f"--{name.replace('_', '-')}"
        if name == "tls":
            option = click.option(flag, is_flag=True, envvar="POINTSMAN_TLS", show_envvar=True, help=text)
        else:
            metavar = "NAME" if name == "tls_server_name" else "FILE"
            envvar = f"POINTSMAN_{name.upper()}"
            option = click.option(flag, metavar=metavar, default="", envvar=envvar, show_envvar=True, help=text)
        command = option(command)
    return command


def read_credentials(values: Mapping[str, Any]) -> Credentials:
    """Build credentials of the values of :func:`access_options`. Raises a usage error for files that cannot be used."""
    credentials = Credentials(**{ACCESS_OPTIONS[name][0]: value for name, value in values.items()})
    options = {field: f"--{name.replace('_', '-')}" for name, (field, _) in ACCESS_OPTIONS.items()}
    problems = [(*problem.partition(": "),) for problem in credentials.problems()]
    if problems:
        raise click.UsageError("; ".join(f"{options[field]}: {text}" for field, _, text in problems))
    return credentials


OUTPUT = click.Choice(["table", "json"])
TIMEOUT = click.FloatRange(min=0.001, max=3600)


class CommandGroup(click.Group):
    """A group of commands that answers with its help when none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises NoCommandError."""
        if not args and not ctx.resilient_parsing:
            raise NoCommandError("a command is missing", ctx)
        return super().parse_args(ctx, args)


class NoCommandError(click.UsageError):
    """No command of a group was named: its help is the answer."""


def take_after(command: click.Command) -> None:
    """Let a command, and those of a group, take the shared options; what stands last counts."""
    command.params += [
        _option("name_servers", "--namesrv", read=read_name_servers),
        _option("output", "--output", "-o", type=OUTPUT),
        _option("timeout_seconds", "--timeout", type=TIMEOUT, read=read_seconds),
    ]
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            take_after(inner)


def _option(
    field: str,
    *names: str,
    type: click.ParamType[Any] | None = None,  # noqa: A002  # click's word
    read: Callable[[click.Context, click.Parameter, Any], Any] | None = None,
) -> click.Option:
    def keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
        invocation = ctx.find_object(Invocation)
        if value is not None and invocation is not None:
            change: dict[str, Any] = {field: read(ctx, param, value) if read else value}
            ctx.obj = replace(invocation, **change)

    return click.Option(names, type=type, callback=keep, expose_value=False, hidden=True)
