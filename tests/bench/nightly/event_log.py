"""Spark's own event log of a run: how evenly the work of each stage was spread over its tasks."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULTS = """\
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir file://{folder}
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that ran: its wall time, and how long each of its tasks took."""

    name: str
    seconds: float
    task_seconds: tuple[float, ...]

    @property
    def skew(self) -> float:
        """The longest task over the median; 1 where a stage has one task."""
        return max(self.task_seconds) / max(statistics.median(self.task_seconds), 0.001)


def environment(folder: Path) -> dict[str, str]:
    """Environment variables that make a process write an event log into the folder."""
    configuration, logs = folder / "conf", folder / "events"
    for made in (configuration, logs):
        made.mkdir(parents=True, exist_ok=True)
    (configuration / "spark-defaults.conf").write_text(DEFAULTS.format(folder=logs), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(configuration)}


def stages(folder: Path) -> list[Stage]:
    """Every stage that was completed, by its order."""
    tasks: dict[int, list[float]] = {}
    done: dict[int, tuple[str, float]] = {}
    for event in _events(folder / "events"):
        if event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            tasks.setdefault(event["Stage ID"], []).append((info["Finish Time"] - info["Launch Time"]) / 1_000)
        elif event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            lasted = (info["Completion Time"] - info["Submission Time"]) / 1_000
            done[info["Stage ID"]] = info["Stage Name"], lasted
    return [Stage(name, lasted, tuple(tasks[number])) for number, (name, lasted) in sorted(done.items())]


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith((".", "appstatus")):
            with path.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)
