"""The queue of records for the disk, bounded in rows and in bytes, between one producer and one consumer thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from pointsman_namesrv.history.row import Record, weight

RESERVED_ROWS = 10_000
"""Reserve beyond the bound, for rows that readers need to judge the others: one per minute for a week."""
BATCH_ROWS = 5_000
BATCH_BYTES = 4 * 1024 * 1024


class Waiting(NamedTuple):
    """A record and its estimated size in bytes."""

    record: Record
    weight: int


class WaitingRecords:
    """Records in order. Records that were taken count until :meth:`done`, so that they can be given back."""

    def __init__(self, *, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._some_done = threading.Condition(self._lock)
        self._put = self._done = 0
        """Records ever put, and done: in the same order."""
        self._records: deque[Waiting] = deque()
        self.rows = 0
        """Rows in the queue, those in the writer's hands included."""
        self.bytes = 0
        """Their estimated memory, bytes."""

    @property
    def is_half_full(self) -> bool:
        """Return whether more than half of either bound is used."""
        return 2 * self.rows > self._max_rows or 2 * self.bytes > self._max_bytes

    def put(self, record: Record, *, reserved: bool = False) -> bool:
        """Add a record, or return False if the queue is full; ``reserved`` ones have a separate reserve.

        An empty queue accepts a record of any size; otherwise some topic sets could never be recorded.
        """
        entry = Waiting(record, weight(record.event))
        with self._lock:
            rows, size = self.rows + record.rows, self.bytes + entry.weight
            fits = rows <= self._max_rows and size <= self._max_bytes
            if not (fits or not self.rows or (reserved and rows <= self._max_rows + RESERVED_ROWS)):
                return False
            self._records.append(entry)
            self._put += 1
            self.rows, self.bytes = rows, size
        return True

    def take(self) -> list[Waiting]:
        """Return the oldest records, enough for one sync; none if the queue is empty."""
        batch: list[Waiting] = []
        rows = size = 0
        with self._lock:
            while self._records and rows < BATCH_ROWS and size < BATCH_BYTES:
                batch.append(self._records.popleft())
                rows += batch[-1].record.rows
                size += batch[-1].weight
        return batch

    def done(self, batch: list[Waiting]) -> None:
        """Remove a batch that was taken."""
        with self._lock:
            self.rows -= sum(entry.record.rows for entry in batch)
            self.bytes -= sum(entry.weight for entry in batch)
            self._done += len(batch)
            self._some_done.notify_all()

    def wait_until_done(self, *, timeout: float) -> bool:
        """Wait for the records that are in the queue now; return whether they were done within ``timeout`` seconds."""
        with self._some_done:
            put = self._put
            return self._some_done.wait_for(lambda: self._done >= put, timeout)

    def give_back(self, batch: list[Waiting]) -> None:
        """Return a batch that was taken to its place in the queue."""
        with self._lock:
            self._records.extendleft(reversed(batch))
