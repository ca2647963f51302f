"""Arguments and options of commands, checked before a server is queried."""

from __future__ import annotations

import getpass
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from pointsman.names import MAX_BROKER_ID, is_observed, name_problem, observed_addr, read_observed, text_problem
from pointsman.names import read_name_servers as to_name_servers
from pointsman_ctl.options.name_completion import complete_clusters

MAX_BY_LENGTH = 128
CommandT = TypeVar("CommandT", bound=Callable[..., object])
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_NUMBER = re.compile(r"[0-9]{1,9}")


class GroupTarget(NamedTuple):
    """A cluster, or one broker name in it."""

    cluster: str
    broker_name: str
    """Empty: all of the cluster."""

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}" if self.broker_name else self.cluster


class ReplicaTarget(NamedTuple):
    """One position in a replica group."""

    cluster: str
    broker_name: str
    broker_id: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}/{self.broker_id}"


def read_name_servers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """Read addresses, as :func:`~pointsman.names.read_name_servers` does, or one of an observer."""
    try:
        if is_observed(value):
            observer, name_server = read_observed(value)
            return (observed_addr(observer, name_server),)
        return to_name_servers(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=_source(ctx, param)) from None


def _source(ctx: click.Context, param: click.Parameter) -> str | None:
    """Name the environment variable if the value comes from it: click names it for the option, too."""
    if not isinstance(param, click.Option):
        return None
    if ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        return f"environment variable {param.envvar}"
    return f"'{param.opts[0]}'"


