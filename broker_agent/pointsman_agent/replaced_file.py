"""A small file that is replaced as a whole, for state beside the offsets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.single_call_thread import SingleCallThread

FILE_SECONDS = 10.0

T = TypeVar("T")


class ReplacedFile:
    """Reads and replaces the file in a thread, which is named ``name``. At most one call at a time.

    A call that the disk does not answer within FILE_SECONDS raises ``failure``, as does one that fails.
    """

    def __init__(self, path: Path, *, name: str, max_bytes: int, failure: type[Exception], clock: Clock) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._failure = failure
        self._clock = clock
        self._thread = SingleCallThread(name, busy=failure)

    async def load(self, parse: Callable[[bytes], T]) -> T | None:
        """Return what ``parse`` makes of the content, of none if it has more than ``max_bytes``; None: no file."""
        return await self._in_thread(lambda: self._load(parse))

    async def write(self, content: Callable[[], str]) -> None:
        """Replace the content, in ASCII; it is on the disk when this returns."""
        await self._in_thread(lambda: self._write(content()))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await within(self._clock, FILE_SECONDS, self._thread.run(work))
        except TimeoutError:
            raise self._failure(f"{self.path}: the disk did not respond in {FILE_SECONDS:g} s") from None
        except OSError as error:
            raise self._failure(f"{error.filename or self.path}: {error.strerror or error}") from error

    def _load(self, parse: Callable[[bytes], T]) -> T | None:
        try:
            data = self.path.read_bytes() if self.path.stat().st_size <= self._max_bytes else b""
        except FileNotFoundError:
            return None
        return parse(data)

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name(self.path.name + ".tmp")
        with unfinished.open("w", encoding="ascii") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
