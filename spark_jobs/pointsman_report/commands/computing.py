"""Commands that compute tables: ``nightly``, ``backfill``, ``ingest``, ``compact``; ``stages``, which shows how; and
``prepare``, which lets them start faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from pointsman_report import webhook
from pointsman_report.commands import arguments
from pointsman_report.commands.arguments import (
    FILE,
    FINDINGS,
    SUCCESS,
    YESTERDAY,
    Days,
    Outcome,
    ParameterOptions,
    SparkOptions,
)
from pointsman_report.commands.running import Log, as_json, as_lines, running
from pointsman_report.parameters import Parameters
from pointsman_report.spark_session import Seen


@dataclass(frozen=True, slots=True)
class Job:
    """Shared arguments of ``nightly`` and ``backfill``."""

    history: Sequence[str]
    warehouse: str
    report: Path | None
    textfile: Path | None
    notify: str | None

    def check(self) -> None:
        """Check the paths before Spark starts.

        Raises:
            click.UsageError: a path cannot be used.
        """
        arguments.checked_histories(self.history)
        report, textfile = self.report, self.textfile
        if report is not None and report.exists() and not report.is_dir():
            raise click.UsageError(f"--report {report}: not a directory")
        if textfile is not None and textfile.is_dir():
            raise click.UsageError(f"--textfile {textfile}: is a directory; give a file in it, e.g. pointsman.prom")


job_options = arguments.option_group(
    "job",
    Job,
    arguments.history_option(),
    arguments.warehouse_option(),
    click.option(
        "--report",
        type=FILE,
        metavar="DIR",
        help="Directory for report.html, report.json and report.md.  [default: below the warehouse]",
    ),
    click.option("--textfile", type=FILE, metavar="FILE", help="Metrics for node_exporter's textfile collector."),
    click.option(
        "--notify",
        metavar="URL",
        help="Webhook to post the summary to, as JSON; overrides report.notify_url of the file.",
    ),
)


def _day(text: str) -> date | str:
    return text if text == YESTERDAY else arguments.day(text)


@click.command
@click.option(
    "--date",
    "requested_day",
    type=_day,
    default=YESTERDAY,
    show_default=True,
    metavar="DAY",
    help="Day to compute: YYYY-MM-DD or yesterday.",
)
@job_options
@arguments.parameter_options
@arguments.outcome_options
@arguments.spark_options
def nightly(requested_day: date | str, job: Job, given: ParameterOptions, outcome: Outcome, spark: SparkOptions) -> int:
    """Compute one day and write its report.

    Continues from the day before, and writes report.html, report.json and report.md to
    WAREHOUSE/report/dt=2026-11-20/. Computing a day again replaces only that day. Days are in report.timezone. For a
    scheduler: --exit-zero --quiet --textfile FILE.

    \b
    Example:
      pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse
    """
    job.check()
    parameters = given.loaded({"report.notify_url": job.notify})
    day = arguments.yesterday(parameters.report) if isinstance(requested_day, str) else requested_day
    return _compute(job, day, day, parameters, outcome, spark, accept_late=True)


@click.command
@arguments.range_options
@click.option("--reread", is_flag=True, help="Drop the stored history of these days and read only the raw files.")
@job_options
@arguments.parameter_options
@arguments.outcome_options
@arguments.spark_options
def backfill(
    days: Days, job: Job, given: ParameterOptions, outcome: Outcome, spark: SparkOptions, *, reread: bool
) -> int:
    """Compute a range of days in one pass.

    Gives the same tables as nightly runs: after a gap, for a new warehouse, or with other parameters. Writes one report
    for all days.

    \b
    Example:
      pointsman-report backfill --history HISTORY --warehouse /srv/warehouse --from 2026-11-01 --to 2026-11-20
    """
    first_day, last_day = days.checked()
    job.check()
    parameters = given.loaded({"report.notify_url": job.notify})
    return _compute(job, first_day, last_day, parameters, outcome, spark, reread=reread)


def _compute(
    job: Job,
    first_day: date,
    last_day: date,
    parameters: Parameters,
    outcome: Outcome,
    options: SparkOptions,
    *,
    accept_late: bool = False,
    reread: bool = False,
) -> int:
    now = arguments.today(parameters.report)
    if last_day > now:
        raise click.UsageError(f"{last_day} is in the future: today is {now} in {parameters.report.timezone}")
    days, warehouse = (last_day - first_day).days + 1, arguments.local_path(job.warehouse)
    # The estimate of brokers for many days needs all that the history has of them.
    seen = Seen(warehouse, first_day) if warehouse is not None and days == 1 else None
    with running(options, reads=job.history, days=days, seen=seen) as (spark, log):
        # Imported late: pyspark may be missing, which `running` reports in one line.
        from pointsman_report.jobs.days import Request, compute_and_report  # noqa: PLC0415
        from pointsman_report.report.chat_message import body  # noqa: PLC0415
        from pointsman_report.report.summary import summary  # noqa: PLC0415

        places = list(job.history), job.warehouse
        request = Request(
            *places,
            first_day,
            last_day,
            parameters,
            job.report,
            job.textfile,
            accept_late=accept_late,
            reread=reread,
        )
        made, page = compute_and_report(spark, request, log=log)
        log(f"          report: {page}")
    print(as_json(made.as_dict()) if outcome.output == "json" else summary(made))
    exit_code = outcome.exit_code(FINDINGS if made.findings else SUCCESS)
    if url := parameters.report.notify_url:
        notify(url, body(made, page=page, exit_code=exit_code), log=log)
    return exit_code


def notify(url: str, message: bytes, *, log: Log) -> None:
    """Post the message; a failure is one line on standard error, with ``--quiet`` too."""
    try:
        attempts = webhook.post(url, message)
    except webhook.PostError as error:
        problem = str(error)
    except KeyboardInterrupt:
        # The tables and the report are complete: the run has not failed.
        problem = f"{webhook.place(url)}: interrupted"
    else:
        log(f"          summary posted to {webhook.place(url)}, attempts: {attempts}")
        return
    click.echo(f"pointsman-report: the summary was not posted to {problem}; the report is complete", err=True)


@click.command
@arguments.history_option()
@arguments.warehouse_option()
@arguments.output_option
@arguments.spark_options
def ingest(history: Sequence[str], warehouse: str, output: str, spark: SparkOptions) -> int:
    """Ingest new history into the warehouse, without a report.

    Run it every hour to shorten the nightly run. Running it again changes nothing.

    \b
    Example:
      pointsman-report ingest --history HISTORY --warehouse /srv/warehouse
    """
    histories = list(arguments.checked_histories(history))
    with running(spark, reads=histories) as (session, log):
        from pointsman_report.jobs.ingest_history import ingest as ingest_files  # noqa: PLC0415 - imports pyspark

        done = ingest_files(session, histories, warehouse, log=log).as_dict()
    return _printed(done, output)


@click.command
@arguments.warehouse_option()
@click.option(
    "--before", type=arguments.day, required=True, metavar="DAY", help="Compact the months that end before this day."
)
@click.option(
    "--keep-heartbeats-days",
    type=arguments.count,
    metavar="DAYS",
    help="Drop heartbeats and queue measurements that are older than this at --before; such a day cannot be "
    "recomputed from the warehouse.",
)
@arguments.output_option
@arguments.spark_options
def compact(warehouse: str, before: date, keep_heartbeats_days: int | None, output: str, spark: SparkOptions) -> int:
    """Rewrite past months: one file per table and day.

    Without --keep-heartbeats-days no rows are dropped. A day that is recomputed later is compacted again.

    \b
    Examples:
      pointsman-report compact --warehouse /srv/warehouse --before 2026-11-01
      pointsman-report compact --warehouse /srv/warehouse --before 2026-11-01 --keep-heartbeats-days 90
    """
    arguments.checked_warehouse(warehouse)
    today = datetime.now(tz=UTC).date()
    if before > today:
        raise click.UsageError(f"--before {before} is in the future: today is {today}")
    with running(spark, reads=[warehouse]) as (session, log):
        from pointsman_report.jobs.compact_warehouse import compact as rewrite  # noqa: PLC0415 - imports pyspark

        done = rewrite(session, warehouse, before=before, log=log, keep_heartbeats_days=keep_heartbeats_days).as_dict()
    return _printed(done, output)


@click.command
@click.option(
    "--output",
    type=click.Choice(["mermaid", "json"]),
    default="mermaid",
    show_default=True,
    help="Output format; json lists all inputs of each stage.",
)
def stages(output: str) -> int:
    """Draw the stages that compute the tables (no Java).

    Boxes are tables, rounded nodes are intermediate rows. An arrow that follows from other arrows is left out.

    \b
    Examples:
      pointsman-report stages
      pointsman-report stages --output json
    """
    from pointsman_report.jobs.history_reading import TABLES_READ  # noqa: PLC0415 - imports pyspark
    from pointsman_report.jobs.stage_graph import as_rows, mermaid  # noqa: PLC0415 - imports pyspark
    from pointsman_report.jobs.stages import STAGES  # noqa: PLC0415 - imports pyspark

    print(as_json({"stages": as_rows(STAGES)}) if output == "json" else mermaid(STAGES, given=TABLES_READ))
    return SUCCESS


@click.command
@arguments.output_option
def prepare(output: str) -> int:
    """Let Java start in half the time from now on.

    Writes an archive of the Java classes that a night loads, 190 MB, beside the installed packages: `nightly` and all
    other commands that start Java use it. Takes a minute. Run it after installing, and again after an upgrade of Java
    or pyspark: Java starts without an archive that does not fit.

    \b
    Example:
      pointsman-report prepare
    """
    from pointsman_report.class_archive import write_archive  # noqa: PLC0415 - only for this command

    path = write_archive()
    return _printed({"archive": str(path), "bytes": path.stat().st_size}, output)


def _printed(done: dict[str, Any], output: str) -> int:
    print(as_json(done) if output == "json" else as_lines(done))
    return SUCCESS


COMMANDS = (nightly, backfill, ingest, compact, stages, prepare)