def read_addr(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Read one address."""
    addrs = read_name_servers(ctx, param, value)
    if len(addrs) != 1:
        raise click.BadParameter(f"{value!r} is more than one address")
    return addrs[0]


def read_name(_ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Read a name of RocketMQ's grammar; a missing option is empty."""
    return "" if value is None else _checked(param.name or "name", value)


def read_names(_ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Read names without duplicates."""
    return tuple(dict.fromkeys(_checked(param.human_readable_name.lower().rstrip("s."), value) for value in values))


def read_seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    """Read a number of seconds."""
    if math.isnan(value):
        # Comparisons with its limits are all false.
        raise click.BadParameter("'nan' is not a valid number of seconds")
    return value


def read_duration(text: str, *, longest: str) -> int:
    """Return the seconds of a duration such as 90s, 10m, 2h or 1d; ``longest`` has the same format."""
    match = _DURATION.fullmatch(text)
    if match is None:
        if _NUMBER.fullmatch(text):
            raise click.BadParameter(f"duration {text!r} has no unit: use {text}s, {text}m, {text}h or {text}d")
        raise click.BadParameter(f"invalid duration {text!r}: use e.g. 90s, 10m, 2h or 1d")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds == 0:
        raise click.BadParameter(f"duration must be greater than zero, got {text!r}")
    if text != longest and seconds > read_duration(longest, longest=longest):
        raise click.BadParameter(f"duration must be at most {longest}, got {text!r}")
    return seconds


def duration_option(longest: str, *, help: str, required: bool = False) -> Callable[[CommandT], CommandT]:  # noqa: A002
    """Return the option ``--for``: a duration up to ``longest``, passed as integer seconds or None."""

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
        raise click.BadParameter(f"broker must be CLUSTER/BROKER/ID, e.g. c1/broker-a/0, got {value!r}")
    cluster, broker_name, broker_id = parts
    if not (broker_id.isascii() and broker_id.isdigit() and len(broker_id) <= 10 and int(broker_id) <= MAX_BROKER_ID):
        raise click.BadParameter(f"broker id must be a number from 0 to {MAX_BROKER_ID}, got {broker_id!r}")
    return ReplicaTarget(_checked("cluster", cluster), _checked("broker", broker_name), int(broker_id))


def read_by(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    """Read the author of a change; default: user@host."""
    by = _user_at_host() if value is None else value
    problem = text_problem(by, longest=MAX_BY_LENGTH) if by else "must not be empty"
    if problem:
        raise click.BadParameter(f"{by!r} {problem}")
    return by


in_cluster = click.option(
    "--cluster", callback=read_name, shell_complete=complete_clusters, metavar="NAME", help="Only this cluster."
)


by_option = click.option(
    "--by", callback=read_by, metavar="WHO", help="Author of the change, recorded in the history.  [default: user@host]"
)


yes_option = click.option("--yes", "-y", is_flag=True, help="Skip the confirmation prompt.")


@dataclass(frozen=True, slots=True)
class Consent:
    """What an operator says about a planned change."""

    by: str
    yes: bool
    """Confirmed beforehand."""
    dry_run: bool
    """Only the plan is wanted."""


def change_options(command: CommandT) -> CommandT:
    """Add the options of a planned change, passed as ``consent``."""

    @wraps(command)
    def with_consent(*args: object, by: str, yes: bool, dry_run: bool, **values: object) -> object:
        return command(*args, consent=Consent(by, yes, dry_run), **values)

    dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
    return cast("CommandT", dry_run_option(yes_option(by_option(with_consent))))


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
    """Ask for confirmation. Raises NotConfirmedError, or a usage error without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} No terminal for the confirmation: add --yes")
    if not click.confirm(question, err=True):
        from pointsman_ctl.output.error_report import NotConfirmedError  # noqa: PLC0415  # imports gRPC

        raise NotConfirmedError


OUTPUT = click.Choice(["table", "json"])
TIMEOUT = click.FloatRange(min=0.001, max=3600)


class CommandGroup(click.Group):
    """A group of commands that prints its help if no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises NoCommandError."""
        if not args and not ctx.resilient_parsing:
            raise NoCommandError("a command is missing", ctx)
        return super().parse_args(ctx, args)


class DefaultCommandGroup(CommandGroup):
    """A group of commands whose first command is also what the group does if its first argument names none.

    So a command that showed something got commands beside it, and is called as before. Where its own argument is the
    name of a command, the first command must be written.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the first command in front, unless a command or the help of the group is requested."""
        is_completed_here = ctx.resilient_parsing and not args
        if not is_completed_here and not (args and (args[0] in self.commands or args[0] in ctx.help_option_names)):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and what the first one completes."""
        first = next(iter(self.commands.values()))
        found = super().shell_complete(ctx, incomplete)
        with first.make_context(first.name, [], parent=ctx, resilient_parsing=True) as inner:
            argument = next((each for each in first.params if isinstance(each, click.Argument)), None)
            if argument is None or incomplete.startswith("-"):
                return [*found, *first.shell_complete(inner, incomplete)]
            return [*found, *argument.shell_complete(inner, incomplete)]


class NoCommandError(click.UsageError):
    """No command of a group was given: its help is printed."""


def add_shared_options(command: click.Command) -> None:
    """Accept the shared options after a command, and after those of a group, too; the last one applies."""
    command.epilog = "Options of all commands, exit codes: `pointsmanctl options`."
    shared = [
        _option("name_servers", "--namesrv", read=read_name_servers),
        _option("output", "--output", "-o", type=OUTPUT),
        _option("timeout_seconds", "--timeout", type=TIMEOUT, read=read_seconds),
    ]
    own = {name for param in command.params for name in param.opts}
    command.params += [option for option in shared if not own.intersection(option.opts)]
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_shared_options(inner)


def _option(
    field: str,
    *names: str,
    type: click.ParamType[Any] | None = None,  # noqa: A002  # click's word
    read: Callable[[click.Context, click.Parameter, Any], Any] | None = None,
) -> click.Option:
    def keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value is None:
            return
        change: dict[str, Any] = {field: read(ctx, param, value) if read else value}
        if ctx.obj is not None:
            # The invocation.
            ctx.obj = replace(ctx.obj, **change)
        else:
            # Shell completion runs no command, so there is no invocation.
            ctx.find_root().params.update(change)

    return click.Option(names, type=type, callback=keep, expose_value=False, hidden=True)
