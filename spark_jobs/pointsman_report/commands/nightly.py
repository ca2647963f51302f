"""``nightly``: compute one day from the history and the day before, and report on it."""

from __future__ import annotations

import argparse
from datetime import date

from pointsman_report.commands import computing
from pointsman_report.commands.arguments import YESTERDAY, day, yesterday
from pointsman_report.commands.command import Command


def _day(text: str) -> date | str:
    return text if text == YESTERDAY else day(text)


def _arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--date", type=_day, default=YESTERDAY, metavar="DAY", help="YYYY-MM-DD, or yesterday (the default)"
    )
    computing.add_arguments(command)


def _run(options: argparse.Namespace) -> int:
    parameters = computing.checked(options)
    asked = yesterday(parameters.report) if options.date == YESTERDAY else options.date
    return computing.compute(options, asked, asked, parameters, looks_back=True)


COMMAND = Command(
    name="nightly",
    summary="compute one day from the history and the day before, and report on it",
    details="""\
  pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse

computes yesterday, continuing from the day before, and writes WAREHOUSE/report/dt=2026-11-20/report.html beside
report.json. Give --history once for each name server. A day that is computed again replaces itself and nothing else.
A day is one of report.timezone. For a scheduler: --exit-zero --quiet --textfile FILE.""",
    arguments=_arguments,
    run=_run,
)
