"""Import of logs into history files: streaming, one file per run and day, deterministic."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import IO

from pointsman_report.rocketmq_log.lines import LogFileError, LogLine, parse, raw_lines
from pointsman_report.rocketmq_log.log_rows import Row, RowBuilder

MAX_PROBLEMS = 20
SEARCHED_LINES = 100_000
"""Number of lines that are searched for the first dated one of a file."""


@dataclass(slots=True)
class Imported:
    """Statistics of an import."""

    files: int = 0
    lines: int = 0
    undated: int = 0
    """Lines without a date, mostly stack traces."""
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)
    """The first unreadable lines, with file and number."""
    broken_files: list[str] = field(default_factory=list)
    rows: int = 0
    days: set[str] = field(default_factory=set)


class HistoryFolder:
    """Writes rows, in order, to ``raw/dt=YYYY-MM-DD/<node>-<boot>-1.jsonl.gz``."""

    def __init__(self, directory: Path) -> None:
        self._raw = directory / "raw"
        self._path: Path | None = None
        self._file: gzip.GzipFile | None = None
        self._plain: IO[bytes] | None = None

    def write(self, row: Row) -> str:
        """Write one row and return its day. Raises OSError."""
        day = str(row["event_at"])[:10]
        # No colon: in a path, Hadoop takes it as the end of a scheme. No dash: it separates node, boot id and number.
        node = re.sub(r"[^A-Za-z0-9._]", "_", str(row["node"]))
        path = self._raw / f"dt={day}" / f"{node}-{row['boot_id']}-1.jsonl.gz"
        if path != self._path:
            self.close()
            self._open(path)
        if self._file is not None:
            self._file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        return day

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Hidden until it is complete: readers skip names that begin with a dot.
        self._plain = path.with_name(f".{path.name}").open("wb")
        self._file = gzip.GzipFile("", "wb", 6, self._plain, mtime=0)
        self._path = path

    def close(self) -> None:
        """Finish the open file, replacing that of an earlier import. Raises OSError."""
        path, file, plain = self._path, self._file, self._plain
        self._path = self._file = self._plain = None
        if path is None or file is None or plain is None:
            return
        file.close()
        plain.flush()
        os.fsync(plain.fileno())
        plain.close()
        path.with_name(f".{path.name}").replace(path)

    def abandon(self) -> None:
        """Remove the open file."""
        path, plain = self._path, self._plain
        self._path = self._file = self._plain = None
        if path is not None and plain is not None:
            plain.close()
            path.with_name(f".{path.name}").unlink(missing_ok=True)


def import_logs(files: Sequence[Path], builder: RowBuilder, folder: HistoryFolder, zone: tzinfo) -> Imported:
    """Read the logs of one name server, the oldest first, and write their rows. Raises OSError of the folder."""
    done = Imported()
    try:
        for file in _in_order(files, zone, done):
            for line in _lines_of(file, zone, done):
                _write(builder.take(line), folder, done)
        _write(builder.end(), folder, done)
        folder.close()
    finally:
        folder.abandon()
    return done


def _write(rows: Iterator[Row], folder: HistoryFolder, done: Imported) -> None:
    for row in rows:
        done.days.add(folder.write(row))
        done.rows += 1


def _in_order(files: Sequence[Path], zone: tzinfo, done: Imported) -> list[Path]:
    """Sort the files by their first dated line: among rotated logs, the lowest number is the newest."""
    found = []
    for number, file in enumerate(files):
        try:
            first = _first_at(file, zone)
        except LogFileError as error:
            done.broken_files.append(str(error))
            continue
        if first is None:
            done.broken_files.append(f"{file}: has no line of a RocketMQ name server's log")
            continue
        found.append((first, number, file))
    return [file for _, _, file in sorted(found)]


def _first_at(file: Path, zone: tzinfo) -> datetime | None:
    for number, raw in enumerate(raw_lines(file)):
        if number >= SEARCHED_LINES:
            break
        try:
            line = parse(raw, zone)
        except ValueError:
            continue
        if line is not None:
            return line.at
    return None


def _lines_of(file: Path, zone: tzinfo, done: Imported) -> Iterator[LogLine]:
    done.files += 1
    try:
        for number, raw in enumerate(raw_lines(file), 1):
            done.lines += 1
            try:
                line = parse(raw, zone)
            except (ValueError, OverflowError) as error:
                done.unreadable += 1
                if len(done.problems) < MAX_PROBLEMS:
                    done.problems.append(f"{file}:{number}: {error}")
                continue
            if line is None:
                done.undated += 1
            else:
                yield line
    except LogFileError as error:
        # The lines before the damage were read.
        done.broken_files.append(str(error))
