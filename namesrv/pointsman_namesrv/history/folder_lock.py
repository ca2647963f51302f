"""A folder, or a part of one, that one process at a time may use."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

MAX_NOTE_BYTES = 100


class InUse(OSError):
    """Another process holds the lock."""


class FolderLock:
    """A lock file, held from :meth:`hold` to :meth:`release` or to the end of the process, even after a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def hold(self) -> None:
        """Acquire the lock; does nothing while it is held. Raises InUse, and another OSError without a file."""
        if self._descriptor is not None:
            return
        try:
            self._descriptor = self._locked(os.O_RDONLY)  # a file open for writing would block a read-only remount
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            self._descriptor = self._locked(os.O_RDWR)  # NFS locks only files that are open for writing

    def _locked(self, mode: int) -> int:
        descriptor = os.open(self._path, mode | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise InUse(f"{self._path} is held by another process") from None
            raise
        return descriptor

    def exchange_note(self, note: str) -> str:
        """Write a line into the lock file and return the one that was there; empty: none, or it cannot be read."""
        try:
            with self._path.open("r+b") as file:
                before = file.readline(MAX_NOTE_BYTES).decode("ascii", "replace").strip()
                file.seek(0)
                file.write(f"{note}\n".encode())  # in place: also on a full disk
        except OSError:
            return ""
        return before

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
