"""What ``route-at`` and ``explain`` share: a topic, a moment, and where the history of it is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pointsman_report.commands import arguments, moment
from pointsman_report.commands.command import UsageError
from pointsman_report.commands.running import answered, running

if TYPE_CHECKING:
    from pointsman_report.questions.answer import Answer
    from pointsman_report.questions.source import Source

Question = Callable[["Source", str, datetime, str | None], "Answer"]


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument("--at", type=moment.written, required=True, metavar="TIME", help=moment.HELP)
    command.add_argument("--cluster", metavar="NAME", help="this cluster alone (default: all that have the topic)")
    arguments.add_warehouse(command, required=False)
    arguments.add_histories(command, required=False)
    arguments.add_parameters(command)
    arguments.add_outcome(command)
    arguments.add_spark(command)


def ask(options: argparse.Namespace, question: Question) -> int:
    """Ask a warehouse, or history that no night has read yet; print the answer and return the exit code."""
    if (options.warehouse is None) == (not options.history):
        raise UsageError(
            "say one of the two: --warehouse DIR (days that were computed) or --history DIR (the files as they are)"
        )
    zone = arguments.loaded_parameters(options).report.zone
    now = datetime.now(tz=UTC)
    at = moment.instant(options.at, zone, now=now)
    if at > now:
        raise UsageError(f"--at {options.at} is still to come")
    histories = arguments.checked_histories(options)
    warehouse = None if options.warehouse is None else arguments.checked_warehouse(options)
    with running(options, reads=histories if warehouse is None else [warehouse]) as (spark, _):
        # Only now: these import pyspark, whose absence has been said in one line.
        from pointsman_report.io import History, Warehouse  # noqa: PLC0415
        from pointsman_report.questions.source import Source  # noqa: PLC0415

        source = (
            Source(history=History(spark, histories))
            if warehouse is None
            else Source(warehouse=Warehouse(spark, warehouse))
        )
        answer = question(source, options.topic, at, options.cluster)
    return answered(answer, options, zone)
