"""A file of messages that wait for their queue. Blocking: its owner calls it from a thread, one call at a time.

A message is on the disk when :meth:`Outbox.put` returns. That it is out is written without waiting for the disk: after
a power loss it may be sent once more, with the same message id.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from pointsman_client.core.checks import check_number
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OutboxFailedError, OutboxFullError
from pointsman_client.folder_sync import sync_folder
from pointsman_client.producer.file_lock import FileLock
from pointsman_client.producer.outbox_record import Parked, read_line, write_done, write_parked

logger = logging.getLogger(__name__)

LEAST_BYTES_TO_REWRITE = 1024 * 1024


class Outbox:
    """One file with at most ``max_bytes`` of waiting messages, of one process at a time: a lock file stands beside it.

    What is out stays in the file until that makes more than half of it, or nothing waits; so the file has at most twice
    the bound, or 1 MiB. The constructor touches nothing.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        check_number("max_bytes", max_bytes)
        self.path = Path(path)
        self.max_bytes = max_bytes
        self.damaged = 0
        """Records that could not be read when the file was opened; a torn last one is not counted, for it was never
        acknowledged."""
        self._lock = FileLock(self.path.with_name(self.path.name + ".lock"))
        self._file: int | None = None
        self._waiting: dict[int, tuple[Parked, int]] = {}
        self._waiting_bytes = 0
        self._file_bytes = 0
        self._next_number = 0
        self._has_torn_tail = False

    @property
    def waiting(self) -> int:
        """Messages that are not out."""
        return len(self._waiting)

    def open(self) -> tuple[Parked, ...]:
        """Take the lock and read the file; return what waits, in order.

        Raises :class:`OutboxFailedError`, also when another process, or another object of this one, has it.
        """
        try:
            if not self._lock.hold():
                raise OutboxFailedError(str(self.path), "in use elsewhere: give each process an outbox of its own")
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            self._read()
            sync_folder(self.path.parent)
        except OSError as error:
            self.close()
            raise OutboxFailedError(str(self.path), str(error)) from error
        return tuple(parked for parked, _ in self._waiting.values())

    def put(self, queue: MessageQueue, outgoing: OutgoingMessage) -> Parked:
        """Write a message. Raises :class:`OutboxFullError`; :class:`OutboxFailedError` when it is not on the disk."""
        parked = Parked(self._next_number, queue, outgoing)
        line = write_parked(parked)
        if self._waiting_bytes + len(line) > self.max_bytes:
            raise OutboxFullError(str(self.path), self.max_bytes)
        try:
            self._append(line, sync=True)
        except OSError as error:
            raise OutboxFailedError(str(self.path), f"cannot be written: {error}") from error
        self._note(parked, len(line))
        return parked

    def done(self, parked: Sequence[Parked]) -> None:
        """Note that messages are out. Raises :class:`OutboxFailedError`; they count as out all the same."""
        for each in parked:
            _, size = self._waiting.pop(each.number)
            self._waiting_bytes -= size
        try:
            self._append(b"".join(write_done(each.number) for each in parked), sync=False)
            self._shrink()
        except OSError as error:
            raise OutboxFailedError(str(self.path), f"cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file and let another process have it; what waits stays in it. A second call does nothing."""
        descriptor, self._file = self._file, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.fsync(descriptor)
            os.close(descriptor)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._lock.release()

    def _read(self) -> None:
        if not self.path.is_file():
            raise OSError("is no regular file")
        content = self.path.read_bytes()
        lines = content.splitlines(keepends=True)
        if lines and not _is_whole(lines[-1]):
            logger.warning("outbox %s: the last record was written in part and is dropped", self.path)
            content = content[: -len(lines.pop())]
        for line in lines:
            try:
                record = read_line(line)
            except ValueError as error:
                self.damaged += 1
                logger.error("outbox %s: a record is lost: %s", self.path, error)  # noqa: TRY400  the line is the fact
                continue
            if isinstance(record, Parked):
                self._note(record, len(line))
            elif record in self._waiting:
                _, size = self._waiting.pop(record)
                self._waiting_bytes -= size
        self._file_bytes = len(content)
        self._has_torn_tail = True
        self._mend_tail()
        self._shrink()

    def _note(self, parked: Parked, size: int) -> None:
        self._waiting[parked.number] = (parked, size)
        self._waiting_bytes += size
        self._next_number = max(self._next_number, parked.number + 1)

    def _append(self, lines: bytes, *, sync: bool) -> None:
        self._mend_tail()
        descriptor = self._descriptor()
        # Until all is written, what is there is to be cut off again.
        self._has_torn_tail = True
        view = memoryview(lines)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
        self._has_torn_tail = False
        self._file_bytes += len(lines)

    def _mend_tail(self) -> None:
        if self._has_torn_tail:
            os.ftruncate(self._descriptor(), self._file_bytes)
            self._has_torn_tail = False

    def _shrink(self) -> None:
        if not self._waiting:
            os.ftruncate(self._descriptor(), 0)
            self._file_bytes = 0
        elif self._file_bytes > max(2 * self._waiting_bytes, LEAST_BYTES_TO_REWRITE):
            self._rewrite()

    def _rewrite(self) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            for parked, _ in self._waiting.values():
                file.write(write_parked(parked))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        sync_folder(self.path.parent)
        os.close(self._descriptor())
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND)
        self._file_bytes = os.fstat(self._file).st_size

    def _descriptor(self) -> int:
        if self._file is None:
            raise OutboxFailedError(str(self.path), "is not open")
        return self._file


def _is_whole(line: bytes) -> bool:
    try:
        read_line(line)
    except ValueError:
        return False
    return line.endswith(b"\n")
