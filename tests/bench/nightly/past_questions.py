"""1,000 brokers at three name servers for 30 days: how long a question about the past takes, process start included."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from tests.bench.histories import Fleet, write
from tests.bench.nightly import runs
from tests.bench.report import Report

FLEET = Fleet(brokers=1_000, clusters=4, nodes=3, days=30, first_day=date(2026, 3, 2), flapping_share=0.01, seed=7)
QUESTIONS = 200
WITH_SPARK = 5
"""The number of questions that are also asked with Spark."""
AIM_SECONDS = 1.0
KINDS = ("route-at", "explain", "history")


async def measure(report: Report, *, fleet: Fleet = FLEET, questions: int = QUESTIONS) -> None:
    """Print the figures. Writing and computing the history takes some minutes and two gigabytes of disk."""
    report.subject(f"Questions: {fleet.brokers:,} brokers at {fleet.nodes} name servers, {fleet.days} days")
    with tempfile.TemporaryDirectory(prefix="questions") as folder:
        history, warehouse = write(fleet, Path(folder) / "history"), Path(folder) / "warehouse"
        report.progress("questions: computing the days")
        runs.backfill(history.histories, warehouse, fleet.first_day, fleet.last_day)
        asked = list(_questions(fleet, questions))
        took: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for words in asked:
            took[words[0]].append(_seconds(words, warehouse))
        both = [
            _seconds([*words, *(f"--history={each}" for each in history.histories)], warehouse) for words in asked[:9]
        ]
        with_spark = [_seconds([*words, "--engine=spark", "--quiet"], warehouse) for words in asked[:WITH_SPARK]]
    for kind, seconds in took.items():
        report.figure(kind, f"{len(seconds)} questions: {_spread(seconds)}")
    every = sorted(seconds for each in took.values() for seconds in each)
    report.figure(
        "all",
        _spread(every),
        target=f"p95 at most {AIM_SECONDS:g} s",
        is_met=_p95(every) <= AIM_SECONDS,
    )
    report.figure("with --history too, of which all files are read", _spread(both))
    again = statistics.median(with_spark)
    report.figure("with Spark", f"{again:.1f} s, {again / statistics.median(every):.0f} times as long")


def _questions(fleet: Fleet, count: int) -> Iterator[list[str]]:
    rng = random.Random(f"{fleet.seed}/questions")
    topics = fleet.brokers // 8 * fleet.topics_a_broker
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        if kind == "history":
            last = fleet.first_day + timedelta(days=rng.randrange(fleet.days))
            name = f"broker-{rng.randrange(fleet.brokers // 2) + 1:05d}"
            yield [kind, name, f"--to={last}", f"--days={rng.choice((1, 7, 30))}"]
        else:
            at = fleet.moment(rng.random() * fleet.seconds)
            yield [kind, f"topic-{rng.randrange(topics) + 1:05d}", f"--at={at.isoformat()}"]


def _seconds(words: list[str], warehouse: Path) -> float:
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "pointsman_report", *words, f"--warehouse={warehouse}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if ended.returncode not in (0, 1):
        raise runs.RunFailedError(ended.stderr)
    return time.monotonic() - began


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 95 // 100]


def _spread(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, p95 {_p95(seconds):.2f} s, longest {max(seconds):.2f} s"
