"""Many brokers, long, and almost nothing happens: neither time nor memory may grow with brokers times days."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.bench.nightly import runs
from tests.bench.replay_trace import write_history
from tests.bench.report import Report
from tests.bench.trace_figures import Stretch

BROKERS, CLUSTERS, DAYS, OUTAGES = 5_310, 17, 547, 3_700
"""As a public trace of machines has them: 12,700 rows of brokers."""
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
MOST_SECONDS, MOST_GB = 150.0, 3.0
HOUR, DAY = 3_600, 86_400


def stretches(*, brokers: int, days: int, outages: int, seed: int = 6) -> Iterator[Stretch]:
    """Each broker's times up and down. A few brokers have most of the outages; most have none."""
    rng = random.Random(seed)
    begin = int(BEGAN.timestamp())
    end = begin + days * DAY
    rates = [rng.paretovariate(1.2) for _ in range(brokers)]
    counts = [0] * brokers
    for number in rng.choices(range(brokers), rates, k=outages):
        counts[number] += 1
    for number, count in enumerate(counts):
        site, name = f"site-{number % CLUSTERS:02}", f"broker-{number:04}"
        up = begin + rng.randrange(HOUR)
        for down in sorted(rng.sample(range(up + HOUR, end - DAY, 2 * HOUR), count)):
            back = down + rng.randrange(60, HOUR)
            yield Stretch(site, "zone", name, "up", up, down)
            yield Stretch(site, "zone", name, "down", down, back)
            up = back
        yield Stretch(site, "zone", name, "up", up, end)


async def measure(report: Report, *, brokers: int = BROKERS, days: int = DAYS, outages: int = OUTAGES) -> None:
    """Print the figures."""
    report.subject(f"Sparse: {brokers:,} brokers in {CLUSTERS} clusters, {days} days, {outages:,} outages")
    with tempfile.TemporaryDirectory(prefix="sparse") as folder:
        work = Path(folder)
        rows = write_history(stretches(brokers=brokers, days=days, outages=outages), work / "history")
        files = sum(1 for _ in (work / "history").rglob("*.jsonl"))
        report.figure("history", f"{rows:,} rows in {files:,} files")
        report.progress("sparse: backfill begins")
        last_day = BEGAN.date() + timedelta(days=days - 1)
        took = runs.backfill([work / "history"], work / "warehouse", BEGAN.date(), last_day)
        for stage, seconds in took.stages.items():
            report.figure(f"  {stage}"[:44], f"{seconds:.1f} s")
    report.figure(
        "backfill",
        f"{took.seconds:.0f} s, peak memory {took.peak_bytes / 1e9:.1f} GB",
        target=f"at most {MOST_SECONDS:g} s and {MOST_GB:g} GB",
        is_met=took.seconds <= MOST_SECONDS and took.peak_bytes <= MOST_GB * 1e9,
    )
