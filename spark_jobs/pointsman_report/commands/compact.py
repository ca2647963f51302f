"""``compact``: rewrite past months, one file a table and day."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from pointsman_report.commands import arguments
from pointsman_report.commands.command import FINE, Command, UsageError
from pointsman_report.commands.running import as_json, as_lines, running


def _arguments(command: argparse.ArgumentParser) -> None:
    arguments.add_warehouse(command)
    command.add_argument(
        "--before", type=arguments.day, required=True, metavar="DAY", help="months that are over before this day"
    )
    command.add_argument(
        "--keep-beats-days",
        type=arguments.count,
        metavar="DAYS",
        help="drop single heartbeats and queue measurements that were older than so many days at --before; such a day "
        "cannot be computed anew from the warehouse",
    )
    arguments.add_output(command)
    arguments.add_spark(command)


def _run(options: argparse.Namespace) -> int:
    warehouse = arguments.checked_warehouse(options)
    today = datetime.now(tz=UTC).date()
    if options.before > today:
        raise UsageError(f"--before {options.before} has not begun: today is {today}")
    with running(options, reads=[warehouse]) as (spark, say):
        from pointsman_report.jobs.compact import compact  # noqa: PLC0415 - it imports pyspark

        told = compact(
            spark, warehouse, before=options.before, say=say, keep_beats_days=options.keep_beats_days
        ).as_dict()
    print(as_json(told) if options.output == "json" else as_lines(told))
    return FINE


COMMAND = Command(
    name="compact",
    summary="rewrite past months: one file a table and day, packed harder",
    details="""\
  pointsman-report compact --warehouse /srv/warehouse --before 2026-11-01
  pointsman-report compact --warehouse /srv/warehouse --before 2026-11-01 --keep-beats-days 90

Without --keep-beats-days no row changes. A day that is computed again is compacted again.""",
    arguments=_arguments,
    run=_run,
)
