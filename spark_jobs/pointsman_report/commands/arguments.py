"""Shared options, parsing of their values, and checks before Spark starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import wraps
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from pointsman.config import load
from pointsman_report.parameters import Parameters, ReportParameters
from pointsman_report.spark_session import MEMORY_SETTING

SUCCESS, FINDINGS, FAILED = 0, 1, 2
MAX_DAYS = 3_700
YESTERDAY = "yesterday"
TIMES = "2026-11-20T03:12Z, 2026-11-20T03:12+01:00, '2026-11-20 03:12' (in --timezone), 03:12 (its last occurrence)"
FILE = click.Path(path_type=Path)

Function = Callable[..., int]


def day(text: str) -> date:
    """Parse a day.

    Raises:
        click.BadParameter: it is not a day.
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"invalid day {text!r}: use YYYY-MM-DD") from None


def count(text: str) -> int:
    """Parse a number of 1 to 999999.

    Raises:
        click.BadParameter: it is not one.
    """
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise click.BadParameter(f"invalid number {text!r}: use a whole number from 1 to 999999")
    return int(text)


def broker(text: str) -> tuple[str, str | None, int | None]:
    """Parse NAME, CLUSTER/NAME or CLUSTER/NAME/ID; return the name, the cluster and the id."""
    match text.split("/"):
        case [name] if name:
            return name, None, None
        case [cluster, name] if cluster and name:
            return name, cluster, None
        case [cluster, name, number] if cluster and name and re.fullmatch(r"\d{1,18}", number, re.ASCII):
            return name, cluster, int(number)
        case _:
            raise click.BadParameter(f"invalid broker {text!r}: use NAME, CLUSTER/NAME or CLUSTER/NAME/ID")


def moment(text: str) -> datetime | time:
    """Parse a time; `instant` adds the zone to a time without an offset."""
    for read in (datetime.fromisoformat, time.fromisoformat):
        try:
            found: datetime | time = read(text)
        except ValueError:
            continue
        if isinstance(found, time) or len(text) > len("YYYY-MM-DD"):
            return found
    raise click.BadParameter(f"invalid time {text!r}: use e.g. {TIMES}")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name.startswith("spark.")):
        raise click.BadParameter(f"invalid setting {text!r}: use spark.NAME=VALUE")
    if name.startswith("spark.pointsman.") and name != MEMORY_SETTING:
        raise click.BadParameter(f"unknown setting {name!r}: the only spark.pointsman setting is {MEMORY_SETTING}")
    return name, value


def _size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[kmg]", text.lower()):
        raise click.BadParameter(f"invalid size {text!r}: use e.g. 4g or 1500m")
    return text.lower()


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options of the Spark session."""

    master: str | None
    memory: str | None
    conf: Sequence[tuple[str, str]]
    quiet: bool

    @property
    def any_given(self) -> bool:
        """Whether an option is given that only Spark can follow."""
        return bool(self.master or self.memory or self.conf)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Output format and exit code of a command that may have findings."""

    output: str
    exit_zero: bool

    def exit_code(self, code: int) -> int:
        """Return 0 instead of 1 with ``--exit-zero``; a failure stays 2."""
        return SUCCESS if code == FINDINGS and self.exit_zero else code


@dataclass(frozen=True, slots=True)
class ParameterOptions:
    """Options that set parameters."""

    parameters: Path | None
    timezone: str | None

    def loaded(self, settings: Mapping[str, object] | None = None) -> Parameters:
        """Load ``--parameters``; ``--timezone`` and ``settings``, by ``table.name``, override its values.

        Raises:
            ConfigError: the file cannot be read, or a value is invalid.
        """
        return load(Parameters, file=self.parameters, flags={"report.timezone": self.timezone, **(settings or {})})


