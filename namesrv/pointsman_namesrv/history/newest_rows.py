"""Read the rows of a node's earlier runs from its files, the newest first: what a start shows of the past.

A separate program, because rows are read for a minute: in a thread of the name server each JSON line would hold the
interpreter's lock, and the loop with it. It imports little, so that it starts soon and stays small. Each line
of its output is ``RUN AGE_MS ROW``: the run (-1: the last one before this), how old the row is in milliseconds, and
the row as the file has it. The last line is ``end`` and a :class:`Reading` as JSON.

Rows are ordered by run and number, never by their times alone. Each run names the one before it (HistoryFiles); where
that link is missing, the run whose first row is the latest comes next. Within a run ages follow from ``uptime_ms``. The
clock counts only between two runs, and one that was set back counts as no time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pointsman.clock import Clock, SystemClock
from pointsman_namesrv.history.folder import HistoryFile, file_node, history_files
from pointsman_namesrv.history.past_lines import FileDamaged, pieces_of

MAX_LINE_BYTES = 1024 * 1024
"""A row is rarely longer than some kilobytes; TOPICS have at most 500 entries."""
MAX_FILE_BYTES = 256 * 1024 * 1024
"""Uncompressed size above which a file is skipped: the name server closes its files at 64 MiB."""
KEPT_BYTES = 24 * 1024 * 1024
"""Rows of one file in memory, the last ones of it: some 30,000. An hour in which 10,000 brokers left and returned has
as many."""
SKIPPED = frozenset(
    {b"HEARTBEATS", b"HEARTBEAT", b"TOPICS", b"QUEUE_STATS", b"CHECKPOINT", b"NAMESRV_ALIVE", b"KV_CHANGED"}
)
"""Routine rows, which most bytes are, and rows that are about no broker."""
MAINTENANCE = frozenset({"MAINTENANCE_ON", "MAINTENANCE_OFF"})
SLICE_SECONDS = 0.05
"""Work after which the program pauses as long, where it may not run at the lowest priority."""

_HEAD = re.compile(
    rb'\{"schema_version": \d+, "event_at": "([^"]+)", "uptime_ms": (-?\d+), "event": "([A-Z_]+)", "reason": '
)
_TYPES: dict[str, type] = {"event": str, "uptime_ms": int, "seq": int, "detail": dict}
"""Fields that this program uses itself."""
_NAME = re.compile(r"(?P<node>[^-]*)-(?P<boot>[^-]+)-(?P<number>\d+)\.jsonl(?:\.gz)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to read, and how much of it. The bounds are those of the name server's memory."""

    raw: str
    """The folder ``raw`` of the history."""
    node: str
    boot_id: str
    """The run that asks; its own files are not read."""
    previous_boot_id: str
    """The run before it; empty: unknown."""
    started_at: float
    """Unix time at its start."""
    max_age_seconds: float
    exact_seconds: float
    """Up to this age every row about a broker is needed, above it the last ``per_broker`` of a name."""
    per_broker: int
    max_rows: int
    max_bytes: int
    """Uncompressed."""
    max_seconds: float


@dataclass(slots=True)
class Reading:
    """What was read."""

    ended_by: str = "start"
    """The bound that ended it: ``start`` of the history, ``age``, ``rows``, ``bytes``, ``seconds``."""
    runs: int = 0
    files: int = 0
    files_of_others: int = 0
    files_damaged: int = 0
    files_huge: int = 0
    files_gone: int = 0
    """Removed while the folder was read: by retention."""
    rows: int = 0
    rows_of_others: int = 0
    rows_invalid: int = 0
    bytes: int = 0
    seconds: float = 0.0


class FileHuge(Exception):
    """A file of more than :data:`MAX_FILE_BYTES`."""


@dataclass(slots=True)
class _Run:
    """The files of one run by number."""

    boot_id: str
    files: dict[int, HistoryFile] = field(default_factory=dict)

    @property
    def last_day(self) -> date:
        return max(file.day for file in self.files.values())


