"""What users of a version write: its commands with their options, and the names of its client, printed as JSON.

A script that imports nothing of the tests, so that it runs with the sources of any version.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator

import click

import pointsman_agent.__main__
import pointsman_client
import pointsman_client.sync
import pointsman_client.testing
import pointsman_namesrv.__main__
import pointsman_namesrv.observe.__main__
import pointsman_report.cli
from pointsman_ctl.command_line import cli
from pointsman_ctl.options.command_options import DefaultCommandGroup

PROGRAMS: dict[str, click.Command] = {
    "pointsmanctl": cli,
    "pointsman-report": pointsman_report.cli.cli,
    "pointsman-namesrv": pointsman_namesrv.__main__.DAEMON.command(),
    "pointsman-agent": pointsman_agent.__main__.DAEMON.command(),
    "pointsman-observe": pointsman_namesrv.observe.__main__.command,
}
MODULES = (pointsman_client, pointsman_client.sync, pointsman_client.testing)


def commands(words: str, command: click.Command) -> Iterator[tuple[str, list[str]]]:
    """Each command as it is typed, with its options."""
    params = list(command.params)
    if isinstance(command, DefaultCommandGroup):
        params += next(iter(command.commands.values())).params  # what it does without the name of a command
    yield words, sorted(option for each in params for option in (*each.opts, *each.secondary_opts))
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(f"{words} {name}", below)


def callables(name: str, value: object) -> Iterator[tuple[str, list[str]]]:
    """A class or function, and the public methods of a class, with their parameters."""
    yield name, parameters(value)
    ours = value.__mro__ if isinstance(value, type) else ()
    # What a class has from Python's own differs from one Python to the next.
    for base in (each for each in ours if each.__module__.startswith("pointsman")):
        for method, of_class in vars(base).items():
            if not method.startswith("_"):
                yield f"{name}.{method}", parameters(of_class)


def parameters(value: object) -> list[str]:
    """Return the names of its parameters; none for what is not called."""
    wrapped = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if not callable(wrapped):
        return []
    try:
        return [name for name in inspect.signature(wrapped).parameters if name not in {"self", "cls"}]
    except (TypeError, ValueError):
        return []


found = {
    "commands": dict(pair for words, command in PROGRAMS.items() for pair in commands(words, command)),
    "client": dict(
        pair
        for module in MODULES
        for name in module.__all__
        for pair in callables(f"{module.__name__}.{name}", getattr(module, name))
    ),
}
print(json.dumps(found, indent=1, sort_keys=True))
