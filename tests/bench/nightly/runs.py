"""Runs ``pointsman-report`` as an operator would, and measures its time and the memory of it and its Java."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

POLL_INTERVAL_SECONDS = 0.2
_STAGE = re.compile(r"^ *(\d+\.\d) s  (?!\.\.\. |in all$)(.*)$")
"""A progress line of a finished stage: neither a periodic line nor the total."""
_START = "Spark started"


class RunFailedError(RuntimeError):
    """The command exited with 2; the text is its output."""


@dataclass(frozen=True, slots=True)
class Took:
    """One run."""

    seconds: float
    peak_bytes: int
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds by stage, as the command prints them."""

    @property
    def start_seconds(self) -> float:
        """Java and Spark coming up."""
        return self.stages.get(_START, 0.0)


def report(
    command: str, histories: Sequence[Path], warehouse: Path, *more: str, environment: Mapping[str, str] | None = None
) -> Took:
    """Run a command of the report to its end.

    Raises:
        RunFailedError: its exit code was neither 0 nor 1.
    """
    where = [f"--history={history}" for history in histories]
    arguments = [sys.executable, "-m", "pointsman_report", command, *where, f"--warehouse={warehouse}", *more]
    began = time.monotonic()
    given = {**os.environ, **(environment or {})}
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=given
    ) as process:
        watched = _Memory(process.pid)
        _, output = process.communicate()
        peak = watched.stop()
    seconds = time.monotonic() - began
    if process.returncode not in (0, 1):
        raise RunFailedError(output)
    stages = {match[2]: float(match[1]) for match in map(_STAGE.match, output.splitlines()) if match}
    return Took(seconds, peak, stages)


def nightly(
    histories: Sequence[Path], warehouse: Path, day: date, *more: str, environment: Mapping[str, str] | None = None
) -> Took:
    return report("nightly", histories, warehouse, f"--date={day}", *more, environment=environment)


def backfill(histories: Sequence[Path], warehouse: Path, first_day: date, last_day: date) -> Took:
    return report("backfill", histories, warehouse, f"--from={first_day}", f"--to={last_day}")


class _Memory:
    """Polls the resident memory of a process and its descendants, and records the highest sum."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._over.wait(POLL_INTERVAL_SECONDS):
            self._peak = max(self._peak, sum(map(_resident, _family(self._pid))))


def _family(pid: int) -> list[int]:
    """The process and its descendants, except those that still share the memory of their parent."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        children = [
            int(child)
            for thread in threads
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
        ]
        command = _command(pid)
        begun = [child for child in children if _command(child) != command]
    except OSError:
        return []
    return [pid, *(member for child in begun for member in _family(child))]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
