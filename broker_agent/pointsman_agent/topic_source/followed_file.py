"""A file that another program rewrites, and that is read only when it may have changed. Blocks: not for the event loop.

Writers rename over it, delete and rename, or truncate it and write in place. So a name may refer to another file, the
file may be missing, and a read may see a partial file. If two reads in a row, between two calls of stat, differ, the
file is being written.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.paused_collector import collector_paused

T = TypeVar("T")

READ_BYTES = 2**20


class UnusableFileError(TopicSourceError):
    """The file is missing or unusable; another copy of it may be usable."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Metadata of a file; the same metadata means the same content, if the clock is fine enough."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, facts: os.stat_result) -> Signature:
        """Build it from the result of ``stat``."""
        return cls(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class _Reading:
    content: bytes
    digest: bytes
    signature: Signature


class FollowedFile(Generic[T]):
    """Returns the parsed content of a file; each content is parsed once.

    ``parse`` raises UnusableFileError, or another TopicSourceError if no other copy is to be tried.
    """

    def __init__(self, path: Path, *, max_bytes: int, parse: Callable[[bytes], T]) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._parse = parse
        self._signature: Signature | None = None
        self._is_settled = False
        self._digest: bytes | None = None
        self._outcome: T | None = None
        self._problem: TopicSourceError | None = None

    def read(self) -> T:
        """Return the content now. Raises UnusableFileError or another TopicSourceError, each naming the file.

        A signature is trusted from the second read on: a file written twice within one tick of the file system's clock
        has the same one for two contents.
        """
        try:
            if self._is_settled and Signature.of(self.path.stat()) == self._signature:
                return self._recall()
            reading = read_whole(self.path, max_bytes=self._max_bytes)
        except FileNotFoundError:
            raise UnusableFileError(f"{self.path}: is missing") from None
        except OSError as error:
            raise TopicSourceError(f"{self.path}: cannot be read: {error.strerror}") from error
        is_known = reading.digest == self._digest
        self._is_settled = is_known and reading.signature == self._signature
        self._signature = reading.signature
        if not is_known:
            self._take(reading)
        return self._recall()

    def forget(self) -> None:
        """Free the memory; the next call reads the file."""
        self._signature = self._digest = self._outcome = self._problem = None
        self._is_settled = False

    def _take(self, reading: _Reading) -> None:
        self._digest = reading.digest
        try:
            with collector_paused():
                self._outcome, self._problem = self._parse(reading.content), None
        except TopicSourceError as error:
            self._outcome, self._problem = None, error

    def _recall(self) -> T:
        if self._problem is not None:
            # A new exception each time: an exception raised again accumulates tracebacks.
            raise type(self._problem)(f"{self.path}: {self._problem}")
        assert self._outcome is not None  # noqa: S101  # either is set with the digest
        return self._outcome


def read_whole(path: Path, *, max_bytes: int) -> _Reading:
    """Read a file twice. Raises OSError, UnusableFileError while it is being written, TopicSourceError if too large."""
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise TopicSourceError(f"{path}: is not a regular file")
        parts: list[bytes] = []
        digest = _read_through(handle, path, max_bytes, keep=parts)
        again = _read_through(handle, path, max_bytes, keep=None)
        signature = Signature.of(os.fstat(handle))
    finally:
        os.close(handle)
    if again != digest or signature != Signature.of(before):
        raise UnusableFileError(f"{path}: is being written")
    return _Reading(b"".join(parts), digest, signature)


def _read_through(handle: int, path: Path, max_bytes: int, *, keep: list[bytes] | None) -> bytes:
    os.lseek(handle, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    size = 0
    while part := os.read(handle, READ_BYTES):
        size += len(part)
        if size > max_bytes:
            raise TopicSourceError(f"{path}: has more than {max_bytes} bytes")
        digest.update(part)
        if keep is not None:
            keep.append(part)
    return digest.digest()
