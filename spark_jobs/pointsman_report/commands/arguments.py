"""Arguments that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pointsman_report import parameters
from pointsman_report.commands.command import UsageError

MOST_DAYS = 3_700
YESTERDAY = "yesterday"


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day written YYYY-MM-DD") from None


def count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name.startswith("spark.")):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a name that begins with spark.")
    return name, value


def size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[kmg]", text.lower()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4g or 1500m")
    return text.lower()


def add_histories(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    command.add_argument(
        "--history",
        action="append",
        required=required,
        default=None if required else [],
        metavar="DIR",
        help="a history directory (holds raw/), or any path Hadoop can name; once for each name server",
    )


def add_warehouse(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    command.add_argument(
        "--warehouse", required=required, metavar="DIR", help="the tables, a folder each, or any path Hadoop can name"
    )


def add_range(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="first_day", type=day, required=True, metavar="DAY", help="first day")
    command.add_argument("--to", dest="last_day", type=day, required=True, metavar="DAY", help="last day")


def add_parameters(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--parameters", type=Path, metavar="FILE", help="TOML over the defaults (deploy/config/report.example.toml)"
    )
    add_timezone(command)


def add_timezone(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--timezone", metavar="ZONE", help="IANA time zone of what people read, over report.timezone of the file"
    )


def add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", choices=("table", "json"), default="table", help="what goes to standard output")


def add_outcome(command: argparse.ArgumentParser) -> None:
    """Every command that may find something."""
    add_output(command)
    command.add_argument(
        "--exit-zero", action="store_true", help="exit 0 with findings too, for schedulers; a failure stays 2"
    )


def add_spark(command: argparse.ArgumentParser) -> None:
    """Every command that starts Spark."""
    command.add_argument("--master", help="Spark master (default: local[*], or what spark-submit says)")
    command.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="Java's memory for a local master, as 4g (default: a quarter of the machine's, 1g to 8g)",
    )
    command.add_argument(
        "--conf",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark over ours; spark.pointsman.tableFormat=orc for a new warehouse's tables",
    )
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")


def checked_range(options: argparse.Namespace) -> tuple[date, date]:
    """Return the first and the last day.

    Raises:
        UsageError: they are no range that can be computed.
    """
    first_day, last_day = options.first_day, options.last_day
    if last_day < first_day:
        raise UsageError(f"--to {last_day} is before --from {first_day}")
    if (last_day - first_day).days >= MOST_DAYS:
        raise UsageError(f"--from {first_day} --to {last_day} is more than {MOST_DAYS} days")
    return first_day, last_day


def checked_histories(options: argparse.Namespace) -> list[str]:
    """Say at once, before Spark starts, that a local directory is missing; other file systems are asked later.

    Raises:
        UsageError: a directory is no history directory.
    """
    histories: list[str] = options.history
    for directory in histories:
        local = local_path(directory)
        if local is None:
            continue
        if not local.is_dir():
            raise UsageError(f"--history {directory}: no such directory")
        if not (local / "raw").is_dir():
            raise UsageError(
                f"--history {directory}: no history directory, for it holds no raw/ (raw/dt=YYYY-MM-DD/*.jsonl)"
            )
    return histories


def checked_warehouse(options: argparse.Namespace) -> str:
    """Return a warehouse that is asked and not made.

    Raises:
        UsageError: there is none.
    """
    warehouse: str = options.warehouse
    local = local_path(warehouse)
    if local is not None and not local.is_dir():
        raise UsageError(f"--warehouse {warehouse}: no such directory (nightly, backfill and ingest make one)")
    return warehouse


def local_path(path: str) -> Path | None:
    """Return the path as Python opens it; None for one of another file system."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if "://" in path else Path(path)


def loaded_parameters(options: argparse.Namespace) -> parameters.Parameters:
    """Read ``--parameters``, and ``--timezone`` over it.

    Raises:
        UsageError: the file cannot be read, or there is no such zone.
        ParametersError: what stands in the file makes no sense.
    """
    path: Path | None = getattr(options, "parameters", None)
    try:
        loaded = parameters.load(path)
    except OSError as error:
        raise UsageError(f"--parameters {path}: {error.strerror}") from error
    if options.timezone is None:
        return loaded
    try:
        return replace(loaded, report=replace(loaded.report, timezone=options.timezone))
    except parameters.ParametersError as error:
        raise UsageError(f"--timezone {options.timezone} is no IANA time zone such as Europe/Berlin") from error


def yesterday(report: parameters.ReportParameters) -> date:
    """Return the last day that is over, both where the report is read and in UTC, of which the tables are."""
    return min(today(report), datetime.now(tz=UTC).date()) - timedelta(days=1)


def today(report: parameters.ReportParameters) -> date:
    """Return the day that it is where the report is read."""
    return datetime.now(tz=UTC).astimezone(report.zone).date()
