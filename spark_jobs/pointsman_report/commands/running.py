"""Spark sessions of commands, progress on standard error, and output of results.

Progress is one line per stage. During a long stage a thread shows the progress of Spark's jobs: on a terminal in a line
that is updated, elsewhere as a line every 30 s.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO
from zoneinfo import ZoneInfo

import click

from pointsman_report.commands.arguments import (
    Outcome,
    SparkOptions,
    checked_histories,
    checked_warehouse,
    local_path,
)
from pointsman_report.spark_session import Seen, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pointsman_report.io.past import Past
    from pointsman_report.questions import QueryResult

Log = Callable[[str], None]

QUIET_SECONDS = 3.0
"""On a terminal the live line appears after this time without a log line."""
POLL_INTERVAL_SECONDS = 1.0
LINE_SECONDS = 30.0
"""Interval of progress lines without a terminal."""
_CLEAR = "\r\x1b[K"


class Progress:
    """Logs lines; as a context manager it also shows Spark's progress, in a separate thread."""

    def __init__(self, spark: SparkSession, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._lock = Lock()
        self._ended = Event()
        self._drawn = False
        self._began = self._logged_at = time.monotonic()
        self._thread = Thread(target=self._poll, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._wipe()

    def log(self, text: str) -> None:
        """Write a log line."""
        if self._quiet:
            return
        with self._lock:
            self._wipe()
            print(text, file=self._stream, flush=True)
            self._logged_at = time.monotonic()

    def _poll(self) -> None:
        from py4j.protocol import Py4JError  # noqa: PLC0415  # a session exists, so py4j is installed

        every = POLL_INTERVAL_SECONDS if self._live else LINE_SECONDS
        while not self._ended.wait(every):
            try:
                tasks = self._tasks()
            except (Py4JError, OSError):
                # The session is ending; the thread that uses it gets the error.
                return
            with self._lock:
                self._show(tasks)

    def _tasks(self) -> str:
        infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        running = [info for info in infos if info is not None]
        if not running:
            return "planning"
        done, tasks = (sum(getattr(info, name) for info in running) for name in ("numCompletedTasks", "numTasks"))
        return f"{done} of {tasks} Spark tasks done"

    def _show(self, tasks: str) -> None:
        silent = time.monotonic() - self._logged_at
        if silent < QUIET_SECONDS:
            return
        text = f"{silent:6.1f} s  ... {tasks}"
        if self._live:
            self._stream.write(f"{_CLEAR}{text}")
            self._drawn = True
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def _wipe(self) -> None:
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn = False


@contextmanager
def running(
    options: SparkOptions, *, reads: Iterable[str], days: int = 1, seen: Seen | None = None
) -> Iterator[tuple[SparkSession, Log]]:
    """Open the session of a command that reads these folders and computes ``days``; yields it and its log function.

    ``seen``: files that do not count for its settings.

    Raises:
        ModuleNotFoundError: pyspark is missing.
        SparkUnavailableError: Java is missing, or Spark did not start.
    """
    began = time.monotonic()
    name = f"pointsman-report {click.get_current_context().info_name}"
    local = [path for path in map(local_path, reads) if path is not None]
    session = spark_session(
        options.master,
        name=name,
        memory=options.memory,
        reads=local,
        days=days,
        seen=seen,
        over=dict(options.conf),
    )
    with session as spark, Progress(spark, quiet=options.quiet) as progress:
        progress.log(f"{time.monotonic() - began:6.1f} s  Spark started")
        yield spark, progress.log
        progress.log(f"{time.monotonic() - began:6.1f} s  total")


@contextmanager
def opened_past(
    warehouse: str | None, histories: list[str], engine: str | None, options: SparkOptions
) -> Iterator[Past]:
    """Open a warehouse, histories, or both for a question: without Java if they are on disks of this machine.

    Raises:
        click.UsageError: a directory does not exist, or the embedded reader cannot read one.
        ReportError: the embedded reader is not installed, or the warehouse is of another version or format.
        SparkUnavailableError: Java is missing, or Spark did not start.
    """
    checked_histories(histories)
    tables = [] if warehouse is None else [checked_warehouse(warehouse)]
    remote = [path for path in (*tables, *histories) if local_path(path) is None]
    if engine == "embedded" and remote:
        raise click.UsageError(f"--engine embedded reads disks of this machine, not {remote[0]}: use --engine spark")
    # Imported late: pyspark may be missing, which is reported in one line.
    if engine == "embedded" or not (engine or remote or options.any_given):
        from pointsman_report.io.embedded_past import EmbeddedPast  # noqa: PLC0415

        folders = [path for path in map(local_path, histories) if path is not None]
        yield EmbeddedPast(None if warehouse is None else local_path(warehouse), folders)
        return
    with running(options, reads=[*tables, *histories]) as (spark, _):
        from pointsman_report.io import History, SparkPast, Warehouse  # noqa: PLC0415

        yield SparkPast(
            None if warehouse is None else Warehouse(spark, warehouse), History(spark, histories) if histories else None
        )


def print_result(result: QueryResult, outcome: Outcome, zone: ZoneInfo) -> int:
    """Print a result in the requested format, and return the exit code."""
    print(as_json(result.as_dict()) if outcome.output == "json" else result.text(zone).rstrip("\n"))
    return outcome.exit_code(result.exit_code)


def as_json(values: dict[str, Any]) -> str:
    """Format values as indented JSON."""
    return json.dumps(values, indent=1, ensure_ascii=False)


def as_lines(values: dict[str, Any]) -> str:
    """Format the result of a job for operators: one line per value."""
    return "\n".join(f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in values.items())


def _plain(value: object) -> str:
    match value:
        case list():
            return ", ".join(map(str, value)) or "none"
        case dict():
            return ", ".join(f"{name} {count}" for name, count in value.items()) or "none"
        case _:
            return str(value)
