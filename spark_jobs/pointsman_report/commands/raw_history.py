"""Commands on files of raw history: ``validate``, ``import``. They need neither Spark nor Java."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from pointsman_report import row_validation
from pointsman_report.commands.arguments import FAILED, FILE, FINDINGS, SUCCESS, Outcome, outcome_options
from pointsman_report.rocketmq_log import broker_ids
from pointsman_report.rocketmq_log.importing import HistoryFolder, Imported, import_logs
from pointsman_report.rocketmq_log.lines import zone_of
from pointsman_report.rocketmq_log.log_rows import DEFAULT_CLUSTER, RowBuilder

FORMATS = ("rocketmq-log",)
DEFAULT_ZONE = "GMT+8"
"""Fixed in the logback files of RocketMQ's name server, independent of the machine's zone."""


@click.command
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@outcome_options
def validate(files: Sequence[Path], outcome: Outcome) -> int:
    """Check raw history against its JSON Schema (no Java).

    FILE is a .jsonl or .jsonl.gz file. Each bad line is printed with its file, number, field and error.

    \b
    Example:
      pointsman-report validate /var/lib/pointsman/history/raw/dt=2026-11-20/*
    """
    rows, bad = 0, []
    found = []
    unreadable = []
    for file in files:
        faulty: set[int] = set()
        try:
            for problem in row_validation.problems_of(file):
                if problem is None:
                    rows += 1
                    continue
                found.append(problem)
                faulty.add(problem.line)
                if outcome.output == "table":
                    print(problem)
        except row_validation.UnreadableFileError as error:
            # Continue with the other files.
            unreadable.append(str(error))
            click.echo(f"pointsman-report: {error}", err=True)
        bad.append(len(faulty))
    if outcome.output == "json":
        problems = [{"file": p.file, "line": p.line, "field": p.field, "problem": p.problem} for p in found]
        totals = {"files": len(bad), "unreadable": unreadable, "good_rows": rows, "bad_lines": sum(bad)}
        print(json.dumps(totals | {"problems": problems}, indent=1))
    else:
        print(f"{len(bad)} files: {rows} good rows, {sum(bad)} bad lines")
    return outcome.exit_code(FAILED if unreadable else FINDINGS if found else SUCCESS)


@click.command("import")
@click.argument("kind", type=click.Choice(FORMATS), metavar="|".join(FORMATS))
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--history", required=True, type=FILE, metavar="DIR", help="History directory to write to.")
@click.option(
    "--node",
    default="rocketmq-namesrv",
    show_default=True,
    metavar="NAME",
    help="Name of this name server in the history; must be unique.",
)
@click.option(
    "--ids",
    multiple=True,
    metavar="HOST:PORT|FILE",
    help="Names and ids of brokers by address: a name server to query, or a file from pointsman-observe --print. "
    "Without it the address is the broker name, with id 0.",
)
@click.option(
    "--cluster",
    default=DEFAULT_CLUSTER,
    show_default=True,
    metavar="NAME",
    help="Cluster of brokers in a 4.9 log without cluster names.",
)
@click.option(
    "--timezone",
    default=DEFAULT_ZONE,
    show_default=True,
    metavar="ZONE",
    help="Time zone of the log; RocketMQ uses the default, independent of the machine's zone.",
)
@outcome_options
def import_(
    *,
    kind: str,
    files: Sequence[Path],
    history: Path,
    node: str,
    ids: Sequence[str],
    cluster: str,
    timezone: str,
    outcome: Outcome,
) -> int:
    """Import a history from RocketMQ's log (no Java).

    FILE is namesrv.log of RocketMQ's own name server, and rotated ones (.gz): give all files of one name server
    together, in any order, and each name server another --node. The same files give the same history again, so a
    growing log can be imported every night. A log does not contain heartbeats, versions, processes or probes. A broker
    that registered before the log begins is unknown until a line names it.

    \b
    Examples:
      pointsman-report import rocketmq-log namesrv.log old/namesrv.1.log.gz --ids rocketmq-1:9876 --history mq/history
      pointsman-report import rocketmq-log ns2/namesrv.log --ids ids.json --node rocketmq-2 --history mq/history
    """
    del kind  # only one format exists
    try:
        zone = zone_of(timezone)
    except ValueError as error:
        raise click.UsageError(f"--timezone {error}") from error
    for name, value in (("--node", node), ("--cluster", cluster)):
        if not value.strip() or not value.isprintable() or len(value) > 100:
            raise click.UsageError(f"{name} must have 1 to 100 printable characters, got {value!r}")
    brokers = {addr: broker for source in ids for addr, broker in broker_ids.load(source).items()}
    builder = RowBuilder(node=node, ids=brokers, cluster=cluster)
    try:
        done = import_logs(list(files), builder, HistoryFolder(history), zone)
    except OSError as error:
        raise click.UsageError(f"--history {history}: {error.strerror or error}") from error
    for problem in done.broken_files:
        click.echo(f"pointsman-report: {problem}", err=True)
    if outcome.output == "json":
        print(json.dumps(_document(done, builder), indent=1))
    else:
        print("\n".join(_summary(done, builder, history)))
    is_doubtful = done.unreadable or not builder.counts["broker_lines"]
    return outcome.exit_code(FAILED if done.broken_files else FINDINGS if is_doubtful else SUCCESS)


def _document(done: Imported, builder: RowBuilder) -> dict[str, object]:
    return {
        "files": done.files,
        "broken_files": done.broken_files,
        "lines": done.lines,
        "undated_lines": done.undated,
        "unreadable_lines": done.unreadable,
        "problems": done.problems,
        "lines_out_of_order": builder.counts["out_of_order"],
        "lines_beyond_the_bound_of_brokers": builder.counts["too_many_brokers"],
        "runs": builder.counts["runs"],
        "brokers_without_id": len(builder.unnamed),
        "rows": done.rows,
        "days": sorted(done.days),
    }


def _summary(done: Imported, builder: RowBuilder, history: Path) -> list[str]:
    days = sorted(done.days)
    span = f", {days[0]} to {days[-1]}" if days else ""
    read = f"{done.files} files, {done.lines:,} lines, {builder.counts['runs']} runs of the name server"
    text = [f"{read}; {done.rows:,} rows written to {history}{span}"]
    if done.unreadable:
        text.append(f"{done.unreadable:,} lines about brokers cannot be read; the first:")
        text += [f"  {problem}" for problem in done.problems]
    if builder.counts["out_of_order"]:
        text.append(f"{builder.counts['out_of_order']:,} lines older than those before them were skipped")
    if builder.counts["too_many_brokers"]:
        text.append(
            f"{builder.counts['too_many_brokers']:,} lines about brokers beyond the limit of addresses were skipped"
        )
    if not builder.counts["broker_lines"]:
        text.append("no line about a broker: check that this is the log of a name server (namesrv.log)")
    if builder.unnamed:
        text.append(f"{len(builder.unnamed):,} addresses are used as broker names: --ids HOST:PORT adds names and ids")
    return text


COMMANDS = (validate, import_)
