"""``import``: a history from what others wrote: the log of RocketMQ's own name server. Needs neither Spark nor Java."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pointsman_report.commands.arguments import add_outcome
from pointsman_report.commands.command import FAILED, FINDINGS, FINE, Command, UsageError, exit_code
from pointsman_report.rocketmq_log import broker_ids
from pointsman_report.rocketmq_log.importing import HistoryFolder, Imported, import_logs
from pointsman_report.rocketmq_log.lines import zone_of
from pointsman_report.rocketmq_log.story import DEFAULT_CLUSTER, Story

FORMATS = ("rocketmq-log",)
DEFAULT_ZONE = "GMT+8"
"""Written into the logback files of RocketMQ's name server, whatever the machine's zone."""


def _arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("format", choices=FORMATS, help="what the files are")
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="namesrv.log, and rotated ones (.gz)")
    command.add_argument("--history", required=True, type=Path, metavar="DIR", help="history directory to write to")
    command.add_argument(
        "--node",
        default="rocketmq-namesrv",
        metavar="NAME",
        help="name of this name server in the history; a different one for each (default: rocketmq-namesrv)",
    )
    command.add_argument(
        "--ids",
        action="append",
        default=[],
        metavar="HOST:PORT|FILE",
        help="name and id of each address: asked from a name server, or a file of pointsman-observe --print. "
        "Other addresses stand for their brokers, with id 0",
    )
    command.add_argument(
        "--cluster",
        default=DEFAULT_CLUSTER,
        metavar="NAME",
        help=f"cluster of brokers of which a log of 4.9 names none (default: {DEFAULT_CLUSTER})",
    )
    command.add_argument(
        "--timezone",
        default=DEFAULT_ZONE,
        metavar="ZONE",
        help=f"of the times in the log (default: {DEFAULT_ZONE}, which RocketMQ writes whatever the machine's zone is)",
    )
    add_outcome(command)


def _run(options: argparse.Namespace) -> int:
    try:
        zone = zone_of(options.timezone)
    except ValueError as error:
        raise UsageError(f"--timezone {error}") from error
    for name, value in (("--node", options.node), ("--cluster", options.cluster)):
        if not value.strip() or not value.isprintable() or len(value) > 100:
            raise UsageError(f"{name} must have 1 to 100 printable characters, got {value!r}")
    ids = {addr: broker for source in options.ids for addr, broker in broker_ids.load(source).items()}
    story = Story(node=options.node, ids=ids, cluster=options.cluster)
    try:
        done = import_logs(options.files, story, HistoryFolder(options.history), zone)
    except OSError as error:
        raise UsageError(f"--history {options.history}: {error.strerror or error}") from error
    for problem in done.broken_files:
        print(f"pointsman-report: {problem}", file=sys.stderr)
    if options.output == "json":
        print(json.dumps(_document(done, story), indent=1))
    else:
        print("\n".join(_summary(done, story, options.history)))
    is_doubtful = done.unreadable or not story.counts["broker_lines"]
    return exit_code(FAILED if done.broken_files else FINDINGS if is_doubtful else FINE, options)


def _document(done: Imported, story: Story) -> dict[str, object]:
    return {
        "files": done.files,
        "broken_files": done.broken_files,
        "lines": done.lines,
        "undated_lines": done.undated,
        "unreadable_lines": done.unreadable,
        "problems": done.problems,
        "lines_out_of_order": story.counts["out_of_order"],
        "lines_beyond_the_bound_of_brokers": story.counts["too_many_brokers"],
        "runs": story.counts["runs"],
        "brokers_without_id": len(story.unnamed),
        "rows": done.rows,
        "days": sorted(done.days),
    }


def _summary(done: Imported, story: Story, history: Path) -> list[str]:
    days = sorted(done.days)
    span = f", {days[0]} to {days[-1]}" if days else ""
    read = f"{done.files} files, {done.lines:,} lines, {story.counts['runs']} runs of the name server"
    text = [f"{read}; {done.rows:,} rows written to {history}{span}"]
    if done.unreadable:
        text.append(f"{done.unreadable:,} lines about brokers cannot be read; the first:")
        text += [f"  {problem}" for problem in done.problems]
    if story.counts["out_of_order"]:
        text.append(f"{story.counts['out_of_order']:,} lines older than those before them were skipped")
    if story.counts["too_many_brokers"]:
        text.append(f"{story.counts['too_many_brokers']:,} lines about more brokers than are kept were skipped")
    if not story.counts["broker_lines"]:
        text.append("no line about a broker: is it the log of a name server (namesrv.log)?")
    if story.unnamed:
        text.append(f"{len(story.unnamed):,} addresses stand for their brokers: --ids HOST:PORT gives names and ids")
    return text


COMMAND = Command(
    name="import",
    summary="write a history from the log of RocketMQ's own name server (needs no Java)",
    details="""\
  pointsman-report import rocketmq-log namesrv.log otherdays/namesrv.1.log.gz --ids rocketmq-1:9876 --history mq/history
  pointsman-report import rocketmq-log ns2/namesrv.log --ids ids.json --node rocketmq-2 --history mq/history

All files of one name server together, in any order; other name servers with another --node. The same files give the
same history again, so a log that grows can be imported each night. A log does not contain heartbeats, versions,
processes or probes. A broker that registered before the log begins is unknown until a line names it.""",
    arguments=_arguments,
    run=_run,
)
