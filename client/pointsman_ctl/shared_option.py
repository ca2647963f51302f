"""The options that all commands share: they stand before the command, and are taken after it as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from pointsman_ctl.argument import read_name_servers, read_seconds
from pointsman_ctl.settings import Settings

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
        settings = ctx.find_object(Settings)
        if value is not None and settings is not None:
            change: dict[str, Any] = {field: read(ctx, param, value) if read else value}
            ctx.obj = replace(settings, **change)

    return click.Option(names, type=type, callback=keep, expose_value=False, hidden=True)