def option_group(name: str, into: type, *options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return a decorator that adds options; the command receives their values as one argument."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(**given: Any) -> int:  # noqa: ANN401  # what click has read
            values = into(**{each.name: given.pop(each.name) for each in fields(into)})
            return function(**given, **{name: values})

        decorated: Function = call
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def history_option(*, required: bool = True) -> Callable[[Function], Function]:
    """Return the option for history directories."""
    return click.option(
        "--history",
        multiple=True,
        required=required,
        metavar="DIR",
        help="History directory (with raw/) or URI; once for each name server.",
    )


def warehouse_option(*, required: bool = True) -> Callable[[Function], Function]:
    """Return the option for the warehouse."""
    return click.option("--warehouse", required=required, metavar="DIR", help="Warehouse directory or URI.")


timezone_option = click.option(
    "--timezone", metavar="ZONE", help="IANA time zone of the output; overrides report.timezone of the file."
)
output_option = click.option(
    "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output format."
)
parameter_options = option_group(
    "given",
    ParameterOptions,
    click.option(
        "--parameters",
        type=FILE,
        metavar="FILE",
        help="TOML file with parameters (see deploy/config/report.example.toml).",
    ),
    timezone_option,
)
outcome_options = option_group(
    "outcome",
    Outcome,
    output_option,
    click.option(
        "--exit-zero", is_flag=True, help="Exit with 0 instead of 1 if there are findings; a failure stays 2."
    ),
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["embedded", "spark"]),
    help="What reads the tables and files.  [default: embedded (no Java); spark if a path is not of this machine, or "
    "with a Spark option]",
)
spark_options = option_group(
    "spark",
    SparkOptions,
    click.option("--master", metavar="URL", help="Spark master.  [default: local[*], or spark-submit's]"),
    click.option(
        "--memory",
        type=_size,
        metavar="SIZE",
        help="Java heap of a local master, e.g. 4g.  [default: 1g per core, 1g to 8g, at most a quarter of the memory]",
    ),
    click.option(
        "--conf",
        type=_setting,
        multiple=True,
        metavar="NAME=VALUE",
        help="Spark setting. Repeatable.",
    ),
    click.option("--quiet", is_flag=True, help="No progress on standard error."),
)


@dataclass(frozen=True, slots=True)
class Days:
    """A range of days."""

    first_day: date
    last_day: date

    def checked(self) -> tuple[date, date]:
        """Return the first and the last day.

        Raises:
            click.UsageError: the range is empty or too long.
        """
        if self.last_day < self.first_day:
            raise click.UsageError(f"--to {self.last_day} is before --from {self.first_day}")
        if (self.last_day - self.first_day).days >= MAX_DAYS:
            raise click.UsageError(f"--from {self.first_day} --to {self.last_day} is more than {MAX_DAYS} days")
        return self.first_day, self.last_day


range_options = option_group(
    "days",
    Days,
    click.option("--from", "first_day", type=day, required=True, metavar="DAY", help="First day."),
    click.option("--to", "last_day", type=day, required=True, metavar="DAY", help="Last day."),
)


def checked_histories(histories: Sequence[str]) -> Sequence[str]:
    """Check local directories before Spark starts; Spark checks other file systems.

    Raises:
        click.UsageError: a directory is not a history directory.
    """
    for directory in histories:
        local = local_path(directory)
        if local is None:
            continue
        if not local.is_dir():
            raise click.UsageError(f"--history {directory}: no such directory")
        if not (local / "raw").is_dir():
            raise click.UsageError(
                f"--history {directory}: not a history directory, raw/ is missing (raw/dt=YYYY-MM-DD/*.jsonl)"
            )
    return histories


def checked_warehouse(warehouse: str) -> str:
    """Check a warehouse that must exist, and return it.

    Raises:
        click.UsageError: it does not exist.
    """
    local = local_path(warehouse)
    if local is not None and not local.is_dir():
        raise click.UsageError(f"--warehouse {warehouse}: no such directory (created by nightly, backfill and ingest)")
    return warehouse


def local_path(path: str) -> Path | None:
    """Return a local path; None for a path on another file system."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if "://" in path else Path(path)


def yesterday(report: ReportParameters) -> date:
    """Return the last day that has ended, both in the report's time zone and in UTC."""
    return min(today(report), datetime.now(tz=UTC).date()) - timedelta(days=1)


def today(report: ReportParameters) -> date:
    """Return the current day in the report's time zone."""
    return datetime.now(tz=UTC).astimezone(report.zone).date()


def instant(at: datetime | time, zone: ZoneInfo, *, now: datetime) -> datetime:
    """Convert a time parsed by `moment` to UTC.

    Raises:
        click.UsageError: the time does not exist in the zone (daylight saving).
    """
    if isinstance(at, time):
        return _last_time(at, zone, now=now)
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    return _placed(at, zone)


def _placed(at: datetime, zone: tzinfo) -> datetime:
    placed = at.replace(tzinfo=zone).astimezone(UTC)
    if placed.astimezone(zone).replace(tzinfo=None) != at:
        raise click.UsageError(f"--at {at}: this time does not exist in {zone} (daylight saving time began)")
    return placed


def _last_time(clock: time, zone: ZoneInfo, *, now: datetime) -> datetime:
    where = clock.tzinfo or zone
    today = datetime.combine(now.astimezone(where).date(), clock.replace(tzinfo=None))
    is_over = today.replace(tzinfo=where) <= now
    return _placed(today if is_over else today - timedelta(days=1), where)
