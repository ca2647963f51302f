"""Offsets in an SQLite file on the agent's machine, for brokers that cannot store them.

One agent owns the file. An agent that starts while another one is stopping reads a copy, and writes after that one has
closed the file. A backup next to it, at most ``BACK_UP_SECONDS`` old while offsets change, replaces a damaged file:
groups then consume that time's messages again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pointsman.clock import Clock
from pointsman.storage.tables import DurableTables, OnRefusal, Row, Table
from pointsman.storage.worker_thread import WorkerThread
from pointsman_agent.core.offset_epoch import epoch_of, offset_of, with_epoch
from pointsman_agent.core.offsets import OffsetChange, OffsetKey, apply_changes
from pointsman_agent.offsets.stored_offsets import StoreFailed, queue_text, stored_epoch, stored_offset

APPLICATION_ID = 0x504D4F46  # "PMOF"
TIMEOUT_SECONDS = 10.0
BACK_UP_SECONDS = 60.0

# As text: SQLite's integers have 63 bits, an offset 64.
_OFFSETS = Table("offsets", ("consumer_group", "topic", "queue"), ("value",))
# By itself: version 0.1.0 reads and writes the offsets alone, and keeps this table.
_EPOCHS = Table("epochs", ("consumer_group", "topic", "queue"), ("value",), is_added=True)

log = logging.getLogger(__name__)

T = TypeVar("T")


class FileStore:
    """See :class:`~pointsman_agent.offsets.stored_offsets.OffsetStore`. A separate thread does the I/O."""

    def __init__(self, path: Path, *, clock: Clock, timeout: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._tables = DurableTables(path, [_OFFSETS, _EPOCHS], application_id=APPLICATION_ID)
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
        try:
            return await self._thread.run_within(work, self._timeout, sleep=self._clock.sleep)
        except OSError as error:
            raise StoreFailed(f"{error.filename or self._path}: {error.strerror or error}") from error

    # --- in the thread ----------------------------------------------------------------------------------------

    def _load(self) -> Mapping[OffsetKey, int]:
        if self._tables.is_current():
            return {}
        opened = self._tables.open(OnRefusal.BACKUP, reads_in_use=True)
        found = _read_all(opened.rows[_OFFSETS.name], opened.rows[_EPOCHS.name])
        if opened.refused is not None:
            outcome = "older offsets of its backup are used" if found else "its offsets are lost"
            facts = {"file": self._path, "problem": str(opened.refused)}
            log.error("offset file rejected, moved to damaged/; %s", outcome, extra={"facts": facts})
        error = opened.unwritable
        self._not_ours = "" if error is None else error.strerror or str(error)
        if self._table and not found and error is None:
            # Removed by an operator while this agent ran.
            self._tables.write(row for key, offset in self._table.items() for row in _rows(key, offset))
        elif found != self._table:
            self._table = found
            return dict(found)
        return {}

    def _back_up(self) -> None:
        now = self._clock.monotonic()
        if self._backed_up_at is not None and now - self._backed_up_at < BACK_UP_SECONDS:
            return
        self._backed_up_at = now
        try:
            self._tables.back_up()
        except OSError as error:
            facts = {"file": self._tables.backup, "error": error.strerror or str(error)}
            log.warning("backup of the offset file was not written; retrying later", extra={"facts": facts})

    def _write(self, changes: Sequence[OffsetChange]) -> Mapping[OffsetKey, int]:
        if not (self._not_ours or self._tables.is_current()):
            self._not_ours = "it was removed"
        if self._not_ours or self._table is None:
            raise StoreFailed(f"{self._path} cannot be written: {self._not_ours}")
        changed = {change.key: self._table[change.key] for change in changes if change.key in self._table}
        higher = apply_changes(changed, changes)
        self._tables.write(row for change in changes for row in _rows(change.key, changed.get(change.key)))
        for change in changes:
            self._table.pop(change.key, None)
        self._table.update(changed)
        self._back_up()
        return higher


def _rows(key: OffsetKey, offset: int | None) -> Iterator[tuple[str, Row, Row | None]]:
    place = (key.group, key.topic, queue_text(key))
    yield _OFFSETS.name, place, None if offset is None else (str(offset_of(offset)),)
    if offset is None or epoch_of(offset):
        yield _EPOCHS.name, place, None if offset is None else (str(epoch_of(offset)),)


def _read_all(offsets: Iterable[Row], epochs: Iterable[Row]) -> dict[OffsetKey, int]:
    """Read all rows, which this program wrote according to their digests. Raises StoreFailed for an invalid one."""
    found = dict(map(_read, offsets))
    for row in epochs:
        key, _ = _read((*row[:-1], "0"))
        epoch = stored_epoch(str(row[-1]))
        if epoch is None:
            raise StoreFailed(f"invalid epoch row: {row!r}")
        if key in found:  # version 0.1.0 removes an offset alone
            found[key] = with_epoch(found[key], epoch)
    return found


def _read(row: Row) -> tuple[OffsetKey, int]:
    group, topic, queue, value = map(str, row)
    read = stored_offset(group, topic, queue, value)
    if read is None:
        raise StoreFailed(f"invalid offset row: {row!r}")
    return read