@dataclass(slots=True)
class _Lines:
    """The lines of a file that may be needed, with its first and last one."""

    kept: deque[bytes] = field(default_factory=deque)
    kept_bytes: int = 0
    dropped: bool = False
    """Whether the first ones did not fit."""
    first: bytes = b""
    last: bytes = b""

    def add(self, line: bytes) -> None:
        self.first = self.first or line
        self.last = line
        head = _HEAD.match(line)
        if head is not None and head[3] in SKIPPED:
            return
        self.kept.append(line)
        self.kept_bytes += len(line)
        while self.kept_bytes > KEPT_BYTES:
            self.kept_bytes -= len(self.kept.popleft())
            self.dropped = True


class NewestRows:
    """The rows of earlier runs."""

    def __init__(
        self,
        question: Question,
        *,
        clock: Clock,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """``pause()`` is called after each piece of a file."""
        self.done = Reading()
        self._question = question
        self._monotonic = clock.monotonic
        self._pause = pause
        self._began = clock.monotonic()
        self._of_name: Counter[tuple[object, object]] = Counter()
        self._run = 0
        self._before = ""
        """Boot before the run that was read last, as that run states."""
        # Where the next older run ends: the age and the clock of the first row of the run that was read last.
        self._age = 0.0
        self._clock = question.started_at

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield run, age in milliseconds and line of each row, the newest first. Raises OSError without a folder."""
        runs = self._runs(history_files(Path(self._question.raw)))
        self._before = self._question.previous_boot_id
        while runs and not self._is_over():
            run = runs.pop(self._next(runs))
            self._run -= 1
            self.done.runs += 1
            self._before = ""
            yield from self._rows_of(run)
        self.done.seconds = round(self._monotonic() - self._began, 3)

    def _is_over(self) -> bool:
        if self.done.ended_by == "start":
            if self._monotonic() - self._began > self._question.max_seconds:
                self.done.ended_by = "seconds"
            elif self.done.bytes > self._question.max_bytes:
                self.done.ended_by = "bytes"
        return self.done.ended_by != "start"

    # --- which files ------------------------------------------------------------------------------------------

    def _runs(self, files: list[HistoryFile]) -> dict[str, _Run]:
        node, runs = file_node(self._question.node), dict[str, _Run]()
        for file in files:
            match = _NAME.fullmatch(file.path.name)
            if match is None or match["node"] != node:
                self.done.files_of_others += not file.path.name.startswith(".")
            elif match["boot"] != self._question.boot_id:
                run = runs.setdefault(match["boot"], _Run(match["boot"]))
                number = int(match["number"])
                # A kill during the compression leaves both; the compressed one is complete.
                if number not in run.files or file.packed:
                    run.files[number] = file
        return runs

    def _next(self, runs: Mapping[str, _Run]) -> str:
        """Return the boot of the run before the one that was read last."""
        if self._before in runs:
            return self._before
        latest = max(run.last_day for run in runs.values())
        return max((boot for boot, run in runs.items() if run.last_day == latest), key=lambda boot: _first(runs[boot]))

    # --- rows -------------------------------------------------------------------------------------------------

    def _rows_of(self, run: _Run) -> Iterator[tuple[int, int, bytes]]:
        ended: tuple[float, float] | None = None
        """Uptime and age of the run's last row, seconds."""
        below: int | None = None
        """Rows with this number or a higher one were read."""
        first = b""
        for number in sorted(run.files, reverse=True):
            if self._is_over():
                return
            lines = self._lines(run.files[number].path)
            if lines is None or not lines.last:
                continue
            first = lines.first
            if ended is None and (last := _moment(lines.last)) is not None:
                at, uptime = last
                ended = uptime, self._age + max(0.0, self._clock - at)
            for line in reversed(lines.kept):
                row = self._own(line)
                if row is None or (below is not None and row["seq"] >= below) or ended is None:
                    continue
                below = row["seq"]
                age = ended[1] + ended[0] - row["uptime_ms"] / 1000
                if age > self._question.max_age_seconds:
                    self.done.ended_by = "age"
                    return
                if row["event"] == "NAMESRV_STARTED" and isinstance(row["detail"].get("previous_boot_id"), str):
                    self._before = row["detail"]["previous_boot_id"]
                if self._is_needed(row, age):
                    yield self._run, round(age * 1000), line
                    self.done.rows += 1
                    if self.done.rows == self._question.max_rows:
                        self.done.ended_by = "rows"
                        return
            if lines.dropped:
                self.done.ended_by = "bytes"
                return
        begun = _moment(first)
        if ended is not None and begun is not None:
            self._clock, self._age = begun[0], ended[1] + ended[0] - begun[1]

    def _is_needed(self, row: Mapping[str, Any], age: float) -> bool:
        name = row["cluster"], row["broker_name"]
        self._of_name[name] += 1
        if self._of_name[name] <= self._question.per_broker:
            return True
        return age <= self._question.exact_seconds and (row["state"] is not None or row["event"] in MAINTENANCE)

    def _own(self, line: bytes) -> dict[str, Any] | None:
        try:
            row: dict[str, Any] = json.loads(line)
            if row["node"] != self._question.node:
                self.done.rows_of_others += 1
                return None
            needed = row["event"].encode() not in SKIPPED
            is_valid = all(isinstance(row[name], kind) for name, kind in _TYPES.items())
            _ = row["cluster"], row["broker_name"], row["state"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_valid = False
        if not is_valid:
            self.done.rows_invalid += 1
            return None
        return row if needed else None

    # --- one file ---------------------------------------------------------------------------------------------

    def _lines(self, path: Path) -> _Lines | None:
        """Return the lines of a file, which may be compressed at this moment; None: it is skipped."""
        try:
            with contextlib.closing(pieces_of(path)) as pieces:
                lines = self._read(piece for piece, _ in pieces)
        except FileNotFoundError:
            if path.suffix != ".gz":
                return self._lines(path.with_name(f"{path.name}.gz"))
            self.done.files_gone += 1
            return None
        except FileHuge:
            self.done.files_huge += 1
            return None
        except (OSError, FileDamaged):
            self.done.files_damaged += 1
            return None
        self.done.files += 1
        return lines

    def _read(self, pieces: Iterable[bytes]) -> _Lines:
        lines, rest, size, is_overlong = _Lines(), b"", 0, False
        for piece in pieces:
            size += len(piece)
            self.done.bytes += len(piece)
            if size > MAX_FILE_BYTES:
                raise FileHuge
            *whole, rest = (rest + piece).split(b"\n")
            if is_overlong and whole:
                is_overlong = False
                del whole[0]
            if len(rest) > MAX_LINE_BYTES:
                self.done.rows_invalid += not is_overlong
                is_overlong, rest = True, b""
            for line in whole:
                lines.add(line)
            self._pause()
        return lines  # what follows the last end of a line was torn by a kill


def _moment(line: bytes) -> tuple[float, float] | None:
    """Return the Unix time and the uptime in seconds of a line; None: it is not a row."""
    head = _HEAD.match(line)
    try:
        return None if head is None else (datetime.fromisoformat(head[1].decode()).timestamp(), int(head[2]) / 1000)
    except ValueError:
        return None


def _first(run: _Run) -> tuple[float, str]:
    """Return the time of a run's first row, to order runs without a link; the boot decides between equal ones."""
    number = min(run.files)
    with (
        contextlib.suppress(OSError, FileDamaged),
        contextlib.closing(pieces_of(run.files[number].path)) as pieces,
    ):
        moment = _moment(next(pieces, (b"", None))[0].partition(b"\n")[0])
        if moment is not None:
            return moment[0], run.boot_id
    return run.files[number].modified_at.timestamp(), run.boot_id


class _Pace:
    """Yields the processor: at the lowest priority where that is allowed, else by pauses."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._parent = os.getppid()
        self._rests = False
        try:
            os.nice(19)
        except OSError:  # the systemd unit does not allow it
            self._rests = True
        self._began = self._monotonic()

    def pause(self) -> None:
        """Pause if it is time; end the program with its parent."""
        if os.getppid() != self._parent:
            os._exit(1)
        worked = self._monotonic() - self._began
        if worked > SLICE_SECONDS:
            if self._rests:
                time.sleep(worked)
            self._began = self._monotonic()


def main(argument: str) -> None:
    """Answer the question that ``argument`` has as JSON."""
    clock, output = SystemClock(), sys.stdout.buffer
    rows = NewestRows(Question(**json.loads(argument)), clock=clock, pause=_Pace(clock).pause)
    for run, age_ms, line in rows.read():
        output.write(b"%d %d %b\n" % (run, age_ms, line))
    output.write(b"end %b\n" % json.dumps(asdict(rows.done)).encode())
    output.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(sys.argv[1])
