"""A program of a test fleet, run as a process whose clock is advanced through its standard input."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_SECONDS = 30.0
STEP_SECONDS = 30.0
OWN_SETTINGS = ("NAMESRV_", "AGENT_")
"""Prefixes of the programs' environment variables, which are removed: they may be set for another purpose."""


class FleetProcessError(RuntimeError):
    """A program of the fleet exited, or did not respond."""


class FleetProcess:
    """Runs ``python -m MODULE ARGUMENTS`` in ``folder``; its standard error goes to a file there.

    It exits with this process, even after SIGKILL, because its standard input is then closed.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, folder: Path, name: str) -> None:
        if find_spec(module.partition(".")[0]) is None:
            raise FleetProcessError(
                "a test fleet needs the name server and the agent: pip install 'pointsman-client[testing]'"
            )
        self._name = name
        self._errors = folder / f"{name}.log"
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OWN_SETTINGS)}
        with self._errors.open("ab") as errors:
            # In a separate folder: `-m` searches the current one first, which may contain a module of the same name.
            self._process = subprocess.Popen(  # noqa: S603  # programs of this project
                [sys.executable, "-m", module, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
        self._reader = threading.Thread(target=self._read, name=f"pointsman-{name}", daemon=True)
        self._reader.start()
        self.pid = self._process.pid

    def facts(self) -> dict[str, Any]:
        """Return the facts that it reports after its start. Raises :class:`FleetProcessError`."""
        return self._read_response(START_SECONDS)

    def order_advance(self, seconds: float) -> None:
        """Start to advance its clock; :meth:`advanced` waits for the end."""
        assert self._process.stdin is not None  # noqa: S101  a pipe
        try:
            self._process.stdin.write(f"advance {seconds!r}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure("exited") from error

    def advanced(self) -> None:
        """Wait until its clock has advanced. Raises :class:`FleetProcessError`."""
        self._read_response(STEP_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit. A second call does nothing."""
        self._process.kill()
        self._process.wait()
        self._reader.join(STEP_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  a pipe
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read_response(self, timeout_seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_seconds)
        except queue.Empty:
            raise self._failure(f"did not respond within {timeout_seconds:g} s") from None
        if not line:
            raise self._failure("exited")
        response: dict[str, Any] = json.loads(line)
        return response

    def _failure(self, what: str) -> FleetProcessError:
        last = self._errors.read_text(encoding="utf-8", errors="replace")[-2_000:].strip()
        return FleetProcessError(f"{self._name} {what}" + (f"; the end of its log:\n{last}" if last else ""))
