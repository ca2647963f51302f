"""``backfill``: compute a range of days in one pass."""

from __future__ import annotations

import argparse

from pointsman_report.commands import computing
from pointsman_report.commands.arguments import add_range, checked_range
from pointsman_report.commands.command import Command


def _arguments(command: argparse.ArgumentParser) -> None:
    add_range(command)
    command.add_argument(
        "--reread", action="store_true", help="drop the stored history of these days and read the raw files alone"
    )
    computing.add_arguments(command)


def _run(options: argparse.Namespace) -> int:
    first_day, last_day = checked_range(options)
    return computing.compute(options, first_day, last_day, computing.checked(options), reread=options.reread)


COMMAND = Command(
    name="backfill",
    summary="compute a range of days in one pass; the same tables as night by night",
    details="""\
  pointsman-report backfill --history HISTORY --warehouse /srv/warehouse --from 2026-11-01 --to 2026-11-20

after a gap, for a new warehouse, or with other parameters. One report tells of all days.""",
    arguments=_arguments,
    run=_run,
)
