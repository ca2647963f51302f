"""Tasks, bytes and skew of each stage of a night at several sizes of fleet, with the settings of a cluster.

The wall time of a cluster cannot be measured on one machine. What a night asks of a cluster can: how many tasks it is
divided into, how long they run, and how many bytes they read and exchange.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tests.bench.histories import Fleet, write
from tests.bench.nightly import event_log, runs
from tests.bench.report import Report

SIZES = (1_000, 10_000)
LARGE = (100_000,)
NODES = 3
FLAPPING = 0.01
DAY = date(2026, 3, 2)
CLUSTER = ("--conf", "spark.sql.shuffle.partitions=200")
"""Spark's default, which holds on a cluster; a local run has 4."""
ALONE_BYTES = 32 * 2**20
"""A task may read this alone: a cluster gains nothing from dividing less."""
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over stages."""

    stages: int
    tasks: int
    cpu_seconds: float
    read: int
    shuffled: int

    @classmethod
    def of(cls, stages: Sequence[event_log.Stage]) -> Total:
        return cls(
            stages=len(stages),
            tasks=sum(len(stage.task_seconds) for stage in stages),
            cpu_seconds=sum(stage.cpu_seconds for stage in stages),
            read=sum(stage.read for stage in stages),
            shuffled=sum(stage.shuffle_written for stage in stages),
        )


def alone(stages: Iterable[event_log.Stage]) -> list[event_log.Stage]:
    """Stages of one task that read enough to be divided."""
    return [stage for stage in stages if len(stage.task_seconds) == 1 and stage.bytes_read > ALONE_BYTES]


async def measure(report: Report, *, sizes: Sequence[int] = SIZES) -> None:
    """Print the figures."""
    report.subject(
        f"Stages of a night: one day at {NODES} name servers, {FLAPPING:.0%} flapping, settings of a cluster"
    )
    for brokers in sizes:
        with tempfile.TemporaryDirectory(prefix="stages") as folder:
            _measure(report, Path(folder), brokers)


async def measure_large(report: Report) -> None:
    """Print the figures of the largest fleet: an hour or more, and tens of gigabytes of disk."""
    await measure(report, sizes=LARGE)


def _measure(report: Report, work: Path, brokers: int) -> None:
    fleet = Fleet(brokers=brokers, nodes=NODES, days=1, first_day=DAY, flapping_share=FLAPPING, seed=6)
    history = write(fleet, work / "history")
    report.progress(f"stages: {brokers:,} brokers begin")
    environment = event_log.environment(work)
    took = runs.nightly(history.histories, work / "warehouse", DAY, *CLUSTER, environment=environment)
    stages = event_log.stages(work)
    total = Total.of(stages)
    report.figure(f"{brokers:,} brokers", f"{history.rows:,} rows, {history.bytes / 1e6:,.0f} MB before packing")
    report.figure("  nightly", f"{took.seconds:.0f} s, peak memory {took.peak_bytes / 1e9:.1f} GB")
    report.figure("  all stages", f"{total.stages}, {total.tasks:,} tasks, {total.cpu_seconds:,.0f} s of CPU")
    report.figure("  bytes", f"read {total.read / 1e6:,.0f} MB, exchanged {total.shuffled / 1e6:,.0f} MB")
    report.figure("  warehouse", f"{_bytes(work / 'warehouse') / 1e6:,.1f} MB")
    for stage in sorted(stages, key=lambda stage: -stage.bytes_read)[:SHOWN]:
        report.figure(
            f"    {stage.name}"[:44],
            f"{len(stage.task_seconds):>4} tasks, read {stage.bytes_read / 1e6:8,.1f} MB, exchanged "
            f"{stage.shuffle_written / 1e6:7,.1f} MB, longest {max(stage.task_seconds):5.1f} s, "
            f"{stage.skew:4.1f} times the median",
        )
    of_one = [stage for stage in stages if len(stage.task_seconds) == 1]
    most, cpu = max(stage.bytes_read for stage in of_one), sum(stage.cpu_seconds for stage in of_one)
    report.figure(
        "  stages of one task", f"{len(of_one)}, at most {most / 1e6:.1f} MB read, {cpu:.0f} s of CPU together"
    )
    single = alone(stages)
    report.figure(
        f"  stages of one task over {ALONE_BYTES / 2**20:.0f} MB",
        ", ".join(sorted({stage.name for stage in single})) or "none",
        target="none",
        is_met=not single,
    )


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
