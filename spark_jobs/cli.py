"""The command ``pointsman-report``: what a person types, and what comes back as text and exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import date
from importlib import metadata
from pathlib import Path

from spark_jobs import parameters, validation
from spark_jobs.errors import ReportError, one_line
from spark_jobs.session import SparkUnavailableError, spark_session

FINE, FINDINGS, FAILED = 0, 1, 2
MOST_DAYS = 3_700

_DESCRIPTION = """\
From the name servers' history to a report: which brokers went down, which flap, and why.

  pointsman-report nightly --history /var/lib/pointsman/history --warehouse /srv/warehouse --date 2026-11-20

computes that UTC day, continuing from the day before, and writes WAREHOUSE/report/dt=2026-11-20/report.html beside
report.json. Give --history once for each name server. After a gap, compute many days in one pass:

  pointsman-report backfill --history HISTORY --warehouse /srv/warehouse --from 2026-11-01 --to 2026-11-20

exit code: 0 nothing to look at; 1 findings (a broker flaps or is dead, nobody watched, history was lost); 2 failed.
"""


class _UsageError(ReportError):
    """Something the caller gave cannot be used; the text says what."""


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day written YYYY-MM-DD") from None


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pointsman-report", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"pointsman-report {metadata.version('pointsman')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{nightly,backfill,validate}")
    nightly = _command(commands, "nightly", "compute one UTC day from the history and the day before, and report on it")
    nightly.add_argument("--date", type=_day, required=True, metavar="YYYY-MM-DD", help="the UTC day")
    backfill = _command(commands, "backfill", "compute a range of days in one pass; the same tables as night by night")
    backfill.add_argument(
        "--from", dest="first_day", type=_day, required=True, metavar="YYYY-MM-DD", help="first UTC day"
    )
    backfill.add_argument("--to", dest="last_day", type=_day, required=True, metavar="YYYY-MM-DD", help="last UTC day")
    for command in (nightly, backfill):
        _spark_arguments(command)
    check = _command(commands, "validate", "check files of raw history against the row's JSON Schema (needs no Java)")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a .jsonl or .jsonl.gz file")
    _output(check)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _spark_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--history",
        action="append",
        required=True,
        metavar="DIR",
        help="a history directory (holds raw/); repeat for more",
    )
    command.add_argument("--warehouse", required=True, metavar="DIR", help="the tables, a folder each; made if missing")
    command.add_argument(
        "--report", type=Path, metavar="DIR", help="where report.html and report.json go (default: below the warehouse)"
    )
    command.add_argument(
        "--parameters", type=Path, metavar="FILE", help="TOML file with a [flapping] table over the defaults"
    )
    command.add_argument("--master", default=None, help="Spark master (default: local[*], or what spark-submit says)")
    _output(command)


def _output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", choices=("table", "json"), default="table", help="what goes to standard output")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code; every fault is one line on standard error."""
    options = build_parser().parse_args(arguments)
    try:
        return _validate(options) if options.command == "validate" else _compute(options)
    except (ReportError, SparkUnavailableError, parameters.ParametersError) as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return _failed("interrupted; the tables are as they were")
    except Exception as error:  # noqa: BLE001 - an uncaught error would exit 1, which means findings
        return _failed(one_line(error))


def _failed(text: str) -> int:
    print(f"pointsman-report: {text}", file=sys.stderr)
    return FAILED


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _compute(options: argparse.Namespace) -> int:
    first_day: date = options.date if options.command == "nightly" else options.first_day
    last_day: date = options.date if options.command == "nightly" else options.last_day
    if last_day < first_day:
        raise _UsageError(f"--to {last_day} is before --from {first_day}")
    if (last_day - first_day).days >= MOST_DAYS:
        raise _UsageError(f"{first_day} to {last_day} is more than {MOST_DAYS} days")
    for directory in options.history:
        _require_history(directory)
    flapping = _parameters(options.parameters)
    began = time.monotonic()
    with spark_session(options.master, name=f"pointsman-report {options.command}") as spark:
        _say(f"{time.monotonic() - began:6.1f} s  Spark started")
        # Only now: these import pyspark, whose absence has been said above in one line.
        from spark_jobs.jobs.days import Request, compute_and_report  # noqa: PLC0415
        from spark_jobs.report.summary import summary  # noqa: PLC0415

        request = Request(options.history, options.warehouse, first_day, last_day, flapping, options.report)
        numbers, page = compute_and_report(spark, request, say=_say)
    _say(f"{time.monotonic() - began:6.1f} s  in all; report: {page}")
    print(json.dumps(numbers, indent=1, ensure_ascii=False) if options.output == "json" else summary(numbers))
    return FINDINGS if numbers["headline"]["findings"] else FINE


def _parameters(path: Path | None) -> parameters.FlapParameters:
    try:
        return parameters.load(path)
    except OSError as error:
        raise _UsageError(f"{path}: {error.strerror}") from error


def _require_history(directory: str) -> None:
    """Say at once, before Spark starts, that a local directory is missing; other file systems are asked later."""
    if "://" in directory:
        return
    if not Path(directory).is_dir():
        raise _UsageError(f"no history directory {directory}")
    if not (Path(directory) / "raw").is_dir():
        raise _UsageError(f"{directory} is no history directory: it holds no raw/ (raw/dt=YYYY-MM-DD/*.jsonl)")


def _validate(options: argparse.Namespace) -> int:
    try:
        import jsonschema  # noqa: F401, PLC0415 - only to say in one line that it is missing
    except ImportError as error:
        raise _UsageError("jsonschema is missing: pip install 'pointsman[spark]'") from error
    rows, bad = 0, []
    found = []
    unreadable = []
    for file in options.files:
        faulty: set[int] = set()
        try:
            for problem in validation.problems_of(file):
                if problem is None:
                    rows += 1
                    continue
                found.append(problem)
                faulty.add(problem.line)
                if options.output == "table":
                    print(problem)
        except validation.UnreadableFileError as error:
            # The other files are still worth a look.
            unreadable.append(str(error))
            _failed(str(error))
        bad.append(len(faulty))
    if options.output == "json":
        problems = [{"file": p.file, "line": p.line, "field": p.field, "problem": p.problem} for p in found]
        told = {"files": len(bad), "unreadable": unreadable, "good_rows": rows, "bad_lines": sum(bad)}
        print(json.dumps(told | {"problems": problems}, indent=1))
    else:
        print(f"{len(bad)} files: {rows} good rows, {sum(bad)} bad lines")
    return FAILED if unreadable else FINDINGS if found else FINE
