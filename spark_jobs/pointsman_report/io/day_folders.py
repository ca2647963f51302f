"""Tables as folders, one per table and day: a run moves its folders into place at its end, all of them or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date
from typing import Protocol

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter

from pointsman_report.hadoop_files import Files
from pointsman_report.io.journal import Journal, Replacement, folders_of

NOTE = "_compacted"
_PARTITION = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")

Write = Callable[[DataFrame], DataFrameWriter]
"""Returns the writer of rows, with its format and options."""


def partition(day: date) -> str:
    """Return the name of a day's folder."""
    return f"dt={day.isoformat()}"


def partition_days(names: Iterable[str]) -> set[date]:
    """Return the days in folder names; other names are ignored."""
    return {date.fromisoformat(found[1]) for name in names if (found := _PARTITION.fullmatch(name))}


class TableFiles(Protocol):
    """Where the files of each table and day are, published and staged, and how staged days replace published ones."""

    def recover(self) -> None:
        """Repair what a killed run left. Only for the run that holds the lock."""

    def days(self, table: str, *, staged: bool = False) -> set[date]:
        """Return the days with rows."""

    def load(self, reader: DataFrameReader, table: str, days: Collection[date], *, staged: bool = False) -> DataFrame:
        """Return rows of a table; of other days too, unless the caller filters them. At least one day has rows."""

    def save(self, table: str, rows: DataFrame, write: Write) -> None:
        """Stage the rows of a table, which are sorted by day."""

    def save_intermediate(self, name: str, rows: DataFrame, write: Write) -> list[str]:
        """Write intermediate rows to a staged folder, and return the paths to load; none if there are no rows."""

    def sizes(self, table: str, days: Collection[date], *, staged: bool = False) -> list[int]:
        """Return the size of each file of some days."""

    def note(self, table: str, day: date) -> str | None:
        """Return the note of a published day; table readers ignore it."""

    def write_note(self, table: str, day: date, text: str) -> None:
        """Add a note to a staged day."""

    def publish(self, replaced: Mapping[str, Collection[date]]) -> None:
        """Replace these days of these tables by the staged ones, or remove them; all of them or none."""

    def discard(self) -> None:
        """Drop what this run staged."""


class DayFolders:
    """Implements `TableFiles` for disks and HDFS, where a folder is moved without being copied."""

    def __init__(self, files: Files, root: str, staging: str, journal: str) -> None:
        self._files = files
        self._root = root
        self._staging = staging
        self._journal = Journal(files, journal)

    def recover(self) -> None:
        self._journal.finish()

    def days(self, table: str, *, staged: bool = False) -> set[date]:
        return partition_days(self._files.names_in(self._folder(table, staged=staged)))

    def load(self, reader: DataFrameReader, table: str, days: Collection[date], *, staged: bool = False) -> DataFrame:  # noqa: ARG002  # Spark lists only the folders of the days that it needs
        return reader.load(self._folder(table, staged=staged))

    def save(self, table: str, rows: DataFrame, write: Write) -> None:
        write(rows).partitionBy("dt").save(f"{self._staging}/{table}")

    def save_intermediate(self, name: str, rows: DataFrame, write: Write) -> list[str]:
        path = f"{self._staging}/_{name}"
        write(rows).save(path)
        return [path]

    def sizes(self, table: str, days: Collection[date], *, staged: bool = False) -> list[int]:
        there = set(days) & self.days(table, staged=staged)
        root = self._folder(table, staged=staged)
        files = (file for day in sorted(there) for file in self._files.walk(f"{root}/{partition(day)}"))
        return [file.size for file in files if not file.path.rpartition("/")[2].startswith(("_", "."))]

    def note(self, table: str, day: date) -> str | None:
        return self._files.text(f"{self._root}/{table}/{partition(day)}/{NOTE}")

    def write_note(self, table: str, day: date, text: str) -> None:
        self._files.write(f"{self._staging}/{table}/{partition(day)}/{NOTE}", text)

    def publish(self, replaced: Mapping[str, Collection[date]]) -> None:
        replacements = [each for table, days in replaced.items() for each in self._replacements(table, days)]
        for folder in sorted(folders_of(replacements)):
            self._files.make(folder)
        self._journal.execute(replacements)

    def discard(self) -> None:
        # Incomplete moves are finished by the next run.
        if not self._journal.is_open():
            self._files.delete(self._staging)

    def _folder(self, table: str, *, staged: bool) -> str:
        return f"{self._staging if staged else self._root}/{table}"

    def _replacements(self, table: str, days: Collection[date]) -> Iterator[Replacement]:
        if not days:
            return
        published, staged, old = (f"{root}/{table}" for root in (self._root, self._staging, f"{self._staging}/_old"))
        there, fresh = self.days(table), self.days(table, staged=True)
        for day in sorted(set(days) & (there | fresh)):
            name = partition(day)
            yield Replacement(
                f"{published}/{name}",
                f"{staged}/{name}" if day in fresh else None,
                f"{old}/{name}" if day in there else None,
            )
