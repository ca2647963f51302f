"""One program of a fleet for tests, as a process whose clock is moved through its standard input."""

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
"""What the programs read from the environment: whoever runs the tests may have set it for another purpose."""


class FleetProcessError(RuntimeError):
    """A program of the fleet ended, or did not answer."""


class FleetProcess:
    """Runs ``python -m MODULE ARGUMENTS`` in ``folder``; its errors go to a file there.

    It ends with this process, however that ends: its input then ends too.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, folder: Path, name: str) -> None:
        if find_spec(module.partition(".")[0]) is None:
            raise FleetProcessError(
                "a fleet needs the name server and the agent: pip install 'pointsman-client[testing]'"
            )
        self._name = name
        self._errors = folder / f"{name}.log"
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OWN_SETTINGS)}
        with self._errors.open("ab") as errors:
            # In a folder of ours: `-m` looks first where it is started, and a project may have anything there.
            self._process = subprocess.Popen(  # noqa: S603  our own programs
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
        """What it says first. Raises :class:`FleetProcessError`."""
        return self._answer(START_SECONDS)

    def order_advance(self, seconds: float) -> None:
        """Tell it to let time pass; :meth:`advanced` waits until it has."""
        assert self._process.stdin is not None  # noqa: S101  a pipe
        try:
            self._process.stdin.write(f"advance {seconds!r}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure("ended") from error

    def advanced(self) -> None:
        """Wait until it has. Raises :class:`FleetProcessError`."""
        self._answer(STEP_SECONDS)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. A second call does nothing."""
        self._process.kill()
        self._process.wait()
        self._reader.join(STEP_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  a pipe
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put("")

    def _answer(self, patience: float) -> dict[str, Any]:
        try:
            line = self._said.get(timeout=patience)
        except queue.Empty:
            raise self._failure(f"did not answer in {patience:g} s") from None
        if not line:
            raise self._failure("ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self, what: str) -> FleetProcessError:
        last = self._errors.read_text(encoding="utf-8", errors="replace")[-2_000:].strip()
        return FleetProcessError(f"{self._name} {what}" + (f"; it said last:\n{last}" if last else ""))
