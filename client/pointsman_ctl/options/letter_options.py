"""Options that select dead letters, and errors of the files that they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TypeVar, cast

import click

from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.options.moment_options import moment_option
from pointsman_ctl.options.name_completion import chosen_cluster, completer
from pointsman_ctl.servers.dead_letters import group_of
from pointsman_ctl.servers.letter_selection import FIELDS, read_selection

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def selection_options(command: CommandT) -> CommandT:
    """Add the options that select dead letters, passed as ``selection``."""

    @wraps(command)
    def with_selection(
        *args: object,
        conditions: tuple[str, ...],
        keys: tuple[str, ...],
        since: datetime | None,
        until: datetime | None,
        **values: object,
    ) -> object:
        try:
            selection = read_selection([*conditions, *(f"key={key}" for key in keys)], since=since, until=until)
        except ValueError as error:
            raise click.UsageError(f"selection: {error}") from None
        return command(*args, selection=selection, **values)

    options = (
        click.option(
            "--select",
            "conditions",
            multiple=True,
            metavar="FIELD=VALUE",
            help=f"Only these; FIELD is one of {', '.join(FIELDS)}. Repeatable.",
        ),
        click.option("--key", "keys", multiple=True, metavar="KEY", help="The same as --select key=KEY."),
        moment_option("--since", help="Only messages born at this time or later, e.g. 03:12 or 90m (ago)."),
        moment_option("--until", help="Only messages born before this time."),
    )
    decorated: Callable[..., object] = with_selection
    for option in reversed(options):
        decorated = option(decorated)
    return cast("CommandT", decorated)


def _dead_groups(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    cluster = chosen_cluster(ctx)
    listed = invocation.query_first(lambda server, deadline: server.topics(deadline, cluster=cluster))
    return filter(None, map(group_of, listed.topics))


complete_dead_groups = completer(_dead_groups)
"""Groups that have dead letters."""


@contextmanager
def file_errors(file: Path) -> Iterator[None]:
    """Raise click.FileError for errors of a file."""
    try:
        yield
    except OSError as error:
        raise click.FileError(str(file), error.strerror or str(error)) from error
