"""The folder of the snapshot: each segment is replaced whole or not at all, and one process owns the folder.

A segment is written under another name, synced, and renamed; so a crash at any moment leaves the old one or the new
one. Blocking; used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from pointsman.service.folder_lock import FolderLock, InUse
from pointsman.storage.damaged_files import set_aside
from pointsman_namesrv.snapshot import segment
from pointsman_namesrv.snapshot.segment import SegmentRefused

LOCK_NAME = "lock"
MOST_DAMAGED = 16
"""Refused segments kept for whoever wants to look; the oldest go first."""

_SEGMENT = re.compile(r"[0-9a-f]{32}\.segment")
_UNFINISHED = re.compile(rf"(?:{_SEGMENT.pattern})\.tmp")


class StateDirectoryInUse(OSError):
    """Another process owns the folder."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"the state directory {directory} is used by another pointsman-namesrv")


class SegmentFiles:
    """The segments in one folder. Nothing is touched before :meth:`hold`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = FolderLock(directory / LOCK_NAME)

    def hold(self) -> None:
        """Make the folder, own it, and remove what a crash left unfinished.

        Raises StateDirectoryInUse, and another OSError when the folder cannot be written.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.hold()
        except InUse:
            raise StateDirectoryInUse(self.directory) from None
        for name in os.listdir(self.directory):
            if _UNFINISHED.fullmatch(name):
                (self.directory / name).unlink()

    def is_held(self) -> bool:
        """Whether the folder is ours and still the one that we took: somebody may have removed it."""
        return self._lock.is_held()

    def release(self) -> None:
        """Let another process have the folder."""
        self._lock.release()

    def names(self) -> list[str]:
        """Every segment's file name, sorted. Raises OSError."""
        return sorted(name for name in os.listdir(self.directory) if _SEGMENT.fullmatch(name))

    def read(self, name: str) -> bytes:
        """The content of one segment. Raises SegmentRefused, also when the disk does not give it.

        Raises PermissionError: it is not damaged, and must neither be put aside nor written over.
        """
        # Neither a pipe nor a link may stand in a segment's place and have us wait, or read elsewhere.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with open(self.directory / name, "rb", opener=lambda path, _: os.open(path, flags)) as stream:
                header = stream.read(segment.HEADER_SIZE)
                size, expected = os.fstat(stream.fileno()).st_size, segment.size_said_by(header)
                if size != expected:
                    raise SegmentRefused(f"has {size} bytes, its header says {expected}")
                return segment.unseal(header + stream.read())
        except PermissionError:
            raise
        except OSError as error:
            raise SegmentRefused(f"cannot be read: {error.strerror}") from error

    def write(self, name: str, content: bytes) -> int:
        """Replace one segment; return its bytes. On the disk for good after :meth:`sync`. Raises OSError."""
        data = segment.seal(content)
        unfinished = self.directory / f"{name}.tmp"
        try:
            with unfinished.open("wb", buffering=0) as stream:
                rest = memoryview(data)
                while rest:
                    rest = rest[stream.write(rest) :]
                os.fsync(stream.fileno())
            unfinished.replace(self.directory / name)
        except OSError:
            # A disk that stays full is not to be filled with what nobody reads.
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        return len(data)

    def remove(self, name: str) -> None:
        """Remove one segment; one that is gone is fine. Raises OSError."""
        (self.directory / name).unlink(missing_ok=True)

    def sync(self) -> None:
        """Bring what was renamed and removed to the disk; once a round. Raises OSError."""
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def put_aside(self, name: str) -> None:
        """Move a refused segment to where it is not read again; the oldest ones there make room."""
        set_aside(self.directory, [name], most=MOST_DAMAGED)
