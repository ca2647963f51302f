"""``compare``: what changed between two days of the warehouse."""

from __future__ import annotations

import argparse

from pointsman_report.commands import arguments
from pointsman_report.commands.command import Command
from pointsman_report.commands.running import answered, running


def _arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("one", type=arguments.day, metavar="DATE", help="a computed day (YYYY-MM-DD)")
    command.add_argument("other", type=arguments.day, metavar="DATE", help="the day that is held against it")
    arguments.add_warehouse(command)
    arguments.add_timezone(command)
    arguments.add_outcome(command)
    arguments.add_spark(command)


def _run(options: argparse.Namespace) -> int:
    warehouse = arguments.checked_warehouse(options)
    zone = arguments.loaded_parameters(options).report.zone
    with running(options, reads=[warehouse]) as (spark, _):
        # Only now: these import pyspark, whose absence has been said in one line.
        from pointsman_report.io import Warehouse  # noqa: PLC0415
        from pointsman_report.questions.compare import compare  # noqa: PLC0415

        answer = compare(Warehouse(spark, warehouse), options.one, options.other)
    return answered(answer, options, zone)


COMMAND = Command(
    name="compare",
    summary="what got better or worse from one computed day to another",
    details="""\
  pointsman-report compare 2026-11-13 2026-11-20 --warehouse /srv/warehouse

exit code: 0 nothing got worse; 1 something did; 2 failed, as where a day was not computed.""",
    arguments=_arguments,
    run=_run,
)
