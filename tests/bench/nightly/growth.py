"""1,000 brokers: a night after 1, 30 and 90 days of history, and a backfill of 7, 30 and 90 days."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import date, timedelta
from pathlib import Path

from tests.bench.histories import Fleet, write
from tests.bench.nightly import runs
from tests.bench.report import Report

BROKERS = 1_000
BACKFILLS = (7, 30, 90)
NIGHTS_AFTER = (1, 30, 90)
NIGHTS = 2
"""The fastest of these runs counts: on a shared machine even Spark's start once took 1.4 times as long."""
FIRST_DAY = date(2026, 1, 1)
FLAT = 1.25
LINEAR = 1.25


async def measure(report: Report, *, brokers: int = BROKERS) -> None:
    """Print the figures. The history of 91 days takes some minutes to write and some gigabytes of disk."""
    report.subject(f"Growth: {brokers:,} brokers at one name server")
    with tempfile.TemporaryDirectory(prefix="growth") as folder:
        work = Path(folder)
        days = max(NIGHTS_AFTER) + 1
        history = write(
            Fleet(brokers=brokers, nodes=1, days=days, first_day=FIRST_DAY, flapping_share=0.01, seed=6),
            work / "history",
        )
        report.figure("history", f"{days} days, {history.rows:,} rows, {history.bytes / 1e6:,.0f} MB")
        nights: dict[int, float] = {}
        backfills: dict[int, float] = {}
        for length in sorted({*BACKFILLS, *NIGHTS_AFTER}):
            warehouse = work / "warehouse"
            shutil.rmtree(warehouse, ignore_errors=True)
            report.progress(f"growth: backfill of {length} days")
            first_days = _first_days(history.histories, length, work / "so-far")
            last_day = FIRST_DAY + timedelta(days=length - 1)
            backfills[length] = _seconds(report, runs.backfill(first_days, warehouse, FIRST_DAY, last_day))
            if length in NIGHTS_AFTER:
                report.progress(f"growth: the night after {length} days")
                first_days = _first_days(history.histories, length + 1, work / "so-far")
                nights[length] = min(
                    _night(report, first_days, warehouse, last_day + timedelta(days=1)) for _ in range(NIGHTS)
                )
    first, last = nights[min(nights)], nights[max(nights)]
    report.figure(
        "nightly after " + ", ".join(f"{n}" for n in nights) + " days",
        ", ".join(f"{seconds:.0f} s" for seconds in nights.values()) + f": {last / first:.2f} times the first",
        target=f"flat, at most {FLAT}",
        is_met=last <= FLAT * first,
    )
    shown = {n: backfills[n] for n in BACKFILLS}
    short, middle, long = BACKFILLS
    early = (shown[middle] - shown[short]) / (middle - short)
    late = (shown[long] - shown[middle]) / (long - middle)
    report.figure(
        "backfill of " + ", ".join(f"{n}" for n in shown) + " days",
        ", ".join(f"{seconds:.0f} s" for seconds in shown.values())
        + f": {early:.2f} and {late:.2f} s for each further day",
        target=f"linear, the second slope at most {LINEAR} times the first",
        is_met=late <= LINEAR * early,
    )


def _seconds(report: Report, took: runs.Took) -> float:
    """Print the seconds of each stage of a run, to find what grows; return their total."""
    for stage, seconds in took.stages.items():
        report.progress(f"{seconds:8.1f} s  {stage}")
    return took.seconds


def _night(report: Report, histories: list[Path], warehouse: Path, day: date) -> float:
    """Seconds of a night in a copy of the warehouse: linked, for published files never change."""
    copy = warehouse.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(warehouse, copy, copy_function=os.link)
    return _seconds(report, runs.nightly(histories, copy, day))


def _first_days(histories: list[Path], days: int, view: Path) -> list[Path]:
    """The histories of the first ``days`` days as links to their folders; a run would also read later days."""
    shutil.rmtree(view, ignore_errors=True)
    for history in histories:
        raw = view / history.name / "raw"
        raw.mkdir(parents=True)
        for folder in sorted((history / "raw").iterdir())[:days]:
            (raw / folder.name).symlink_to(folder)
    return [view / history.name for history in histories]
