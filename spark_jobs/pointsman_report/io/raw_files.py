"""The name servers' history files and their lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pointsman_report.hadoop_files import Files, RawFile, absolute
from pointsman_report.io.local_rows import local_rows, no_rows
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas.history_tables import RAW_LINE

GZIP_FAULT = "unreadable gzip"
"""Prefix of the quarantine's reason for a whole file; its lines before the damage are used."""

# Spark skips names that begin like this, and name servers use them for unfinished files.
_RAW_FILE = re.compile(r"(^|/)[^._/][^/]*\.jsonl(\.gz)?$")
_FOLDER_DAY = re.compile(r"/dt=(\d{4}-\d{2}-\d{2})/")
_PATTERN = re.compile(r"[\[\]{}*?\\]")


class HistoryNotFoundError(ReportError):
    """A history directory does not exist or has no ``raw`` folder."""


def files_that_may_hold(files: Iterable[RawFile], *, first_day: date) -> list[RawFile]:
    """Drop the files that cannot hold a row of the first day or later.

    The name of a folder alone proves nothing. But a file that is in an older folder *and* was last written before the
    previous day cannot have later rows, unless two clocks were off by a day. So a nightly run reads only a few days.
    """
    day_before = first_day - timedelta(days=1)

    def is_old(file: RawFile) -> bool:
        folder = _FOLDER_DAY.search(file.path)
        return folder is not None and folder[1] < day_before.isoformat() and file.modified_at.date() < day_before

    return [file for file in files if file.size > 0 and not is_old(file)]


def raw_files_of(files: Iterable[RawFile], *, first_day: date) -> list[RawFile]:
    """Return, each once, the history files among these that may hold rows of the first day or later."""
    found = {file.path: file for file in files if _RAW_FILE.search(file.path)}
    return sorted(files_that_may_hold(found.values(), first_day=first_day), key=lambda file: file.path)


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
                    f"no history at {root} (a history directory contains raw/dt=YYYY-MM-DD/*.jsonl)"
                )
        return raw_files_of((file for root in self._roots for file in self._files.walk(root)), first_day=first_day)

    def any_removed(self, files: list[RawFile]) -> bool:
        """Return whether a listed file no longer exists: a name server has compressed it, or its retention ended."""
        return not all(self._files.exists(file.path) for file in files)

    def gzip_faults(self, files: list[RawFile]) -> dict[str, str]:
        """Return the read error of each gzip that cannot be read to its end, by path.

        It reads all of them on the driver, so it is used only after Spark has failed.
        """
        packed = [file.path for file in files if file.path.endswith(".gz")]
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            checked = zip(packed, workers.map(self._files.gzip_fault, packed), strict=True)
            return {path: fault for path, fault in checked if fault is not None}

    def lines(self, files: list[RawFile], faults: Mapping[str, str] | None = None) -> DataFrame:
        """Return every line of the files, with its file, and a row without a line for each damaged gzip.

        ``faults`` are the `gzip_faults`; if not given, they are determined first.
        """
        faults = self.gzip_faults(files) if faults is None else faults
        lines = self._read([file for file in files if file.path not in faults])
        damaged = [file for file in files if file.path in faults]
        if not damaged:
            return lines
        fault_rows = [(None, file.path, file.modified_at, f"{GZIP_FAULT}: {faults[file.path]}") for file in damaged]
        before_the_tear = self._read(damaged, until_torn=True)
        return lines.unionByName(before_the_tear).unionByName(local_rows(self._spark, fault_rows, RAW_LINE))

    def _read(self, files: list[RawFile], *, until_torn: bool = False) -> DataFrame:
        # Readers take brackets as a pattern; escaping fails if the path has a colon, so such files are read one by one.
        special = {file.path for file in files if _PATTERN.search(file.path)}
        alone = sorted(path for path in special if ":" in path.removeprefix("file:"))
        together = [_PATTERN.sub(r"\\\g<0>", file.path) for file in files if file.path not in alone]
        parts = [self._lines_of([path], until_torn=until_torn, patterns=False) for path in alone]
        if together:
            parts.append(self._lines_of(together, until_torn=until_torn, patterns=True))
        if not parts:
            return no_rows(self._spark, RAW_LINE)
        return reduce(DataFrame.unionByName, parts)

    def _lines_of(self, paths: list[str], *, until_torn: bool, patterns: bool) -> DataFrame:
        # Never for the whole session: a damaged table must not be read as empty.
        reader = self._spark.read.format("text").option("ignoreCorruptFiles", str(until_torn).lower())
        lines = reader.option("__globPaths__", str(patterns).lower()).load(paths)
        # Spark returns the path as an escaped URI, but does not escape a plus.
        escaped = F.col("_metadata.file_path")
        path = F.when(escaped.contains("%"), F.url_decode(F.replace(escaped, F.lit("+"), F.lit("%2B"))))
        return lines.select(
            F.col("value").alias("line"),
            F.coalesce(path, escaped).alias("file"),
            F.col("_metadata.file_modification_time").alias("file_modified_at"),
            F.lit(None).cast("string").alias("fault"),
        ).select(*RAW_LINE.fieldNames())
