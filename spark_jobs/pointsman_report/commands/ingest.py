"""``ingest``: bring new history into the warehouse, without a report."""

from __future__ import annotations

import argparse

from pointsman_report.commands import arguments
from pointsman_report.commands.command import FINE, Command
from pointsman_report.commands.running import as_json, as_lines, running


def _arguments(command: argparse.ArgumentParser) -> None:
    arguments.add_histories(command)
    arguments.add_warehouse(command)
    arguments.add_output(command)
    arguments.add_spark(command)


def _run(options: argparse.Namespace) -> int:
    histories = arguments.checked_histories(options)
    with running(options, reads=histories) as (spark, say):
        from pointsman_report.jobs.ingest import ingest  # noqa: PLC0415 - it imports pyspark

        told = ingest(spark, histories, options.warehouse, say=say).as_dict()
    print(as_json(told) if options.output == "json" else as_lines(told))
    return FINE


COMMAND = Command(
    name="ingest",
    summary="bring the rows of new and changed files of history into the warehouse, without a report",
    details="""\
  pointsman-report ingest --history HISTORY --warehouse /srv/warehouse

each hour makes the night short, and rows that came late find their day. Running it again changes nothing.""",
    arguments=_arguments,
    run=_run,
)
