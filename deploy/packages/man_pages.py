"""Write a man page for each program and each command from its help: man_pages.py FOLDER SECONDS.

SECONDS since 1970 are the date of the pages. Run by the Python of an environment with the programs; those that are not
installed there are skipped.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

PROGRAMS: dict[str, tuple[str, Callable[[Any], click.Command]]] = {
    "pointsman-agent": ("pointsman_agent.__main__", lambda module: module.DAEMON.command()),
    "pointsman-namesrv": ("pointsman_namesrv.__main__", lambda module: module.DAEMON.command()),
    "pointsman-observe": ("pointsman_namesrv.observe.__main__", lambda module: module.command),
    "pointsman-report": ("pointsman_report.cli", lambda module: module.cli),
    "pointsmanctl": ("pointsman_ctl.command_line", lambda module: module.cli),
}
"""By name: the module, and how its command line is found in it."""


def pages(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """The command's context and those of its commands, at every depth."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    context.terminal_width = 78
    yield context
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            if (found := command.get_command(context, sub)) is not None and not found.hidden:
                yield from pages(found, sub, context)


def page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def roff(text: str) -> str:
    """Text as it stands, without a meaning for roff."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def man_page(context: click.Context, version: str, date: str) -> str:
    """Return the page. The help is laid out already, so its lines are not filled."""
    usage, _, rest = context.get_help().partition("\n\n")
    related = [context.parent] if context.parent else []
    if isinstance(context.command, click.Group):
        related += list(pages(context.command, context.info_name or "", context.parent))[1:]
    about = context.command.get_short_help_str(limit=200).removesuffix(".")
    lines = [
        f'.TH {roff(page_name(context).upper())} 1 "{date}" "Pointsman {roff(version)}" "Pointsman"',
        ".SH NAME",
        f"{roff(page_name(context))} \\- {roff(about)}",
        ".SH SYNOPSIS",
        ".nf",
        roff(usage.removeprefix("Usage: ")),
        ".fi",
        ".SH DESCRIPTION",
        ".nf",
        roff(rest),
        ".fi",
    ]
    if related:
        lines += [".SH SEE ALSO", ",\n".join(f".BR {roff(page_name(each))} (1)" for each in related)]
    return "\n".join(lines) + "\n"


def main(folder: Path, seconds: int) -> None:
    """Write the pages of the installed programs."""
    folder.mkdir(parents=True, exist_ok=True)
    date = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
    for name, (module_name, command_of) in PROGRAMS.items():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").split(".")[0] != module_name.split(".")[0]:
                raise
            continue
        version = importlib.import_module(module_name.split(".")[0]).__version__
        for context in pages(command_of(module), name):
            (folder / f"{page_name(context)}.1").write_text(man_page(context, version, date), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
