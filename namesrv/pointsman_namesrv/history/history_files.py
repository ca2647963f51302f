"""The history file that is being written: one JSON object per line, by UTC day, gzipped when it closes.

Runs in the recorder's thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from pointsman_namesrv.history.folder import day_folder, file_node, history_files, pack
from pointsman_namesrv.history.folder_lock import FolderLock, InUse

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_FILE_AGE = timedelta(hours=1)


log = logging.getLogger(__name__)


class HistoryInUse(OSError):
    """Another process writes history under the same node name."""

    def __init__(self, directory: Path, node: str) -> None:
        super().__init__(
            f"another process writes the history of node {node} in {directory}; "
            "set server.node or history.directory (pointsman-observe: --history)"
        )


@dataclass(slots=True)
class _OpenFile:
    path: Path
    stream: BinaryIO
    opened_at: datetime
    size: int = 0
    synced: int = 0


class HistoryFiles:
    """Appends lines. A file closes after an hour, at 64 MiB and at UTC midnight, and is then gzipped by rename."""

    def __init__(self, directory: Path, *, node: str, boot_id: str) -> None:
        self.directory = directory
        self.raw = directory / "raw"
        self.node = file_node(node)
        """The node's name in file names."""
        self.closed = 0
        """Number of closed files."""
        self.previous_boot_id = ""
        """The run before this one, as it named itself; empty: unknown."""
        self._boot_id = boot_id
        self._stem = f"{self.node}-{boot_id}"
        self._number = 0
        self._lock = FolderLock(directory / f".{self.node}.lock")
        self._open: _OpenFile | None = None

    @property
    def open_path(self) -> Path | None:
        """Return the file that is being written."""
        return self._open.path if self._open is not None else None

    def prepare(self) -> None:
        """Create the folder and lock this node's part of it.

        Raises HistoryInUse: this process would compress the other's open file. Raises another OSError without a folder.
        """
        self.raw.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.hold()
        except InUse:
            raise HistoryInUse(self.directory, self.node) from None
        except OSError as error:
            # A folder that can only be read may become writable later.
            log.warning(
                "history folder cannot be locked; a second name server on it would go unnoticed",
                extra={"facts": {"error": str(error)}},
            )
        if self._boot_id:
            self.previous_boot_id = self._lock.exchange_note(self._boot_id)

    def release(self) -> None:
        """Release the lock, so that another process can write this node's history."""
        self._lock.release()

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
        folder = day_folder(self.raw, event_at.date())
        folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        path = folder / f"{self._stem}-{self._number}.jsonl"
        return _OpenFile(path, path.open("xb"), event_at)

    def sync(self) -> None:
        """Sync what was appended to the disk. Raises OSError, also when the file was removed."""
        if self._open is not None:
            self._open.stream.flush()
            os.fsync(self._open.stream.fileno())
            if os.fstat(self._open.stream.fileno()).st_nlink == 0:
                raise FileNotFoundError(f"{self._open.path} was removed")
            self._open.synced = self._open.size

    def abandon(self) -> None:
        """Drop a file that cannot be written, cut to what was synced; the next line begins another one."""
        current, self._open = self._open, None
        if current is None:
            return
        with contextlib.suppress(OSError):
            current.stream.close()
        # Rows after the last sync are written again. A disk that remains full must not be filled with empty files.
        with contextlib.suppress(OSError):
            if current.synced:
                os.truncate(current.path, current.synced)
            else:
                current.path.unlink()

    def close(self) -> None:
        """Close the current file and gzip it. Raises OSError when its last lines cannot be written."""
        current = self._open
        if current is None:
            return
        self.sync()
        self._open = None
        current.stream.close()
        self.closed += 1
        self._pack(current.path)

    def adopt(self) -> int:
        """Gzip the files that this node left open, and return their number. Raises OSError.

        The node's name identifies its files: two nodes of one name must not share a folder.
        """
        mine = [file.path for file in history_files(self.raw) if file.node == self.node and not file.packed]
        left = [path for path in mine if path.suffix == ".jsonl" and path != self.open_path]
        return sum(self._pack(path) for path in left)

    @staticmethod
    def _pack(path: Path) -> bool:
        try:
            pack(path)
        except OSError as error:
            # The uncompressed file stays and is read as well.
            log.warning(
                "history file cannot be compressed; it stays uncompressed",
                extra={"facts": {"file": path, "error": str(error)}},
            )
            return False
        return True
