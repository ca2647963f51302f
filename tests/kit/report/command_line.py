"""Command lines of `pointsman-report`, parsed and not run."""

from __future__ import annotations

from typing import Any

from pointsman_report.cli import cli


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the arguments of a subcommand and its options.

    Raises:
        click.UsageError: an option does not exist or its value is invalid.
    """
    name, *rest = words
    return cli.commands[name].make_context(name, rest).params
