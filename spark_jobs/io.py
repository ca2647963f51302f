"""The only module that reads and writes tables and raw history.

A run writes into a staging folder of its own and moves whole day partitions into place at its end, so a run that fails
leaves every table as it was, and running a day again replaces exactly that day. Paths are anything Hadoop can name.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import lock
from spark_jobs.errors import ReportError, one_line
from spark_jobs.files import Files, RawFile, absolute
from spark_jobs.schemas import RAW_LINE, TABLES

TABLE_FORMAT = "parquet"
"""A file format that Spark writes partitioned by folder."""

GZIP_FAULT = "unreadable gzip"
"""How the quarantine's reason begins for a whole file; what stood before its tear is used."""

MOST_ROWS_A_FILE = 2_000_000
"""Keeps a file of a table below 128 MB."""

# Spark passes over names that begin so, and a name server gives them to what it has not finished.
_RAW_FILE = re.compile(r"(^|/)[^._/][^/]*\.jsonl(\.gz)?$")
_FOLDER_DAY = re.compile(r"/dt=(\d{4}-\d{2}-\d{2})/")
_PARTITION = re.compile(r"dt=\d{4}-\d{2}-\d{2}")
_GLOB = re.compile(r"([\[\]{}*?\\])")


class HistoryNotFoundError(ReportError):
    """A history directory that is not there, or holds no ``raw`` folder."""


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


class History:
    """The raw history under one or more directories."""

    def __init__(self, spark: SparkSession, directories: list[str]) -> None:
        self._spark = spark
        self._files = Files(spark)
        self._roots = [f"{absolute(directory).rstrip('/')}/raw" for directory in directories]

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

    def any_gone(self, files: list[RawFile]) -> bool:
        """Say whether a listed file is there no more: a name server has packed it, or its time had come."""
        return not all(self._files.exists(file.path) for file in files)

    def lines(self, files: list[RawFile]) -> DataFrame:
        """Every line of the files, with the file it stands in; a row without a line for each damaged gzip."""
        faults = self._gzip_faults(files)
        lines = self._read([file for file in files if file.path not in faults])
        damaged = [file for file in files if file.path in faults]
        if not damaged:
            return lines
        told = [(None, file.path, file.modified_at, f"{GZIP_FAULT}: {faults[file.path]}") for file in damaged]
        before_the_tear = self._read(damaged, until_torn=True)
        return lines.unionByName(before_the_tear).unionByName(self._spark.createDataFrame(told, RAW_LINE))

    def _gzip_faults(self, files: list[RawFile]) -> dict[str, str]:
        packed = [file.path for file in files if file.path.endswith(".gz")]
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            checked = zip(packed, workers.map(self._files.gzip_fault, packed), strict=True)
            return {path: fault for path, fault in checked if fault is not None}

    def _read(self, files: list[RawFile], *, until_torn: bool = False) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], RAW_LINE)
        # An address has a colon and may have brackets; to a file reader a bracket is a pattern.
        paths = [_GLOB.sub(r"\\\1", file.path) for file in files]
        # Never for the whole session: a damaged table must not read as an empty one.
        reader = self._spark.read.format("text").option("ignoreCorruptFiles", str(until_torn).lower())
        lines = reader.load(paths)
        return lines.select(
            F.col("value").alias("line"),
            F.col("_metadata.file_path").alias("file"),
            F.col("_metadata.file_modification_time").alias("file_modified_at"),
            F.lit(None).cast("string").alias("fault"),
        ).select(*RAW_LINE.fieldNames())


class Warehouse:
    """The tables, one folder each, and what one run is about to change in them."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._files = Files(spark)
        self._path = absolute(path).rstrip("/")
        self._all_staging = f"{self._path}/_staging"
        self._staging = f"{self._all_staging}/{uuid.uuid4().hex}"
        self.published = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the warehouse, and clear away what a killed one left.

        Raises:
            ReportError: the warehouse cannot be written, or another run is at work in it.
        """
        path = f"{self._all_staging}/lock"
        with ExitStack() as stack:
            try:
                self._files.make(self._all_staging)
                local = self._files.local(path)
                stack.enter_context(lock.held(local) if local else self._held_far_away(path))
                for name in self._files.names_in(self._all_staging):
                    # Another run may just be asking for the lock.
                    if not name.startswith(("lock", ".lock-")):
                        self._files.delete(f"{self._all_staging}/{name}")
            except ReportError:
                raise
            except (OSError, Py4JError, PySparkException) as error:
                raise ReportError(f"cannot write to the warehouse {self._path}: {one_line(error)}") from error
            yield

    @contextmanager
    def _held_far_away(self, path: str) -> Iterator[None]:
        if self._files.exists(path):
            raise ReportError(f"another run is at work in this warehouse; if that is not so, remove {path}")
        self._files.create(path, f"{os.getpid()}\n")
        try:
            yield
        finally:
            self._files.delete(path)

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

    def last_day_before(self, day: date) -> date | None:
        """Return the last day before this one that was ever computed."""
        path = f"{self._path}/broker_state"
        names = self._files.names_in(path) if self._files.exists(path) else set()
        days = [date.fromisoformat(name[3:]) for name in names if _PARTITION.fullmatch(name)]
        return max((other for other in days if other < day), default=None)

    def publish(self, *, first_day: date, last_day: date) -> None:
        """Put the staged days in the place of the published ones, days without rows included; all of them or none."""
        days = {f"dt={day.isoformat()}" for day in days_from(first_day, last_day)}
        moves: list[tuple[str, str]] = []

        def move(source: str, target: str) -> None:
            # Noted first: an interrupt may come between the two.
            moves.append((source, target))
            self._files.move(source, target)

        try:
            for table in TABLES:
                published, staged, old = (
                    f"{root}/{table}" for root in (self._path, self._staging, f"{self._staging}/_old")
                )
                self._files.make(published)
                self._files.make(old)
                for partition in sorted(days & self._files.names_in(published)):
                    move(f"{published}/{partition}", f"{old}/{partition}")
                for partition in sorted(days & self._files.names_in(staged)):
                    move(f"{staged}/{partition}", f"{published}/{partition}")
            self.published = True
        except BaseException:
            for source, target in reversed(moves):
                if self._files.exists(target) and not self._files.exists(source):
                    self._files.move(target, source)
            raise
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
