"""Offsets in an SQLite file on the agent's machine, for brokers that cannot store them.

One agent owns the file. An agent that starts while another one is stopping reads a copy, and writes after that one has
closed the file. A backup next to it, at most ``BACK_UP_SECONDS`` old while offsets change, replaces a damaged file:
groups then consume that time's messages again.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pointsman.clock import Clock
from pointsman.daemon.process.worker_thread import WorkerThread
from pointsman.storage.tables import Row, Table, TableFile, TablesRefused
from pointsman_agent.core.offsets import OffsetChange, OffsetKey, apply_changes
from pointsman_agent.deadline import within
from pointsman_agent.offsets.stored_offsets import StoreFailed, queue_text, stored_offset

APPLICATION_ID = 0x504D4F46  # "PMOF"
TIMEOUT_SECONDS = 10.0
BACK_UP_SECONDS = 60.0

# As text: SQLite's integers have 63 bits, an offset 64.
_OFFSETS = Table("offsets", ("consumer_group", "topic", "queue"), ("value",))
_JSON_HEAD = b'{"format": "pointsman-offsets", "version": 1, '
_NO_FOLDER = {errno.ENOTDIR, errno.EEXIST}

log = logging.getLogger(__name__)

T = TypeVar("T")


class FileStore:
    """See :class:`~pointsman_agent.offsets.stored_offsets.OffsetStore`. A separate thread does the I/O."""

    def __init__(self, path: Path, *, clock: Clock, timeout: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._tables = TableFile(path, [_OFFSETS], application_id=APPLICATION_ID)
        self._backup = path.with_name(f"{path.name}.bak")
        self._backed_up_at: float | None = None
        self._clock = clock
        self._timeout = timeout
        self._thread = WorkerThread("offsets")
        self._not_ours = "it was not loaded"
        """Why this agent may not write the file; empty: it may."""
        self._table: dict[OffsetKey, int] | None = None
        """Content of the file, as last read or written."""

    async def load(self) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.load`. A damaged file is moved to ``damaged/`` and logged as an error."""
        return await self._in_thread(self._load)

    async def write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        """See :meth:`OffsetStore.write`."""
        return await self._in_thread(lambda: self._write(changes))

    def is_ours(self) -> bool:
        """See :meth:`OffsetStore.is_ours`."""
        return not self._not_ours

    def is_exclusive(self) -> bool:
        """See :meth:`OffsetStore.is_exclusive`."""
        return self.is_ours()

    async def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        try:
            await self._in_thread(self._tables.close)
        except StoreFailed as error:
            log.warning(
                "offset file was not closed cleanly", extra={"facts": {"file": self._path, "error": str(error)}}
            )
        self._not_ours = "it was closed"
        self._thread.stop()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in the thread after its earlier work: a hanging disk blocks this one thread only."""
        if not self._thread.is_alive():
            self._thread.start()
        try:
            return await within(self._clock, self._timeout, _result(self._thread.run(work)))
        except OSError as error:
            if isinstance(error, TimeoutError) and not error.errno:
                raise StoreFailed(f"{self._path}: the disk did not respond in {self._timeout:g} s") from error
            raise StoreFailed(f"{error.filename or self._path}: {error.strerror or error}") from error

    # --- in the thread ----------------------------------------------------------------------------------------

    def _load(self) -> Mapping[OffsetKey, int]:
        if self._tables.is_current():
            return {}
        try:
            found = self._open()
        except OSError as error:
            self._not_ours = error.strerror or str(error)
            found = {} if error.errno in _NO_FOLDER else self._copy()
            if found == self._table:
                return {}
            self._table = found
            return dict(found)
        self._not_ours = ""
        if self._table is not None and not found:
            # Removed by an operator while this agent ran.
            found = self._table
            self._put(found)
            return {}
        self._table = found
        return dict(found)

    def _open(self) -> dict[OffsetKey, int]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            rows = self._tables.open()
        except TablesRefused as error:
            if _is_json(self._path):
                advice = f"set path to {self._path.with_suffix('.db')}, and the agent reads its offsets once"
                raise StoreFailed(f"{self._path} is a file of an earlier version: {advice}") from error
            self._tables.set_aside()
            self._tables.open()
            found = self._restored(error)
        else:
            found = dict(map(_read, rows[_OFFSETS.name]))
        if not found and (old := _read_json(self._path.with_suffix(".json"))):
            self._put(old)
            log.warning(
                "offsets were imported from a file of an earlier version", extra={"facts": {"offsets": len(old)}}
            )
            found = old
        return found

    def _restored(self, refused: TablesRefused) -> dict[OffsetKey, int]:
        """Write the offsets of the backup into the new file."""
        facts: dict[str, object] = {"file": self._path, "problem": str(refused)}
        try:
            rows = TableFile(self._backup, [_OFFSETS], application_id=APPLICATION_ID).read_copy()
            found = dict(map(_read, rows[_OFFSETS.name]))
        except (TablesRefused, StoreFailed, OSError) as error:
            facts["backup"], found = str(error), {}
        if found:
            self._put(found)
            log.error(
                "offset file rejected, moved to damaged/; older offsets of its backup are used", extra={"facts": facts}
            )
        else:
            log.error("offset file rejected, moved to damaged/; its offsets are lost", extra={"facts": facts})
        return found

    def _back_up(self) -> None:
        now = self._clock.monotonic()
        if self._backed_up_at is not None and now - self._backed_up_at < BACK_UP_SECONDS:
            return
        self._backed_up_at = now
        try:
            self._tables.back_up(self._backup)
        except OSError as error:
            facts = {"file": self._backup, "error": error.strerror or str(error)}
            log.warning("backup of the offset file was not written; retrying later", extra={"facts": facts})

    def _copy(self) -> dict[OffsetKey, int]:
        try:
            return dict(map(_read, self._tables.read_copy()[_OFFSETS.name]))
        except TablesRefused as error:
            raise StoreFailed(f"{self._path} {error}") from error

    def _write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        if not (self._not_ours or self._tables.is_current()):
            self._not_ours = "it was removed"
        if self._not_ours or self._table is None:
            raise StoreFailed(f"{self._path} cannot be written: {self._not_ours}")
        changed = {change.key: self._table[change.key] for change in changes if change.key in self._table}
        higher = apply_changes(changed, changes)
        self._tables.write(_row(change.key, changed.get(change.key)) for change in changes)
        for change in changes:
            self._table.pop(change.key, None)
        self._table.update(changed)
        self._back_up()
        return higher

    def _put(self, offsets: Mapping[OffsetKey, int]) -> None:
        self._tables.write(_row(key, offset) for key, offset in offsets.items())


async def _result(outcome: asyncio.Future[T]) -> T:
    return await outcome


def _row(key: OffsetKey, offset: int | None) -> tuple[str, Row, Row | None]:
    return _OFFSETS.name, (key.group, key.topic, queue_text(key)), None if offset is None else (str(offset),)


def _read(row: Row) -> tuple[OffsetKey, int]:
    """Read a row, which this program wrote according to its digest. Raises StoreFailed for an invalid one."""
    group, topic, queue, value = map(str, row)
    read = stored_offset(group, topic, queue, value)
    if read is None:
        raise StoreFailed(f"invalid offset row: {row!r}")
    return read


def _is_json(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(_JSON_HEAD)) == _JSON_HEAD


def _read_json(path: Path) -> dict[OffsetKey, int]:
    """Read the file of agents before SQLite; a missing or other file has no offsets."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    body, _, _ = data.rpartition(b'"sha256": "')
    if not data.startswith(_JSON_HEAD) or not data.endswith(f'{hashlib.sha256(body).hexdigest()}"}}\n'.encode()):
        return {}
    content = json.loads(data)
    tables: Iterable[tuple[str, Mapping[str, int]]] = [
        *content["offset_table"].items(),
        *content.get("moments", {}).items(),
    ]
    names = ((*name.partition("@")[::2], queues) for name, queues in tables)
    return dict(_read((group, topic, queue, str(n))) for topic, group, queues in names for queue, n in queues.items())
