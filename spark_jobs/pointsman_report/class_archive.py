"""An archive of the Java classes that a night loads: Java maps them into memory instead of reading and checking each.

Java writes the archive at its end ("class data sharing"), and starts without it if it is of another Java or of other
jar files. It does not start with half of one, so only a complete one gets its name.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from pointsman_report.parameters import Parameters
from pointsman_report.report_errors import ReportError, one_line
from pointsman_report.spark_session import class_archive, settings_for, spark_session

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
WRITE_SECONDS = 300.0
"""Java writes 190 MB after the night; on a loaded machine that takes a minute."""
DAY = date(2026, 1, 1)
_MIDNIGHT = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
_BROKERS, _DOWN = 6, 3


def write_archive() -> Path:
    """Compute a small night of made-up rows, let Java write its classes, and return the path of the archive.

    Raises:
        ReportError: the folder cannot be written, or Java wrote no archive.
    """
    path = class_archive()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Java cannot write an archive while it uses one.
        path.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
            fresh = Path(folder) / path.name
            if _run_night(Path(folder), fresh) != 0 or not fresh.is_file():
                raise ReportError(f"Java wrote no archive to {path.parent}: it needs Java 17, and 200 MB of free space")
            os.replace(fresh, path)
    except OSError as error:
        raise ReportError(f"cannot write {path}: {one_line(error)}") from error
    return path


def _run_night(folder: Path, archive: Path) -> int | None:
    """Return Java's exit code, or None if it had to be stopped."""
    # Imported late: pyspark may be missing, which is reported in one line.
    from pointsman_report.jobs.days import Request, compute_and_report  # noqa: PLC0415

    histories = [_write_history(folder / node, node) for node in ("namesrv-1", "namesrv-2")]
    options = settings_for(None, memory=None, reads=histories, submitted=None)[JAVA_OPTIONS]
    over = {JAVA_OPTIONS: f'{options} "-XX:ArchiveClassesAtExit={archive}"'}
    with spark_session(None, name="pointsman-report prepare", reads=histories, over=over) as spark:
        # PySpark has no public way to wait for Java's end.
        java: Any = spark.sparkContext._gateway  # noqa: SLF001
        request = Request(
            [str(history) for history in histories], str(folder / "warehouse"), DAY, DAY, Parameters(), None
        )
        compute_and_report(spark, request, log=lambda _: None)
    java.shutdown()
    # Java ends with its standard input.
    java.proc.stdin.close()
    try:
        return int(java.proc.wait(WRITE_SECONDS))
    except subprocess.TimeoutExpired:
        java.proc.kill()
        return None


def _write_history(history: Path, node: str) -> Path:
    folder = history / "raw" / f"dt={DAY}"
    folder.mkdir(parents=True)
    lines = (json.dumps(row) + "\n" for row in _rows(node))
    (folder / "made-up.jsonl").write_text("".join(lines), encoding="utf-8")
    return history


def _rows(node: str) -> Iterator[dict[str, Any]]:
    """A day of a few brokers: half of them go down together, and come back as new processes; one leaves by plan."""
    numbers = count(1)

    def row(event: str, seconds: int, broker: int | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        about = {} if broker is None else _about(broker)
        when = (_MIDNIGHT + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        key = {"schema_version": 2, "event_at": when, "uptime_ms": seconds * 1_000, "event": event}
        return {**key, "node": node, "boot_id": node, "seq": next(numbers), **about, "detail": {}, **more}

    yield row("NAMESRV_STARTED", 0)
    for broker in range(_BROKERS):
        yield row("REGISTERED", 1, broker)
        yield row("TOPICS", 1, broker, detail={"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 4, 6, 0]}})
    yield row("NAMESRV_READY", 30)
    for broker in range(_DOWN):
        yield row("EXPIRED", 3_600 + broker, broker, reason="SILENCE", state="GONE", interval_ms=120_000)
    for broker in range(_DOWN):
        yield row("REGISTERED", 3_700 + broker, broker, incarnation="later")
    for broker in range(_BROKERS):
        beats = {"count": 120, "seconds": 3_600.0, "min_ms": 29_000, "max_ms": 31_000, "buckets": {"32000": 120}}
        yield row("HEARTBEATS", 7_200, broker, detail=beats)
    yield row("UNREGISTERED", 7_300, _DOWN, reason="SHUTDOWN", state="GONE", planned=True)
    yield row("NAMESRV_STOPPED", 86_000)


def _about(broker: int) -> dict[str, Any]:
    name = f"broker-{broker}"
    place = {"zone": f"zone-{broker % 2}", "host": name, "broker_addr": f"192.0.2.{broker}:6379"}
    process = {"incarnation": "first", "broker_version": "7.2.0", "state": "UP", "since_ms": 0, "planned": False}
    return {"cluster": "made-up", "broker_name": name, "broker_id": 0, **place, **process}
