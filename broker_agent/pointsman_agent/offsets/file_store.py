"""Offsets in one file on the agent's machine, for brokers that cannot keep them.

Each write replaces the file whole: another name, fsync, rename, fsync of the folder. The file before it stays beside
it as ``.bak``, and is read where the file itself is missing or damaged. One agent owns the file, by a lock on
``.lock``; one that comes while the other still stops reads meanwhile, and writes when the other is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from pointsman.service.clock import Clock
from pointsman_agent.core.offsets import OffsetChange, OffsetKey, apply_changes
from pointsman_agent.deadline import within
from pointsman_agent.offsets import file_format
from pointsman_agent.offsets.file_format import Damaged
from pointsman_agent.offsets.store import StoreFailed

TIMEOUT_SECONDS = 10.0
MAX_FILE_BYTES = 256 * 1024 * 1024
"""More is no file of offsets, and is not read into memory to find that out."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}

log = logging.getLogger(__name__)

T = TypeVar("T")
_Stamp = tuple[int, int, int]


class FileStore:
    """See :class:`pointsman_agent.offsets.store.OffsetStore`. One thread at a time uses the disk, never the loop's."""

    def __init__(self, path: Path, *, clock: Clock, timeout: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._backup = _beside(path, ".bak")
        self._damaged = _beside(path, ".damaged")
        self._unfinished = _beside(path, ".tmp")
        self._lock_path = _beside(path, ".lock")
        self._clock = clock
        self._timeout = timeout
        self._running: Future[Any] | None = None
        self._lock: int | None = None
        self._no_lock = "it was not loaded"
        self._table: dict[OffsetKey, int] | None = None
        self._read_at: _Stamp | None = None
        """Which state of the file the table was read from, or written to."""
        self._is_sound = False
        """Whether the file is known to be whole, and so may become the backup."""

    async def load(self) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.load`. What cannot be read is said in the log and costs no more than itself."""
        return await self._in_thread(self._load)

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.write`."""
        return await self._in_thread(lambda: self._write(changes))

    def is_ours(self) -> bool:
        """See :meth:`OffsetStore.is_ours`."""
        return self._lock is not None

    def stays_ours(self) -> bool:
        """See :meth:`OffsetStore.stays_ours`. The lock is let go at the end alone."""
        return self.is_ours()

    async def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        try:
            await self._in_thread(self._release)
        except StoreFailed as error:
            log.warning("the file of offsets is not let go", extra={"facts": {"file": self._path, "error": str(error)}})

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do ``work`` beside the loop, after what is still being done: a disk that hangs holds up one thread."""
        try:
            return await within(self._clock, self._timeout, self._after_the_last(work))
        except OSError as error:
            if isinstance(error, TimeoutError) and not error.errno:
                raise StoreFailed(f"{self._path}: the disk did not answer in {self._timeout:g} s") from error
            raise StoreFailed(f"{error.filename or self._path}: {error.strerror or error}") from error

    async def _after_the_last(self, work: Callable[[], T]) -> T:
        if self._running is not None and not self._running.done():
            await asyncio.gather(asyncio.wrap_future(self._running), return_exceptions=True)
        outcome: Future[T] = Future()
        # Running from the start, so that whoever gives up waiting cannot cancel what the thread will end.
        outcome.set_running_or_notify_cancel()
        self._running = outcome
        # Not of a pool: the interpreter waits for those at its end, for ever where the disk hangs.
        threading.Thread(target=_run, args=(work, outcome), name="offsets", daemon=True).start()
        return await asyncio.wrap_future(outcome)

    # --- in the thread ----------------------------------------------------------------------------------------

    def _load(self) -> Mapping[OffsetKey, int]:
        self._hold()
        stamp = _stamp(self._path)
        if self._table is not None and stamp in {None, self._read_at}:
            return {}
        table = self._read(self._path)
        self._is_sound = table is not None
        if table is None:
            if self._table is not None:
                return {}
            table = self._read(self._backup)
            facts = {"file": self._path, "offsets": len(table or {})}
            if table is not None:
                log.warning("offsets are read from the backup, which may lack the last ones", extra={"facts": facts})
            elif stamp is not None:
                log.error("there are no offsets: neither the file nor its backup can be read", extra={"facts": facts})
        self._table, self._read_at = table or {}, stamp
        return dict(self._table)

    def _read(self, path: Path) -> dict[OffsetKey, int] | None:
        problem: str | None
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            with open(path, "rb", opener=lambda path, _: os.open(path, flags)) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size <= MAX_FILE_BYTES:
                    return file_format.decode(stream.read())
                problem = f"has {size} bytes, at most {MAX_FILE_BYTES} are read"
        except FileNotFoundError:
            return None
        except Damaged as error:
            problem = str(error)
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        log.error("a file of offsets is refused", extra={"facts": {"file": path, "problem": problem}})
        return None

    def _write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        if self._lock is not None and not os.fstat(self._lock).st_nlink:
            self._release()
            self._no_lock = "its folder was removed, or its lock"
        if self._lock is None or self._table is None:
            raise StoreFailed(f"{self._path}: {self._no_lock}")
        higher = apply_changes(self._table, changes)
        try:
            with self._unfinished.open("wb") as stream:
                stream.writelines(file_format.encode(self._table))
                stream.flush()
                os.fsync(stream.fileno())
            self._keep_the_last()
            self._unfinished.replace(self._path)
        except OSError:
            # A disk that stays full is not to be filled with what nobody reads.
            with contextlib.suppress(OSError):
                self._unfinished.unlink()
            raise
        self._is_sound, self._read_at = True, _stamp(self._path)
        self._sync_folder()
        return higher

    def _keep_the_last(self) -> None:
        """Keep the file that is about to be replaced: as the backup, or a damaged one for whoever wants to look."""
        if not self._is_sound:
            with contextlib.suppress(FileNotFoundError):
                self._path.replace(self._damaged)
            return
        link = _beside(self._backup, ".tmp")
        link.unlink(missing_ok=True)
        try:
            # A second name, so that there is at no moment no file at all.
            os.link(self._path, link)
            link.replace(self._backup)
        except FileNotFoundError:
            return  # somebody removed it
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._path.replace(self._backup)

    def _hold(self) -> None:
        """Own the file, if nobody else does and the folder can be written."""
        if self._lock is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._no_lock = f"cannot be written: {error.strerror}"
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            is_taken = isinstance(error, BlockingIOError)
            self._no_lock = "another agent writes it" if is_taken else f"cannot be locked: {error.strerror}"
            return
        self._lock = lock

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
            self._no_lock = "it was let go"

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _run(work: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(work())
    except Exception as error:  # noqa: BLE001  # it is for whoever waits
        outcome.set_exception(error)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _stamp(path: Path) -> _Stamp | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
