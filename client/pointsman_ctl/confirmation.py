"""Ask a person before something that hurts; without a person the command line itself must say yes."""

from __future__ import annotations

import sys

import click

from pointsman_ctl.failure import NotConfirmedError


def confirm(question: str, *, yes: bool) -> None:
    """Return if it is meant. Raises NotConfirmedError, or a usage error where there is no terminal to ask on."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes")
    if not click.confirm(question, err=True):
        raise NotConfirmedError
