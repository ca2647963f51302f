"""Run something in a Spark session and print what it answers."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pointsman_report.commands.arguments import local_path
from pointsman_report.commands.command import exit_code
from pointsman_report.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pointsman_report.questions.answer import Answer

Say = Callable[[str], None]


@contextmanager
def running(options: argparse.Namespace, *, reads: Iterable[str]) -> Iterator[tuple[SparkSession, Say]]:
    """Open the session of a command that reads these folders, and give what it says its progress with.

    Raises:
        ModuleNotFoundError: pyspark is missing.
        SparkUnavailableError: Java is missing, or Spark did not start.
    """
    began = time.monotonic()
    name = f"pointsman-report {options.command}"
    local = [path for path in map(local_path, reads) if path is not None]
    shape = {"memory": options.memory, "reads": local, "over": dict(options.conf)}
    with spark_session(options.master, name=name, **shape) as spark:
        from pointsman_report.commands.progress import Progress  # noqa: PLC0415 - it imports py4j

        with Progress(spark, quiet=options.quiet) as progress:
            progress.say(f"{time.monotonic() - began:6.1f} s  Spark started")
            yield spark, progress.say
            progress.say(f"{time.monotonic() - began:6.1f} s  in all")


def answered(answer: Answer, options: argparse.Namespace, zone: ZoneInfo) -> int:
    """Print an answer as it was asked for, and return the exit code."""
    print(as_json(answer.as_dict()) if options.output == "json" else answer.text(zone).rstrip("\n"))
    return exit_code(answer.exit_code, options)


def as_json(told: dict[str, Any]) -> str:
    return json.dumps(told, indent=1, ensure_ascii=False)


def as_lines(told: dict[str, Any]) -> str:
    """For people, what a job did: a line a number."""
    return "\n".join(f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in told.items())


def _plain(value: object) -> str:
    match value:
        case list():
            return ", ".join(map(str, value)) or "none"
        case dict():
            return ", ".join(f"{name} {count}" for name, count in value.items()) or "none"
        case _:
            return str(value)
