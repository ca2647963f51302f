"""Pass each closed file to the operator's command, at least once, without blocking the writing.

The disk is the queue: every gzipped file of this node that the list of shipped files does not contain is waiting. So
a killed process skips nothing, and a command that is set later ships existing files too. The list,
``<history>/shipped-<node>.txt``, gets a name once the command has ended with 0; a kill in between ships a file twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from pointsman.clock import Clock
from pointsman_namesrv.history.folder import history_files
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.node_metrics import Metrics

MAX_TRIES = 72
"""Tries before a file is not retried until the next start, after about three days of failures."""
FIRST_WAIT_SECONDS = 60.0
MAX_WAIT_SECONDS = 3_600.0
FAILURES_IN_A_ROW = 3
"""Failures in a row after which the file is not the cause: the others wait as well."""
STDERR_BYTES = 2_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Failures:
    count: int
    next_at: float
    """Monotonic seconds."""


class Shipper:
    """Runs ``command`` for one file at a time, the oldest first, in a separate thread."""

    def __init__(
        self,
        files: HistoryFiles,
        *,
        command: tuple[str, ...],
        timeout_seconds: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._raw = files.raw
        self._node = files.node
        self._list = files.directory / f"shipped-{self._node}.txt"
        self._command = command
        self._timeout = timeout_seconds
        self._clock = clock
        self._metrics = metrics
        self._shipped: set[str] = set()
        self._failures: dict[str, _Failures] = {}
        self._problem = ""
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._halted = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="history-shipping", daemon=True)

    def start(self) -> None:
        """Read the list and start. If the list cannot be read, nothing is shipped, and operators see the problem."""
        try:
            self.load()
        except OSError as error:
            self._problem = f"nothing of the history is shipped: the list of shipped files cannot be read: {error}"
            facts = {"file": self._list, "error": str(error)}
            log.error("history shipping is off: list of shipped files cannot be read", extra={"facts": facts})  # noqa: TRY400
            return
        self._thread.start()

    def wake(self) -> None:
        """Check for new files. Never blocks."""
        self._wake.set()

    def waits(self, path: Path) -> bool:
        """Whether a file is to be shipped yet. One that was given up waits no longer."""
        ours = path.name.startswith(f"{self._node}-") and path.suffix == ".gz"
        return ours and path.name not in self._shipped and not self._is_given_up(path.name)

    def problem(self) -> str:
        """Return the problem, for operators; empty: none."""
        return self._problem

    def stop(self, *, timeout: float) -> None:
        """Ship what is new within ``timeout`` seconds; the rest waits for the next start."""
        if not self._thread.is_alive():
            return
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)
        self._halted.set()
        process = self._process
        if process is not None:
            _kill(process)
        self._thread.join(1.0)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait = self.ship_due()
        while not self._stopping.is_set():
            self._wake.wait(wait)
            self._wake.clear()
            wait = self.ship_due()
        # A file may have been closed during the last round.
        self.ship_due()

    def load(self) -> None:
        """Read the list of shipped files, without those that no longer exist. Raises OSError."""
        try:
            listed = set(self._list.read_text(encoding="utf-8", errors="replace").split())
        except FileNotFoundError:
            return
        self._shipped = listed & {path.name for path in self._candidates()}
        partial = self._list.with_suffix(".new")
        try:
            partial.write_text("".join(f"{name}\n" for name in sorted(self._shipped)), encoding="utf-8")
            partial.replace(self._list)
        except OSError as error:
            # The long list stays in use and is as correct.
            log.warning(
                "list of shipped files cannot be shortened; it stays in use", extra={"facts": {"error": str(error)}}
            )

    def ship_due(self) -> float:
        """Try each waiting file that is due; return the seconds until the next one may be due."""
        in_a_row = 0
        wait = MAX_WAIT_SECONDS
        try:
            waiting = [path for path in self._candidates() if self.waits(path)]
        except OSError as error:
            self._problem = f"history files to ship cannot be listed: {error}"
            return FIRST_WAIT_SECONDS
        self._metrics.history_unshipped.set(len(waiting))
        for path in waiting:
            failed = self._failures.get(path.name)
            if failed is not None and (self._stopping.is_set() or failed.next_at > self._clock.monotonic()):
                wait = min(wait, failed.next_at - self._clock.monotonic())
                continue
            if in_a_row == FAILURES_IN_A_ROW or self._halted.is_set():
                return min(wait, FIRST_WAIT_SECONDS)
            if self._ship(path):
                in_a_row = 0
                self._metrics.history_unshipped.dec()
            else:
                in_a_row += 1
                wait = min(wait, FIRST_WAIT_SECONDS)
        return wait

    def _candidates(self) -> list[Path]:
        return [file.path for file in history_files(self._raw) if file.node == self._node and file.packed]

    def _ship(self, path: Path) -> bool:
        result, said = self._execute(path)
        self._metrics.history_shipped.labels(result).inc()
        facts: dict[str, object] = {"file": path}
        if result == "shipped":
            self._failures.pop(path.name, None)
            self._problem = ""
            log.info("history file shipped", extra={"facts": facts})
            self._remember(path.name)
            return True
        tries = self._failures[path.name].count + 1 if path.name in self._failures else 1
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** (tries - 1), MAX_WAIT_SECONDS)
        self._failures[path.name] = _Failures(tries, self._clock.monotonic() + wait)
        self._problem = f"a history file cannot be shipped: {path.name}: {result} after {tries} tries: {said}"
        facts |= {"result": result, "tries": tries, "output": said}
        if self._is_given_up(path.name):
            self._metrics.history_shipped.labels("given_up").inc()
            log.error("shipping of a history file failed; it is retried after a restart only", extra={"facts": facts})
        else:
            log.warning(
                "shipping of a history file failed; retrying", extra={"facts": facts | {"retry_in_seconds": wait}}
            )
        return False

    def _is_given_up(self, name: str) -> bool:
        failed = self._failures.get(name)
        return failed is not None and failed.count >= MAX_TRIES

    def _remember(self, name: str) -> None:
        self._shipped.add(name)
        try:
            with self._list.open("ab") as file:
                file.write(f"{name}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            facts = {"file": name, "error": str(error)}
            log.warning(
                "list of shipped files cannot be written; the file may be shipped twice", extra={"facts": facts}
            )

    def _execute(self, path: Path) -> tuple[str, str]:
        """Run the command for a file: shipped, failed or timeout, and the end of its standard error."""
        try:
            # Arguments, not a shell's command line: a name with a blank is one argument.
            process = subprocess.Popen(  # noqa: S603  # the operator's own command is the purpose
                words(self._command, path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return "failed", str(error)
        self._process = process
        said = _Tail(process)
        try:
            code = process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
            return "timeout", said.text()
        finally:
            self._process = None
        return ("shipped", "") if code == 0 else ("failed", said.text() or f"it ended with {code}")


class _Tail:
    """The last bytes of a process's standard error, read so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._end = b""
        self._thread = threading.Thread(target=self._read, name="history-shipping-stderr", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        stream = self._process.stderr
        assert stream is not None  # noqa: S101  # stderr=PIPE
        with stream, contextlib.suppress(OSError, ValueError):
            while chunk := os.read(stream.fileno(), 65_536):
                self._end = (self._end + chunk)[-STDERR_BYTES:]

    def text(self) -> str:
        # A process that the command left running may keep the pipe open indefinitely.
        self._thread.join(1.0)
        return self._end.decode(errors="replace").strip()


def words(command: tuple[str, ...], path: Path) -> list[str]:
    """Return the command for a file: ``{file}`` is replaced by it; without ``{file}`` it comes last."""
    file = str(path.absolute())
    if any("{file}" in word for word in command):
        return [word.replace("{file}", file) for word in command]
    return [*command, file]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):  # it has just exited
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
