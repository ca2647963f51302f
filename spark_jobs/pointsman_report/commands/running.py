"""Run something in a Spark session, with progress on standard error, and print the result.

Progress is a line a stage. While one takes long, a thread asks Spark how far its jobs are: on a terminal a line that is
written over, elsewhere a line each half minute.
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

from pointsman_report.commands.arguments import Outcome, SparkOptions, local_path
from pointsman_report.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pointsman_report.questions import Answer

Say = Callable[[str], None]

QUIET_SECONDS = 3.0
"""A terminal's live line begins after so long without a line."""
LOOK_SECONDS = 1.0
LINE_SECONDS = 30.0
"""How often a log gets a line."""
_CLEAR = "\r\x1b[K"


class Progress:
    """Says lines; while it is entered, a thread of its own tells that Spark is at work."""

    def __init__(self, spark: SparkSession, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._lock = Lock()
        self._ended = Event()
        self._drawn = False
        self._began = self._said_at = time.monotonic()
        self._thread = Thread(target=self._watch, name="progress", daemon=True)

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

    def say(self, text: str) -> None:
        """Write a line of the run's own."""
        if self._quiet:
            return
        with self._lock:
            self._wipe()
            print(text, file=self._stream, flush=True)
            self._said_at = time.monotonic()

    def _watch(self) -> None:
        from py4j.protocol import Py4JError  # noqa: PLC0415  # there is a session, so there is py4j

        every = LOOK_SECONDS if self._live else LINE_SECONDS
        while not self._ended.wait(every):
            try:
                tasks = self._tasks()
            except (Py4JError, OSError):
                # The session is going; whoever uses it gets the fault.
                return
            with self._lock:
                self._tell(tasks)

    def _tasks(self) -> str:
        infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        running = [info for info in infos if info is not None]
        if not running:
            return "planning"
        done, tasks = (sum(getattr(info, name) for info in running) for name in ("numCompletedTasks", "numTasks"))
        return f"Spark has done {done} of {tasks} tasks"

    def _tell(self, tasks: str) -> None:
        silent = time.monotonic() - self._said_at
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
def running(options: SparkOptions, *, reads: Iterable[str]) -> Iterator[tuple[SparkSession, Say]]:
    """Open the session of a command that reads these folders, and give what it says its progress with.

    Raises:
        ModuleNotFoundError: pyspark is missing.
        SparkUnavailableError: Java is missing, or Spark did not start.
    """
    began = time.monotonic()
    name = f"pointsman-report {click.get_current_context().info_name}"
    local = [path for path in map(local_path, reads) if path is not None]
    session = spark_session(options.master, name=name, memory=options.memory, reads=local, over=dict(options.conf))
    with session as spark, Progress(spark, quiet=options.quiet) as progress:
        progress.say(f"{time.monotonic() - began:6.1f} s  Spark started")
        yield spark, progress.say
        progress.say(f"{time.monotonic() - began:6.1f} s  in all")


def answered(answer: Answer, outcome: Outcome, zone: ZoneInfo) -> int:
    """Print an answer in the format that was asked for, and return the exit code."""
    print(as_json(answer.as_dict()) if outcome.output == "json" else answer.text(zone).rstrip("\n"))
    return outcome.exit_code(answer.exit_code)


def as_json(told: dict[str, Any]) -> str:
    return json.dumps(told, indent=1, ensure_ascii=False)


def as_lines(told: dict[str, Any]) -> str:
    """For people, what a job did: a line a number."""
    return "\n".join(f"{name.replace('_', ' ')}: {_plain(value)}" for name, value in told.items())


def _plain(value: object) -> str:
    match value:
        case list():
            return ", ".join(map(str, value)) or "none"
        case dict():
            return ", ".join(f"{name} {count}" for name, count in value.items()) or "none"
        case _:
            return str(value)
