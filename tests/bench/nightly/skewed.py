"""One broker that flaps every minute among 10,000: no stage may wait for a single task."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path

from tests.bench.histories import FaultRates, Fleet, write
from tests.bench.nightly import event_log, runs
from tests.bench.report import Report

BROKERS = 10_000
DAY = date(2026, 3, 2)
LONG_STAGE_SECONDS = 2.0
MOST_SKEW = 3.0


async def measure(report: Report, *, brokers: int = BROKERS) -> None:
    """Print the figure."""
    report.subject(f"Skew: one broker of {brokers:,} goes down every minute of the day")
    with tempfile.TemporaryDirectory(prefix="skewed") as folder:
        work = Path(folder)
        faults = FaultRates(flapping_every_minute=1)
        fleet = Fleet(brokers=brokers, nodes=1, days=1, first_day=DAY, faults=faults, seed=6)
        history = write(fleet, work / "history")
        environment = event_log.environment(work)
        runs.nightly(history.histories, work / "warehouse", DAY, environment=environment)
        stages = event_log.stages(work)
    long = sorted((stage for stage in stages if stage.seconds > LONG_STAGE_SECONDS), key=lambda stage: -stage.skew)
    report.figure("stages", f"{len(stages)}, {len(long)} of them over {LONG_STAGE_SECONDS:g} s")
    for stage in long[:5]:
        tasks = f"{len(stage.task_seconds)} tasks, the longest {max(stage.task_seconds):.1f} s"
        report.figure(f"  {stage.name}"[:44], f"{stage.seconds:.1f} s, {tasks}, {stage.skew:.1f} times the median")
    worst = max((stage.skew for stage in long), default=1.0)
    report.figure(
        "longest task over the median, worst stage",
        f"{worst:.1f}",
        target=f"at most {MOST_SKEW:g}",
        is_met=worst <= MOST_SKEW,
    )
