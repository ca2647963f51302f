"""What ``nightly`` and ``backfill`` share: compute days, write their report, print its summary."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from pointsman_report.commands import arguments
from pointsman_report.commands.command import FINDINGS, FINE, UsageError, exit_code
from pointsman_report.commands.running import as_json, running
from pointsman_report.parameters import Parameters


def add_arguments(command: argparse.ArgumentParser) -> None:
    arguments.add_histories(command)
    arguments.add_warehouse(command)
    command.add_argument(
        "--report", type=Path, metavar="DIR", help="where report.html and report.json go (default: below the warehouse)"
    )
    command.add_argument(
        "--textfile", type=Path, metavar="FILE", help="figures for node_exporter's textfile collector go to this .prom"
    )
    arguments.add_parameters(command)
    arguments.add_outcome(command)
    arguments.add_spark(command)


def checked(options: argparse.Namespace) -> Parameters:
    """Read the parameters, and find what is wrong with the places, before Spark starts.

    Raises:
        UsageError: something cannot be used.
        ParametersError: what stands in the file makes no sense.
    """
    arguments.checked_histories(options)
    report, textfile = options.report, options.textfile
    if report is not None and report.exists() and not report.is_dir():
        raise UsageError(f"--report {report}: no directory")
    if textfile is not None and textfile.is_dir():
        raise UsageError(f"--textfile {textfile}: a directory; name a file in it, such as pointsman.prom")
    return arguments.loaded_parameters(options)


def compute(
    options: argparse.Namespace,
    first_day: date,
    last_day: date,
    parameters: Parameters,
    *,
    looks_back: bool = False,
    reread: bool = False,
) -> int:
    """Compute the days and return the exit code.

    Raises:
        UsageError: the last day is still to come.
    """
    now = arguments.today(parameters.report)
    if last_day > now:
        raise UsageError(f"{last_day} has not begun: today is {now} in {parameters.report.timezone}")
    with running(options, reads=options.history) as (spark, say):
        # Only now: these import pyspark, whose absence has been said in one line.
        from pointsman_report.jobs.days import Request, compute_and_report  # noqa: PLC0415
        from pointsman_report.report.summary import summary  # noqa: PLC0415

        places = options.history, options.warehouse
        request = Request(
            *places,
            first_day,
            last_day,
            parameters,
            options.report,
            options.textfile,
            looks_back=looks_back,
            reread=reread,
        )
        numbers, page = compute_and_report(spark, request, say=say)
        say(f"          report: {page}")
    print(as_json(numbers) if options.output == "json" else summary(numbers))
    return exit_code(FINDINGS if numbers["headline"]["findings"] else FINE, options)
