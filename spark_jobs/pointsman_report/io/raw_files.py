"""The name servers' files: which are worth reading, and their lines."""

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
"""How the quarantine's reason begins for a whole file; what stood before its tear is used."""

# Spark passes over names that begin so, and a name server gives them to what it has not finished.
_RAW_FILE = re.compile(r"(^|/)[^._/][^/]*\.jsonl(\.gz)?$")
_FOLDER_DAY = re.compile(r"/dt=(\d{4}-\d{2}-\d{2})/")
_PATTERN = re.compile(r"[\[\]{}*?\\]")


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

    def gzip_faults(self, files: list[RawFile]) -> dict[str, str]:
        """Say of each gzip that cannot be read to its end why, by path.

        It costs a whole read here, on the driver: only when Spark has failed to read them.
        """
        packed = [file.path for file in files if file.path.endswith(".gz")]
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            checked = zip(packed, workers.map(self._files.gzip_fault, packed), strict=True)
            return {path: fault for path, fault in checked if fault is not None}

    def lines(self, files: list[RawFile], faults: Mapping[str, str] | None = None) -> DataFrame:
        """Every line of the files, with the file it stands in; a row without a line for each damaged gzip.

        ``faults`` are the `gzip_faults`; without them they are looked for first.
        """
        faults = self.gzip_faults(files) if faults is None else faults
        lines = self._read([file for file in files if file.path not in faults])
        damaged = [file for file in files if file.path in faults]
        if not damaged:
            return lines
        told = [(None, file.path, file.modified_at, f"{GZIP_FAULT}: {faults[file.path]}") for file in damaged]
        before_the_tear = self._read(damaged, until_torn=True)
        return lines.unionByName(before_the_tear).unionByName(local_rows(self._spark, told, RAW_LINE))

    def _read(self, files: list[RawFile], *, until_torn: bool = False) -> DataFrame:
        # A bracket is a pattern to a file reader; quoting it fails beside a colon, and such files are read one by one.
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
        # Never for the whole session: a damaged table must not read as an empty one.
        reader = self._spark.read.format("text").option("ignoreCorruptFiles", str(until_torn).lower())
        lines = reader.option("__globPaths__", str(patterns).lower()).load(paths)
        # Spark writes the path as a URI; only a plus means itself there.
        escaped = F.col("_metadata.file_path")
        path = F.when(escaped.contains("%"), F.url_decode(F.replace(escaped, F.lit("+"), F.lit("%2B"))))
        return lines.select(
            F.col("value").alias("line"),
            F.coalesce(path, escaped).alias("file"),
            F.col("_metadata.file_modification_time").alias("file_modified_at"),
            F.lit(None).cast("string").alias("fault"),
        ).select(*RAW_LINE.fieldNames())
