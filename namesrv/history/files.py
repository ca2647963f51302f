"""The files of the history: one JSON object a line, by UTC day, closed and gzipped as they age or grow.

``<directory>/raw/dt=YYYY-MM-DD/<node>-<boot>-<n>.jsonl``. Runs in the recorder's thread.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import re
import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_FILE_AGE = timedelta(hours=1)


log = logging.getLogger(__name__)


@dataclass(slots=True)
class _OpenFile:
    path: Path
    stream: BinaryIO
    opened_at: datetime
    size: int = 0


class HistoryFiles:
    """Appends lines; a file closes each hour, at 64 MiB and at UTC midnight, and is then gzipped by rename."""

    def __init__(self, directory: Path, *, node: str, boot_id: str) -> None:
        self._raw = directory / "raw"
        # No colon: Hadoop reads one in a path as the end of a scheme.
        self._stem = f"{re.sub(r'[^A-Za-z0-9._]', '_', node)}-{boot_id}"
        self._number = 0
        self._open: _OpenFile | None = None

    def prepare(self) -> None:
        """Make the folder. Raises OSError when that cannot be."""
        self._raw.mkdir(parents=True, exist_ok=True)

    def append(self, line: bytes, *, event_at: datetime) -> None:
        """Write one line to the file of its day. Raises OSError."""
        current = self._open
        if current is not None and self._is_over(current, event_at):
            self.close()
            current = None
        if current is None:
            current = self._open = self._create(event_at)
        current.stream.write(line)
        current.size += len(line)

    def _is_over(self, current: _OpenFile, event_at: datetime) -> bool:
        return (
            current.opened_at.date() != event_at.date()
            or current.size >= MAX_FILE_BYTES
            or event_at - current.opened_at >= MAX_FILE_AGE
        )

    def _create(self, event_at: datetime) -> _OpenFile:
        folder = self._raw / f"dt={event_at:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        path = folder / f"{self._stem}-{self._number}.jsonl"
        return _OpenFile(path, path.open("xb"), event_at)

    def sync(self) -> None:
        """Bring what was appended to the disk. Raises OSError, also when somebody removed the file meanwhile."""
        if self._open is not None:
            self._open.stream.flush()
            os.fsync(self._open.stream.fileno())
            if os.fstat(self._open.stream.fileno()).st_nlink == 0:
                raise FileNotFoundError(f"{self._open.path} was removed")

    def abandon(self) -> None:
        """Give up a file that the disk refuses; the next line begins another."""
        current, self._open = self._open, None
        if current is None:
            return
        with contextlib.suppress(OSError):  # what it still held is lost, and was counted where the write failed
            current.stream.close()
        with contextlib.suppress(OSError):  # a disk that stays full is not to be filled with empty files
            if current.path.stat().st_size == 0:
                current.path.unlink()

    def close(self) -> None:
        """Close the current file and gzip it. Raises OSError when its last lines do not reach the disk."""
        current, self._open = self._open, None
        if current is None:
            return
        with current.stream as stream:
            stream.flush()
            os.fsync(stream.fileno())
        try:
            self._pack(current)
        except OSError as error:
            # The plain file stays, and is as good.
            log.warning("a history file stays as it is", extra={"facts": {"file": current.path, "error": str(error)}})

    @staticmethod
    def _pack(current: _OpenFile) -> None:
        # Hidden until it is whole: readers skip names that begin with a dot.
        partial = current.path.with_name(f".{current.path.name}.gz")
        try:
            with (
                current.path.open("rb") as plain,
                partial.open("wb") as raw,
                gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            ):
                shutil.copyfileobj(plain, packed, 1024 * 1024)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        partial.replace(current.path.with_name(f"{current.path.name}.gz"))
        current.path.unlink()
