"""Output of a bench: the machine, progress, each figure with its target, and missed targets."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

import grpc


class Report:
    """Prints figures to standard output immediately, progress to standard error."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._met = 0
        self._missed: list[str] = []

    def machine(self) -> None:
        """Print the machine and the versions."""
        load = " ".join(f"{load:.1f}" for load in os.getloadavg())
        print(
            f"{_processor()}, {os.cpu_count()} cores, load {load}; {platform.system()} {platform.release()}; "
            f"{platform.python_implementation()} {platform.python_version()}, grpcio {grpc.__version__}, "
            f"loop uvloop {version('uvloop')}"
        )

    def subject(self, title: str) -> None:
        """Begin a subject."""
        print(f"\n{title}", flush=True)

    def progress(self, text: str) -> None:
        """Print a line of progress."""
        print(f"  [{time.monotonic() - self._started:4.0f} s] {text}", file=sys.stderr, flush=True)

    def figure(self, what: str, value: str, *, target: str = "", is_met: bool | None = None) -> None:
        """Print one figure; ``is_met`` is None where there is no target."""
        verdict = ""
        if is_met is not None:
            verdict = f"; target {target}: {'met' if is_met else 'MISSED'}"
            self._met += is_met
            if not is_met:
                self._missed.append(what)
        print(f"  {what:<44} {value}{verdict}", flush=True)

    def conclude(self) -> None:
        """Print how many targets were met."""
        count = self._met + len(self._missed)
        missed = f"; missed: {'; '.join(self._missed)}" if self._missed else ""
        print(f"\n{self._met} of {count} targets met in {time.monotonic() - self._started:.0f} s{missed}", flush=True)


def _processor() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
