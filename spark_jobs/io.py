"""The only module that reads and writes tables and raw history.

A run writes into a staging folder of its own and moves whole day partitions into place at its end, so a run that fails
leaves every table as it was, and running a day again replaces exactly that day. Paths are anything Hadoop can name.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.schemas import RAW_LINE, TABLES

TABLE_FORMAT = "parquet"
"""A file format that Spark writes partitioned by folder."""

MOST_ROWS_A_FILE = 2_000_000
"""Keeps a file of a table below 128 MB."""

_RAW_FILE = re.compile(r"\.jsonl(\.gz)?$")
_FOLDER_DAY = re.compile(r"/dt=(\d{4}-\d{2}-\d{2})/")
_GLOB = re.compile(r"([\[\]{}*?\\])")


class HistoryNotFoundError(Exception):
    """A history directory that is not there, or holds no ``raw`` folder."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file of raw history as it lies there."""

    path: str
    modified_at: datetime
    size: int


def files_that_may_hold(files: Iterable[RawFile], *, first_day: date) -> list[RawFile]:
    """Drop the files that cannot hold a row of the first day or later.

    A folder's name decides nothing. But a file that lies in an older folder *and* was last written before the day
    before cannot hold later rows, unless two clocks were off by a day. So a night reads a few days, not everything.
    """
    day_before = first_day - timedelta(days=1)

    def is_old(file: RawFile) -> bool:
        folder = _FOLDER_DAY.search(file.path)
        return folder is not None and folder[1] < day_before.isoformat() and file.modified_at.date() < day_before

    return [file for file in files if file.size > 0 and not is_old(file)]


class _Files:
    """The few file operations a run needs, on any file system Hadoop knows."""

    def __init__(self, spark: SparkSession) -> None:
        # PySpark has no public way to list or move files on the paths that it reads.
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def _path(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        return hadoop_path, hadoop_path.getFileSystem(self._configuration)

    def exists(self, path: str) -> bool:
        hadoop_path, system = self._path(path)
        return bool(system.exists(hadoop_path))

    def walk(self, path: str) -> Iterator[RawFile]:
        hadoop_path, system = self._path(path)
        found = system.listFiles(hadoop_path, True)
        while found.hasNext():
            status = found.next()
            modified_at = datetime.fromtimestamp(status.getModificationTime() / 1_000, tz=UTC)
            yield RawFile(status.getPath().toString(), modified_at, status.getLen())

    def names_in(self, path: str) -> set[str]:
        hadoop_path, system = self._path(path)
        return {status.getPath().getName() for status in system.listStatus(hadoop_path)}

    def make(self, path: str) -> None:
        hadoop_path, system = self._path(path)
        system.mkdirs(hadoop_path)

    def delete(self, path: str) -> None:
        hadoop_path, system = self._path(path)
        system.delete(hadoop_path, True)

    def move(self, source: str, target: str) -> None:
        source_path, system = self._path(source)
        target_path, _ = self._path(target)
        if not system.rename(source_path, target_path):
            raise OSError(f"could not move {source} to {target}")


class History:
    """The raw history under one or more directories."""

    def __init__(self, spark: SparkSession, directories: list[str]) -> None:
        self._spark = spark
        self._files = _Files(spark)
        self._roots = [f"{directory.rstrip('/')}/raw" for directory in directories]

    def files(self, *, first_day: date) -> list[RawFile]:
        """List the files that may hold rows of the first day or later.

        Raises:
            HistoryNotFoundError: a directory has no ``raw`` folder.
        """
        for root in self._roots:
            if not self._files.exists(root):
                raise HistoryNotFoundError(
                    f"no history at {root} (a history directory holds raw/dt=YYYY-MM-DD/*.jsonl)"
                )
        found = {
            file.path: file for root in self._roots for file in self._files.walk(root) if _RAW_FILE.search(file.path)
        }
        return sorted(files_that_may_hold(found.values(), first_day=first_day), key=lambda file: file.path)

    def lines(self, files: list[RawFile]) -> DataFrame:
        """Every line of the files, with the file it stands in."""
        if not files:
            return self._spark.createDataFrame([], RAW_LINE)
        # An address has a colon and may have brackets; to a file reader a bracket is a pattern.
        paths = [_GLOB.sub(r"\\\1", file.path) for file in files]
        lines = self._spark.read.format("text").load(paths)
        return lines.select(
            F.col("value").alias("line"),
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_modification_time").alias("file_modified_at"),
        ).select(*RAW_LINE.fieldNames())


class Warehouse:
    """The tables, one folder each, and what one run is about to change in them."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._files = _Files(spark)
        self._path = path.rstrip("/")
        self._staging = f"{self._path}/_staging/{uuid.uuid4().hex}"

    def read(self, table: str, *, first_day: date, last_day: date) -> DataFrame:
        """Rows of the days first..last of a published table; none if there is no such table yet."""
        return self._days(f"{self._path}/{table}", table, first_day, last_day)

    def has(self, table: str, day: date) -> bool:
        return self._files.exists(f"{self._path}/{table}/dt={day.isoformat()}")

    def stage(self, table: str, rows: DataFrame) -> DataFrame:
        """Write a table of this run aside and return what was written."""
        schema = TABLES[table].schema
        ordered = rows.select(*schema.fieldNames()).repartition("dt").sortWithinPartitions("dt", *TABLES[table].keys)
        writer = ordered.write.format(TABLE_FORMAT).mode("overwrite").partitionBy("dt")
        writer.option("maxRecordsPerFile", MOST_ROWS_A_FILE).save(f"{self._staging}/{table}")
        return self.staged(table)

    def aside(self, name: str, rows: DataFrame) -> DataFrame:
        """Write rows that only this run needs, once, and return them without the plan that made them."""
        path = f"{self._staging}/_{name}"
        rows.write.format(TABLE_FORMAT).mode("overwrite").save(path)
        return self._spark.read.format(TABLE_FORMAT).schema(rows.schema).load(path)

    def staged(self, table: str) -> DataFrame:
        path = f"{self._staging}/{table}"
        return self._spark.read.format(TABLE_FORMAT).schema(TABLES[table].schema).load(path)

    def publish(self, *, first_day: date, last_day: date) -> None:
        """Put the staged days in the place of the published ones, days without rows included."""
        days = {f"dt={day.isoformat()}" for day in days_from(first_day, last_day)}
        for table in TABLES:
            published, staged = f"{self._path}/{table}", f"{self._staging}/{table}"
            self._files.make(published)
            for partition in days & self._files.names_in(published):
                self._files.delete(f"{published}/{partition}")
            for partition in days & self._files.names_in(staged):
                self._files.move(f"{staged}/{partition}", f"{published}/{partition}")
        self.discard()

    def discard(self) -> None:
        """Remove what this run staged."""
        self._files.delete(self._staging)

    def _days(self, path: str, table: str, first_day: date, last_day: date) -> DataFrame:
        schema = TABLES[table].schema
        if not self._files.exists(path):
            return self._spark.createDataFrame([], schema)
        rows = self._spark.read.format(TABLE_FORMAT).schema(schema).load(path)
        return rows.filter(F.col("dt").between(F.lit(first_day), F.lit(last_day))).select(*schema.fieldNames())


def days_from(first_day: date, last_day: date) -> list[date]:
    return [first_day + timedelta(days=n) for n in range((last_day - first_day).days + 1)]
