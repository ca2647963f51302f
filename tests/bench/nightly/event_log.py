"""Spark's own event log of a run: tasks, bytes and skew of each of its stages."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITTEN = re.compile(r"InsertIntoHadoopFsRelationCommand\s+Input.*\nArguments: .*?/_?([a-z_]+), ")
_NO_QUERY = "without a query"


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that ran: its wall time, how long each of its tasks took, and the bytes of all of them."""

    name: str
    """The table, or the intermediate rows, that its query wrote; else where in the code the query is."""
    seconds: float
    task_seconds: tuple[float, ...]
    cpu_seconds: float
    """CPU time of all tasks, without Java's compilers and garbage collection."""
    read: int
    """Bytes of files, and of rows kept in memory."""
    shuffle_read: int
    shuffle_written: int

    @property
    def skew(self) -> float:
        """The longest task over the median; 1 where a stage has one task."""
        return max(self.task_seconds) / max(statistics.median(self.task_seconds), 0.001)

    @property
    def bytes_read(self) -> int:
        """Bytes of files and of shuffles."""
        return self.read + self.shuffle_read


def settings(folder: Path) -> dict[str, str]:
    """Settings of Spark that make a run write an event log into the folder."""
    logs = folder / "events"
    logs.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{logs}",
    }


def environment(folder: Path) -> dict[str, str]:
    """Environment variables that make a process write an event log into the folder."""
    configuration = folder / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{name} {value}\n" for name, value in settings(folder).items())
    (configuration / "spark-defaults.conf").write_text(lines, encoding="utf-8")
    return {"SPARK_CONF_DIR": str(configuration)}


def stages(folder: Path) -> list[Stage]:
    """Every stage that was completed, by its order."""
    tasks: dict[int, list[dict[str, Any]]] = {}
    done: dict[int, float] = {}
    names: dict[str, str] = {}
    executions: dict[int, str] = {}
    for event in _events(folder / "events"):
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerTaskEnd":
            tasks.setdefault(event["Stage ID"], []).append(event)
        elif kind == "SparkListenerJobStart":
            execution = event["Properties"].get("spark.sql.execution.id", "")
            executions |= dict.fromkeys(event["Stage IDs"], execution)
        elif kind == "SparkListenerSQLExecutionStart":
            written = _WRITTEN.search(event["physicalPlanDescription"])
            place = event["description"].rpartition("/")[2]
            names[str(event["executionId"])] = written[1] if written else place
        elif kind == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            done[info["Stage ID"]] = (info["Completion Time"] - info["Submission Time"]) / 1_000
    return [
        _stage(names.get(executions.get(number, ""), _NO_QUERY), lasted, tasks[number])
        for number, lasted in sorted(done.items())
    ]


def _stage(name: str, seconds: float, ended: list[dict[str, Any]]) -> Stage:
    infos = [event["Task Info"] for event in ended]
    metrics = [event["Task Metrics"] for event in ended if event.get("Task Metrics")]
    reads = [each["Shuffle Read Metrics"] for each in metrics]
    return Stage(
        name,
        seconds,
        tuple((info["Finish Time"] - info["Launch Time"]) / 1_000 for info in infos),
        cpu_seconds=sum(each["Executor CPU Time"] for each in metrics) / 1e9,
        read=sum(each["Input Metrics"]["Bytes Read"] for each in metrics),
        shuffle_read=sum(each["Remote Bytes Read"] + each["Local Bytes Read"] for each in reads),
        shuffle_written=sum(each["Shuffle Write Metrics"]["Shuffle Bytes Written"] for each in metrics),
    )


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith((".", "appstatus")):
            with path.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)
