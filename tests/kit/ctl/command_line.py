"""Command lines of `pointsmanctl`, parsed and not run."""

from __future__ import annotations

import shlex
from typing import Any

import click

from pointsman_ctl.command_line import cli


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """Return the command with its arguments and options; a subcommand follows its group after a blank.

    Raises:
        click.UsageError: a command or option does not exist, or its value is invalid.
    """
    program, *words = shlex.split(line)
    assert program == "pointsmanctl"
    command: click.Command = cli
    context = cli.make_context(program, words)
    names, found = list[str](), dict(context.params)
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, inner, rest = command.resolve_command(context, rest)
        assert name is not None
        assert inner is not None
        names.append(name)
        command = inner
        context = inner.make_context(name, rest, parent=context)
        found |= context.params
    return " ".join(names), found
