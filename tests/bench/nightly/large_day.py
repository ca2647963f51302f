"""One day of 10,000 brokers seen by three name servers, 1 % of them flapping; and DuckDB on the same files."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path

from tests.bench.histories import Fleet, write
from tests.bench.nightly import oracle, runs
from tests.bench.report import Report

BROKERS, NODES = 10_000, 3
FLAPPING = 0.01
DAY = date(2026, 3, 2)
COMPARED_STAGES = ("read", "intervals")
"""Prefixes of the log lines of what DuckDB computes too; other stages run at the same time where cores are idle."""


async def measure(report: Report, *, brokers: int = BROKERS) -> None:
    """Print the figures."""
    report.subject(f"A night: one day of {brokers:,} brokers at {NODES} name servers, {FLAPPING:.0%} of them flapping")
    with tempfile.TemporaryDirectory(prefix="nightly") as folder:
        work = Path(folder)
        fleet = Fleet(brokers=brokers, nodes=NODES, days=1, first_day=DAY, flapping_share=FLAPPING, seed=6)
        history = write(fleet, work / "history")
        report.figure("history", f"{history.rows:,} rows, {history.bytes / 1e6:,.0f} MB before packing")
        report.progress("nightly: begins")
        took = runs.nightly(history.histories, work / "warehouse", DAY)
        report.figure(
            "nightly, end to end",
            f"{took.seconds:.0f} s, {history.rows / took.seconds:,.0f} rows per second; peak memory "
            f"{took.peak_bytes / 1e9:.1f} GB",
        )
        report.figure("of that Java and Spark starting", f"{took.start_seconds / took.seconds:.0%}")
        for stage, seconds in took.stages.items():
            report.figure(f"  {stage}"[:44], f"{seconds:.1f} s")
        report.progress("nightly: DuckDB begins")
        peer = oracle.compute(history.histories, work / "warehouse", day=DAY)
    ours = sum(seconds for stage, seconds in took.stages.items() if stage.startswith(COMPARED_STAGES))
    times = f"{peer.seconds:.1f} s; Spark's stages {ours / peer.seconds:.1f} times that"
    report.figure("DuckDB, ingest and intervals", times)
    equal = not peer.differing and not peer.events_differ
    report.figure(
        "the tables of both",
        f"{peer.events:,} events, {peer.intervals:,} intervals, {len(peer.differing) + peer.events_differ} differences",
        target="equal",
        is_met=equal,
    )
