"""Tables on an object store: one object, `MANIFEST`, names the files of every table and day.

An object store has no moves: Hadoop copies each object of a folder and then deletes it, while readers read. So a run
writes its files to their final folders, beside those that they replace, and then replaces the manifest by one request.
A reader uses the files of one manifest, the old one or the new one. Files that no manifest names are deleted by the
next run, so a reader has at least until then.

A listing may lack objects that were written shortly before. Each write reports which of its tasks had rows of which
day, and every one of their files must be listed before the manifest names them.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, DataFrameReader, Observation
from pyspark.sql import functions as F

from pointsman_report.hadoop_files import Files
from pointsman_report.io.day_folders import Write, partition, partition_days
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import TABLES

MANIFEST = "_tables.json"
LISTING_SECONDS = 60.0
"""Time in which a listing must show what was written; far more than any store of today needs."""
_POLL_INTERVAL_SECONDS = 0.5
_TASK = "_task"
_NAME = re.compile(r"(?P<prefix>[0-9a-f]{32})-(?P<task>\d+)-")
_UNFINISHED = "/__magic_"
"""Begins the folders of S3A's committer."""

Task = tuple[date | None, int]
"""A day and the number of a task that wrote rows of it; no day where rows are not divided by day."""


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The files of a day of a table."""

    sizes: Mapping[str, int]
    """Bytes by name."""
    note: str | None = None


Tables = dict[str, dict[date, DayFiles]]


class DayObjects:
    """Implements `io.day_folders.TableFiles`.

    A new instance has the published tables as they are when it first reads them, until `recover` or `publish`.
    """

    def __init__(self, files: Files, root: str, staging: str) -> None:
        self._files = files
        self._root = root
        self._staging = staging
        self._manifest = f"{root}/{MANIFEST}"
        self._published: _Published | None = None
        self._reading = Lock()
        self._staged: Tables = {}

    def recover(self) -> None:
        """Read the manifest again, and delete the files of runs that it does not name.

        They are those that the last run replaced, and those of runs that were killed before they published.
        """
        self._published = None
        for table in TABLES:
            named = set(self._paths(table, self.days(table)))
            for file in self._files.walk_if_any(f"{self._root}/{table}"):
                folder, name = file.path.split("/")[-2:]
                if f"{folder}/{name}" not in named and (_NAME.match(name) or _UNFINISHED in file.path):
                    self._files.delete(file.path)

    def days(self, table: str, *, staged: bool = False) -> set[date]:
        return set(self._tables(staged=staged).get(table, {}))

    def load(self, reader: DataFrameReader, table: str, days: Collection[date], *, staged: bool = False) -> DataFrame:
        folder = f"{self._root}/{table}"
        paths = [f"{folder}/{path}" for path in self._paths(table, days, staged=staged)]
        return reader.option("basePath", folder).option("__globPaths__", "false").load(paths)

    def save(self, table: str, rows: DataFrame, write: Write) -> None:
        folder = f"{self._root}/{table}"
        self._staged[table] = {
            day: DayFiles(sizes) for day, sizes in self._write(folder, rows, write, F.col("dt")).items() if day
        }

    def save_intermediate(self, name: str, rows: DataFrame, write: Write) -> list[str]:
        folder = f"{self._staging}/_{name}"
        return [f"{folder}/{file}" for file in self._write(folder, rows, write).get(None, {})]

    def sizes(self, table: str, days: Collection[date], *, staged: bool = False) -> list[int]:
        found = self._tables(staged=staged).get(table, {})
        return [size for day in sorted(set(days) & set(found)) for size in found[day].sizes.values()]

    def note(self, table: str, day: date) -> str | None:
        found = self._tables().get(table, {}).get(day)
        return None if found is None else found.note

    def write_note(self, table: str, day: date, text: str) -> None:
        self._staged[table][day] = DayFiles(self._staged[table][day].sizes, text)

    def publish(self, replaced: Mapping[str, Collection[date]]) -> None:
        published = self._read()
        tables = {table: dict(days) for table, days in published.tables.items()}
        for table, days in replaced.items():
            kept = {day: files for day, files in tables.get(table, {}).items() if day not in days}
            fresh = {day: files for day, files in self._staged.get(table, {}).items() if day in days}
            tables[table] = kept | fresh
        self._published = None
        try:
            self._files.put(self._manifest, _text(tables), replaces=published.etag)
        except Py4JJavaError as error:
            if self._files.etag(self._manifest) == published.etag:
                raise
            raise ReportError(f"another run published to {self._root} during this one: run again") from error
        self._staged.clear()

    def discard(self) -> None:
        self._staged.clear()
        self._files.delete(self._staging)

    def _write(
        self, folder: str, rows: DataFrame, write: Write, day: Column | None = None
    ) -> dict[date | None, dict[str, int]]:
        """Write rows; return the sizes of the files that have rows, by day and name."""
        # The files of a write are recognized by their names: other runs have files in the same folders.
        prefix = uuid.uuid4().hex
        tasks = Observation(prefix)
        numbered = rows.withColumn(_TASK, F.spark_partition_id())
        written = F.collect_set(F.struct((F.lit(None).cast("date") if day is None else day).alias("day"), _TASK))
        writer = write(numbered.observe(tasks, written.alias("tasks")).select(*rows.columns)).mode("append")
        writer = writer.option("mapreduce.output.basename", prefix)
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        (writer if day is None else writer.partitionBy("dt")).save(folder)
        return self._listed(folder, prefix, {(task["day"], task[_TASK]) for task in tasks.get["tasks"]})

    def _listed(self, folder: str, prefix: str, tasks: set[Task]) -> dict[date | None, dict[str, int]]:
        """Wait until a file of each task is listed.

        Raises:
            OSError: some are not listed in time.
        """
        give_up_at = time.monotonic() + LISTING_SECONDS
        while True:
            found: dict[Task, tuple[str, int]] = {}
            for file in self._files.walk_if_any(folder) if tasks else ():
                parent, _, name = file.path.rpartition("/")
                match = _NAME.match(name)
                if match and match["prefix"] == prefix:
                    day = next(iter(partition_days([parent.rpartition("/")[2]])), None)
                    found[day, int(match["task"])] = name, file.size
            missing = tasks - found.keys()
            if not missing:
                break
            if time.monotonic() > give_up_at:
                raise OSError(f"{folder}: {len(missing)} of {len(tasks)} files written are not listed")
            time.sleep(_POLL_INTERVAL_SECONDS)
        by_day: dict[date | None, dict[str, int]] = defaultdict(dict)
        for day, task in sorted(tasks, key=lambda each: each[1]):
            name, size = found[day, task]
            by_day[day][name] = size
        return by_day

    def _paths(self, table: str, days: Collection[date], *, staged: bool = False) -> Iterable[str]:
        found = self._tables(staged=staged).get(table, {})
        return [f"{partition(day)}/{name}" for day in sorted(set(days) & set(found)) for name in found[day].sizes]

    def _tables(self, *, staged: bool = False) -> Tables:
        return self._staged if staged else self._read().tables

    def _read(self) -> _Published:
        with self._reading:
            if self._published is None:
                # In this order: a manifest replaced between the two has another tag, so this run cannot replace it.
                etag = self._files.etag(self._manifest)
                text = None if etag is None else self._files.text(self._manifest)
                self._published = _Published({} if text is None else _tables_of(text), etag)
            return self._published


@dataclass(frozen=True, slots=True)
class _Published:
    tables: Tables = field(default_factory=dict)
    etag: str | None = None


def _text(tables: Tables) -> str:
    plain = {
        table: {day.isoformat(): asdict(files) for day, files in sorted(days.items())}
        for table, days in tables.items()
        if days
    }
    return json.dumps({"tables": plain}, separators=(",", ":")) + "\n"


def _tables_of(text: str) -> Tables:
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(text)["tables"]
    return {
        table: {date.fromisoformat(day): DayFiles(**files) for day, files in days.items()}
        for table, days in found.items()
    }
