"""Run the property tests with fresh seeds until the time is over: ``make fuzz MINUTES=n``.

One round after another on each core. A failure ends the search with exit 1; what reproduces it is printed, and written
to ``.build/fuzz`` with the output of pytest.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = ROOT / ".build" / "fuzz"
TAIL_LINES = 80
"""Characters of a failure that are printed; the file has all."""


def command(seed: int, tests: list[str]) -> list[str]:
    """The command of one round, which also repeats it."""
    options = [
        "-q",
        "-m",
        "hypothesis",
        "-p",
        "no:cacheprovider",
        "--timeout=0",
        "--hypothesis-profile=fuzz",
        f"--hypothesis-seed={seed}",
    ]
    return ["-m", "pytest", *options, *tests]


def search(tests: list[str], *, until: float, failed: threading.Event) -> int:
    """Run rounds until then, or until one failed anywhere; return how many."""
    rounds = 0
    while time.monotonic() < until and not failed.is_set():
        seed, began = secrets.randbits(32), time.monotonic()
        arguments = command(seed, tests)
        run = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        rounds += 1
        output = run.stdout + run.stderr
        outcome = output.rstrip().rpartition("\n")[2] if run.returncode == 0 else "FAILED"
        print(f"seed {seed:10} {time.monotonic() - began:5.0f} s  {outcome}", flush=True)
        if run.returncode:
            failed.set()
            again = shlex.join([".venv/bin/python", *arguments])
            FOUND.mkdir(parents=True, exist_ok=True)
            file = FOUND / f"{seed}.txt"
            file.write_text(f"{again}\n\n{output}", encoding="utf-8")
            tail = "\n".join(output.splitlines()[-TAIL_LINES:])
            print(f"{tail}\n\nreproduce: {again}\nin full: {file.relative_to(ROOT)}", flush=True)
    return rounds


def main() -> int:
    """Search on all cores; exit 1 for a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, required=True, help="a round that has begun then is finished")
    parser.add_argument(
        "tests", nargs="*", default=["tests/property", "tests/unit"], help="files or node ids (default: %(default)s)"
    )
    arguments = parser.parse_args()
    until, failed, cores = time.monotonic() + 60 * arguments.minutes, threading.Event(), os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        workers = [pool.submit(search, arguments.tests, until=until, failed=failed) for _ in range(cores)]
        rounds = sum(worker.result() for worker in workers)
    print(f"{rounds} rounds, {'a failure' if failed.is_set() else 'no failure'}")
    return 1 if failed.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
