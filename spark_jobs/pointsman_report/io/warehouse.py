"""The tables (a folder per table and day), and the staged changes of one run.

A run stages its tables and publishes whole days at its end: on disks and HDFS by moving folders (`io.day_folders`), on
an object store by replacing the object that names the files (`io.day_objects`). A run that fails leaves every table
unchanged, and running a day again replaces exactly that day.

The tables are Parquet. Another format would need changes only here, in `_reader` and `_writer` and the label of the
warehouse, and in those two modules.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pointsman_report import lock
from pointsman_report.hadoop_files import Files, absolute
from pointsman_report.io.day_folders import DayFolders, TableFiles
from pointsman_report.io.day_objects import DayObjects
from pointsman_report.io.local_rows import collected, local_rows, no_rows
from pointsman_report.report_errors import ReportError, one_line
from pointsman_report.schemas import TABLES, WAREHOUSE_VERSION
from pointsman_report.spark_session import MEMORY_SETTING

MAX_ROWS_PER_FILE = 400_000
"""A file is sorted and written by one task: with more rows one core would work while all others wait."""
MAX_TASKS = 400
MAX_ROWS_ON_DRIVER = 20_000
"""Of rows kept in memory: with more, their copies in the driver and in tasks cost more than the plan that they save."""
FILE = "_file"
"""Column of the rows of one output file."""
GROUP_BYTES = 8 * 2**20
"""Row group size in the writer's memory. One task reads a whole group, so a group as large as the file would not be
read in parallel. With 4 MB the file was twice as large."""
LABEL = "_warehouse.json"
APPENDED_TABLES = ("registration_events", "quarantine", "ingested_files")
"""Tables that grow by the rows read; the others are recomputed for all days of a run."""


def days_from(first_day: date, last_day: date) -> list[date]:
    """Return the days first..last."""
    return [first_day + timedelta(days=n) for n in range((last_day - first_day).days + 1)]


def divided(rows: DataFrame, keys: tuple[str, ...], counts: Mapping[date, int], spark: SparkSession) -> DataFrame:
    """Repartition rows by output file, named in a new column `FILE`. ``counts``: rows by day, or slightly more; days
    without a count are small."""
    parts = {day: -(-count // MAX_ROWS_PER_FILE) for day, count in counts.items() if count > MAX_ROWS_PER_FILE}
    if not parts:
        # Spark leaves this out for rows that a transform has divided by day.
        return rows.withColumn(FILE, F.col("dt")).repartition(FILE)
    days = sorted(counts)
    tasks = min(MAX_TASKS, sum(parts.get(day, 1) for day in days))
    landing = _landing_numbers(spark, tasks)
    task_of: Column = F.lit(landing[0])
    first = 0
    for day in days:
        share = F.pmod(F.hash(*keys), F.lit(parts.get(day, 1)))
        numbers = F.array(*(F.lit(landing[(first + n) % tasks]) for n in range(parts.get(day, 1))))
        task_of = F.when(F.col("dt") == F.lit(day), F.element_at(numbers, share + 1)).otherwise(task_of)
        first += parts.get(day, 1)
    return rows.withColumn(FILE, task_of).repartition(tasks, FILE)


def _landing_numbers(spark: SparkSession, tasks: int) -> list[int]:
    """Return for each task a number that Spark's hash partitioning maps to it; random keys could give one task two big
    parts."""
    numbers = spark.range(tasks * 40).select("id", F.pmod(F.hash(F.col("id").cast("int")), F.lit(tasks)).alias("task"))
    found = {row["task"]: row["number"] for row in numbers.groupBy("task").agg(F.min("id").alias("number")).collect()}
    return [found.get(task, task) for task in range(tasks)]


def checked_label(text: str | None, path: str, *, has_tables: bool) -> dict[str, Any]:
    """Return the label of the warehouse at a path; empty for one without tables.

    Raises:
        ReportError: it is damaged, or the warehouse is of another version or format.
    """
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        raise ReportError(f"{path}/{LABEL} is damaged: {error}") from error
    label: dict[str, Any] = found if isinstance(found, dict) else {}
    version = label.get("warehouse_version")
    if version != WAREHOUSE_VERSION and (label or has_tables):
        raise ReportError(
            f"the warehouse {path} has version {version or 1}, but this release needs version {WAREHOUSE_VERSION}: "
            "backfill a new folder from raw history"
        )
    table_format = label.get("table_format", "parquet")
    if table_format != "parquet":
        raise ReportError(
            f"the tables of {path} are in {table_format} format, but this release reads only Parquet: backfill a new "
            "folder from raw history"
        )
    return label


class Warehouse:
    """Reads tables, stages new ones, and puts them into place."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._files = Files(spark)
        self._path = absolute(path).rstrip("/")
        self._all_staging = f"{self._path}/_staging"
        self._staging = f"{self._all_staging}/{uuid.uuid4().hex}"
        self._label = f"{self._path}/{LABEL}"
        self._tables: TableFiles = (
            DayObjects(self._files, self._path, self._staging)
            if self._files.is_object_store(self._path)
            else DayFolders(self._files, self._path, self._staging, f"{self._all_staging}/journal")
        )
        self._own_days: dict[str, set[date]] = {}
        self._span: tuple[date, date] | None = None
        self._is_checked = False
        self._in_memory: dict[str, DataFrame] | None = {} if spark.conf.get(MEMORY_SETTING, "") == "true" else None
        self._on_driver = self._in_memory is not None
        self._fresh: dict[str, DataFrame] = {}
        self._just_published: dict[str, tuple[set[date], DataFrame]] = {}
        self.published = False

    @property
    def path(self) -> str:
        """The absolute path, or the URI."""
        return self._path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the warehouse; finish the publication of a killed run, and delete what it staged.

        Raises:
            ReportError: the warehouse cannot be written, is of another version, or locked by another run.
        """
        path = f"{self._all_staging}/lock"
        with ExitStack() as stack:
            try:
                self._files.make(self._all_staging)
                local = self._files.local(path)
                stack.enter_context(lock.locked(local) if local else lock.locked_remotely(self._files, path))
                self._check_label()
                self._tables.recover()
                for name in self._files.names_in(self._all_staging):
                    # Another run may be trying to get the lock.
                    if not name.startswith(("lock", ".lock-")):
                        self._files.delete(f"{self._all_staging}/{name}")
            except ReportError:
                raise
            except (OSError, Py4JError, PySparkException) as error:
                raise ReportError(f"cannot write to the warehouse {self._path}: {one_line(error)}") from error
            yield

    def read(self, table: str, *, first_day: date, last_day: date) -> DataFrame:
        """Return rows of the days first..last of a published table; none if the table does not exist yet."""
        schema = TABLES[table].schema
        days = {day for day in self.days(table) if first_day <= day <= last_day}
        if not days:
            return no_rows(self._spark, schema)
        within = F.col("dt").between(F.lit(first_day), F.lit(last_day))
        replaced, fresh = self._just_published.get(table, (set(), None))
        if fresh is not None and days <= replaced:
            return fresh.filter(within)
        rows = self._tables.load(self._reader(schema), table, days)
        return rows.filter(within).select(*schema.fieldNames())

    def read_days(self, table: str, days: Collection[date]) -> DataFrame:
        """Return rows of some days of a published table."""
        found = sorted(set(days) & self.days(table))
        if not found:
            return no_rows(self._spark, TABLES[table].schema)
        return self.read(table, first_day=found[0], last_day=found[-1]).filter(F.col("dt").isin(found))

    def days(self, table: str) -> set[date]:
        """Return the days with rows in a published table."""
        return self._tables.days(table)

    def computed_days(self) -> set[date]:
        """Return the days computed by any run."""
        return self.days("computed_days")

    def last_day_before(self, day: date) -> date | None:
        """Return the last computed day before this one."""
        return max((other for other in self.computed_days() if other < day), default=None)

    def rows(self, values: list[tuple[Any, ...]], schema: T.StructType) -> DataFrame:
        """Return a DataFrame from rows of the driver."""
        return local_rows(self._spark, values, schema)

    def stage(
        self,
        table: str,
        rows: DataFrame,
        *,
        days: Collection[date] | None = None,
        counts: Mapping[date, int] | None = None,
        level: int | None = None,
        in_file: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> DataFrame:
        """Write a table to the staging folder and return the rows written.

        ``days``: the days to replace, if they differ from the days published at the end. ``counts``: rows by day, or
        slightly more, if days may be too big for one file. ``level``: compression level of zstd. ``in_file``: applied
        to the rows together with their `FILE`; rows of one key are in one file.
        """
        if days is not None:
            self._own_days[table] = set(days)
        columns, keys = TABLES[table].schema.fieldNames(), TABLES[table].keys
        self._fresh.pop(table, None)
        once = in_file(rows.withColumn(FILE, F.col("dt"))).select(*columns)
        if level is None and (few := self._few(once)) is not None:
            self._fresh[table], count = few
            if count:
                in_order = few[0].coalesce(1).sortWithinPartitions("dt", *keys)
                self._tables.save(table, in_order, self._writer)
            return self.staged(table)
        parts = divided(rows.select(*columns), keys, counts or {}, self._spark)

        def writer(rows: DataFrame) -> DataFrameWriter:
            made = self._writer(rows)
            return made if level is None else made.option("parquet.compression.codec.zstd.level", level)

        self._tables.save(table, in_file(parts).drop(FILE).sortWithinPartitions("dt", *keys), writer)
        return self.staged(table)

    def materialize(self, name: str, rows: DataFrame) -> DataFrame:
        """Compute intermediate rows once and return them without their query plan.

        With `MEMORY_SETTING` they are kept in memory: a few in the plan itself, others by Spark, or on its local disk
        if that is full. Else they are in staged files.
        """
        if self._in_memory is not None:
            if (few := self._few(rows)) is not None:
                return few[0]
            self._release(name)
            self._in_memory[name] = rows.localCheckpoint()
            return self._in_memory[name]
        # Short-lived: better compression would cost more time than it saves.
        paths = self._tables.save_intermediate(name, rows, lambda rows: self._writer(rows).option("compression", "lz4"))
        return self._reader(rows.schema).load(paths) if paths else no_rows(self._spark, rows.schema)

    def _few(self, rows: DataFrame) -> tuple[DataFrame, int] | None:
        """Compute rows to keep in memory; return them as part of the plan and their number, None if they are many.

        Queries of such rows are small, and of none mostly empty. After many rows, those that follow from them are
        expected to be many, too.
        """
        found = collected(rows, most=MAX_ROWS_ON_DRIVER) if self._on_driver else None
        self._on_driver = found is not None
        return found

    def staged(self, table: str) -> DataFrame:
        """Return a table as staged by this run; for tables that grow, the days given to `show`."""
        if self._span is not None and table in self._own_days:
            first_day, last_day = self._span
            return self.rows_after_run(table, first_day=first_day, last_day=last_day)
        if table in self._fresh:
            return self._fresh[table]
        schema, days = TABLES[table].schema, self._tables.days(table, staged=True)
        if not days:
            return no_rows(self._spark, schema)
        return self._tables.load(self._reader(schema), table, days, staged=True)

    def show(self, first_day: date, last_day: date) -> None:
        """Set the days that `staged` returns of tables that grow."""
        self._span = first_day, last_day
        for table in APPENDED_TABLES:
            self._own_days.setdefault(table, set())

    def rows_after_run(self, table: str, *, first_day: date, last_day: date) -> DataFrame:
        """Return rows of a table's days as of the end of this run: the staged ones, else the published ones."""
        own = self._own_days.get(table, set())
        within = sorted(day for day in own if first_day <= day <= last_day)
        published = self.read(table, first_day=first_day, last_day=last_day)
        if not within:
            return published
        if table in self._fresh:
            fresh = self._fresh[table].filter(F.col("dt").isin(within))
        elif self._tables.days(table, staged=True).isdisjoint(within):
            fresh = no_rows(self._spark, TABLES[table].schema)
        else:
            reader = self._reader(TABLES[table].schema)
            fresh = self._tables.load(reader, table, within, staged=True).filter(F.col("dt").isin(within))
        if not {day for day in self.days(table) if first_day <= day <= last_day} - own:
            return fresh
        return published.filter(~F.col("dt").isin(within)).unionByName(fresh)

    def sizes(self, table: str, days: Collection[date], *, staged: bool = False) -> list[int]:
        """Return the size of each file of some days, published or staged."""
        return self._tables.sizes(table, days, staged=staged)

    def note(self, table: str, day: date) -> str | None:
        """Return the marker of a published day; table readers ignore it."""
        return self._tables.note(table, day)

    def write_note(self, table: str, day: date, text: str) -> None:
        self._tables.write_note(table, day, text)

    def publish(self, *, first_day: date, last_day: date) -> None:
        """Replace the published days by the staged ones, including days without rows; all of them or none."""
        of_run = set(days_from(first_day, last_day))
        self._publish({table: self._own_days.get(table, of_run) for table in TABLES})

    def publish_own(self) -> None:
        """Publish only tables that were staged with their own days."""
        self._publish(self._own_days)

    def _publish(self, replaced: Mapping[str, Collection[date]]) -> None:
        self._write_label()
        self._tables.publish(replaced)
        self.published = True
        self._just_published = {
            table: (set(days), self._fresh[table]) for table, days in replaced.items() if table in self._fresh
        }
        self.discard()

    def discard(self) -> None:
        """Delete what this run staged, unless moves are incomplete: the next run finishes them."""
        for name in list(self._in_memory or ()):
            self._release(name)
        self._tables.discard()
        self._own_days.clear()
        self._fresh.clear()
        self._span = None

    def _release(self, name: str) -> None:
        kept = self._in_memory.pop(name, None) if self._in_memory is not None else None
        if kept is not None:
            # PySpark has no public way to release a local checkpoint before Java collects it as garbage.
            kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001

    def _reader(self, schema: T.StructType) -> DataFrameReader:
        self._check_label()
        return self._spark.read.format("parquet").schema(schema)

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        return rows.write.format("parquet").mode("overwrite").option("parquet.block.size", GROUP_BYTES)

    def _check_label(self) -> None:
        """Check once that this release reads the tables.

        Raises:
            ReportError: this warehouse is of another version, or of another format than Parquet.
        """
        if self._is_checked:
            return
        self._read_label()
        self._is_checked = True

    def _read_label(self) -> dict[str, Any]:
        return checked_label(self._files.text(self._label), self._path, has_tables=bool(self.days("broker_state")))

    def _write_label(self) -> None:
        label = {"warehouse_version": WAREHOUSE_VERSION}
        if self._read_label() != label:
            self._files.write(self._label, json.dumps(label) + "\n")
