"""Offsets of a broadcasting consumer, in a local SQLite file: RocketMQ's LocalFileOffsetStore."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pointsman.clock import Clock
from pointsman.storage.tables import DurableTables, OnRefusal, Opened, Row, Table
from pointsman.storage.worker_thread import WorkerThread
from pointsman_client.aio import done_within
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OffsetFileError, PointsmanError
from pointsman_client.ports.coordination import BegunTopics, LoadedOffsets

APPLICATION_ID = 0x504D434F  # "PMCO"
DISK_SECONDS = 5.0
CLOSE_SECONDS = 1.0
MAX_OFFSETS = 100_000
MAX_NAME_BYTES = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Offsets as text: SQLite's integers have 63 bits, an offset 64.
_OFFSETS = Table("offsets", ("topic", "cluster", "broker_name", "queue_id"), ("next_offset",))
_BEGINS = Table("begins", ("topic",), ("unix_millis",))

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


def offset_file_path(folder: Path, *, group: str, client_id: str) -> Path:
    """Return the offset file of one group and client below ``folder``."""
    return folder / _safe(client_id) / f"{_safe(group)}.db"


@dataclass(frozen=True, slots=True)
class _Content:
    """Content of an offset file."""

    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    begins: dict[str, datetime] = field(default_factory=dict)
    """When each topic was first consumed, to the millisecond."""


class FileOffsetStore:
    """See :class:`~pointsman_client.ports.coordination.OffsetStore`. One file per group and client.

    A commit is on the disk when it returns; one without changes writes nothing. A damaged file is moved to the folder
    ``damaged``, with an error in the log, and the consumer starts without offsets. The disk is used in a thread, with a
    timeout of ``DISK_SECONDS``. The file holds at most ``max_offsets`` offsets; commits of further queues fail.
    """

    def __init__(self, path: Path, *, clock: Clock, max_offsets: int = MAX_OFFSETS) -> None:
        self._path = path
        self._tables = DurableTables(path, [_OFFSETS, _BEGINS], application_id=APPLICATION_ID)
        self._clock = clock
        self._max_offsets = max_offsets
        self._content: _Content | None = None
        """Content of the file; None: not read yet."""
        self._turn = asyncio.Lock()
        self._thread = WorkerThread("pointsman-offset-file")
        self._failing = False

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`."""
        async with self._turn:
            try:
                stored = (await self._read()).offsets
            except OffsetFileError as error:
                return LoadedOffsets({}, dict.fromkeys(queues, error))
            return LoadedOffsets({queue: stored[queue] for queue in queues if queue in stored}, {})

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`: when this member first consumed the topics."""
        async with self._turn:
            try:
                held = (await self._read()).begins
                earliest = {topic: min(moment, held.get(topic, moment)) for topic, moment in moments.items()}
                await self._write({}, {topic: at for topic, at in earliest.items() if held.get(topic) != at})
            except OffsetFileError as error:
                return BegunTopics({}, dict.fromkeys(moments, error))
            return BegunTopics(earliest, {})

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,  # noqa: ARG002  # of the Protocol; there are none here
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`."""
        async with self._turn:
            try:
                held = await self._read()
                changes = {
                    queue: offset
                    for queue, offset in offsets.items()
                    if held.offsets.get(queue, -1) < offset or (reset and held.offsets.get(queue) != offset)
                }
                room = self._max_offsets - len(held.offsets)
                excess = [queue for queue in changes if queue not in held.offsets][max(0, room) :]
                for queue in excess:
                    del changes[queue]
                now = self._clock.utc_now()
                begins = {queue.topic: now for queue in changes if queue.topic not in held.begins}
                await self._write(changes, begins)
            except OffsetFileError as error:
                return dict.fromkeys(offsets, error)
            full = OffsetFileError(str(self._path), f"is full: it holds {self._max_offsets} offsets, the maximum")
            return dict.fromkeys(excess, full)

    async def close(self) -> None:
        """Close the file after running operations; waits at most ``CLOSE_SECONDS``."""
        if not self._thread.is_alive():
            return
        closing = self._thread.run(self._tables.close)
        self._thread.stop()
        if not await done_within(closing, CLOSE_SECONDS, clock=self._clock):
            logger.warning(
                "offset file %s is not closed yet: the disk did not respond within %g s", self._path, CLOSE_SECONDS
            )

    async def _read(self) -> _Content:
        if self._content is None:
            self._content = await self._on_disk(self._load)
        return self._content

    async def _write(self, offsets: Mapping[MessageQueue, int], begins: Mapping[str, datetime]) -> None:
        if offsets or begins:
            held = await self._read()
            await self._on_disk(lambda: self._put(held, offsets, begins))
            held.offsets.update(offsets)
            held.begins.update(begins)

    # --- in a thread ----------------------------------------------------------------------------------------

    def _load(self) -> _Content:
        opened = self._open()
        # Read when the disk is read-only, or its folder cannot be written.
        if opened.unwritable is not None and opened.unwritable.errno not in {errno.EROFS, errno.ENOENT}:
            raise opened.unwritable
        return _read_rows(opened.rows)

    def _open(self) -> Opened:
        opened = self._tables.open(OnRefusal.EMPTY)
        if opened.refused is not None:
            logger.error("offsets are lost: %s %s; the file was moved to damaged/", self._path, opened.refused)
        return opened

    def _put(self, held: _Content, offsets: Mapping[MessageQueue, int], begins: Mapping[str, datetime]) -> None:
        if not self._tables.is_current():
            # Read-only until now, or removed by an operator.
            if (error := self._open().unwritable) is not None:
                raise error
            offsets, begins = {**held.offsets, **offsets}, {**held.begins, **begins}
        rows: list[tuple[str, Row, Row | None]] = [
            (_OFFSETS.name, (queue.topic, queue.cluster, queue.broker_name, queue.queue_id), (str(offset),))
            for queue, offset in offsets.items()
        ]
        rows += [(_BEGINS.name, (topic,), (_to_millis(moment),)) for topic, moment in begins.items()]
        self._tables.write(rows)

    # --- in the event loop --------------------------------------------------------------------------------------

    async def _on_disk(self, work: Callable[[], ResultT]) -> ResultT:
        """Do ``work`` in the thread, after the work of earlier calls has ended. Raises OffsetFileError."""
        try:
            result = await self._thread.run_within(work, DISK_SECONDS, sleep=self._clock.sleep)
        except OSError as error:
            failure = OffsetFileError(str(self._path), error.strerror or str(error))
            self._note(failure)
            raise failure from error
        self._note(None)
        return result

    def _note(self, failure: OffsetFileError | None) -> None:
        """Log the first failure of the file, and its recovery."""
        if failure is not None and not self._failing:
            logger.error("offsets cannot be saved: %s", failure)
        elif failure is None and self._failing:
            logger.warning("offsets are saved to %s again", self._path)
        self._failing = failure is not None


def _read_rows(tables: Mapping[str, list[Row]]) -> _Content:
    content = _Content()
    for topic, cluster, broker_name, queue_id, offset in tables[_OFFSETS.name]:
        queue = MessageQueue(str(topic), str(cluster), str(broker_name), int(str(queue_id)))
        content.offsets[queue] = int(str(offset))
    for topic, millis in tables[_BEGINS.name]:
        content.begins[str(topic)] = EPOCH + timedelta(milliseconds=int(str(millis)))
    return content


def _to_millis(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _safe(name: str) -> str:
    """Return a file name that is unique for ``name``."""
    # A client id is never . or .. because it contains an @.
    quoted = quote(name, safe="@#|")
    if len(quoted) <= MAX_NAME_BYTES:
        return quoted
    return f"{quoted[:MAX_NAME_BYTES]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
