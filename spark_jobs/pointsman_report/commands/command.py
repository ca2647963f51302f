"""What a command is: its name, the text that teaches it, its arguments, and what it does."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from pointsman_report.errors import ReportError

FINE, FINDINGS, FAILED = 0, 1, 2


class UsageError(ReportError):
    """Something the caller gave cannot be used; the text says what."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command; whatever needs pyspark is imported when it runs."""

    name: str
    summary: str
    """Its line in the list of commands; begins small."""
    details: str
    """What a person reads above the arguments: what comes of it, and examples."""
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Returns the exit code."""

    def add_to(self, commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        text = f"{self.summary[0].upper()}{self.summary[1:]}.\n\n{self.details}"
        formatter = argparse.RawDescriptionHelpFormatter
        self.arguments(commands.add_parser(self.name, help=self.summary, description=text, formatter_class=formatter))


def exit_code(code: int, options: argparse.Namespace) -> int:
    """Leave a scheduler alone with findings if it asked for that; a failure stays one."""
    return FINE if code == FINDINGS and options.exit_zero else code
