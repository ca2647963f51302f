"""What waits for the disk, bounded in rows and in bytes. One thread puts in, another takes out."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from pointsman_namesrv.history.row import Record, weight

RESERVED_ROWS = 10_000
"""Beyond the bound, for rows that say what the others are worth: one a minute for a week."""
BATCH_ROWS = 5_000
BATCH_BYTES = 4 * 1024 * 1024


class Waiting(NamedTuple):
    """A record and the bytes that it is taken for."""

    record: Record
    weight: int


class WaitingRecords:
    """Records in order. One that was taken counts until it is said to be done, so that it can be given back."""

    def __init__(self, *, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._records: deque[Waiting] = deque()
        self.rows = 0
        """Rows that wait, those in the writer's hands included."""
        self.bytes = 0
        """About the memory that they hold."""

    @property
    def is_half_full(self) -> bool:
        """Whether more waits than half of either bound."""
        return 2 * self.rows > self._max_rows or 2 * self.bytes > self._max_bytes

    def put(self, record: Record, *, reserved: bool = False) -> bool:
        """Take a record in, or return False if there is no room; ``reserved`` ones have some of their own.

        When nothing waits, one is taken in whatever its size: else there would be sets of topics that no bound fits.
        """
        entry = Waiting(record, weight(record.event))
        with self._lock:
            rows, size = self.rows + record.rows, self.bytes + entry.weight
            fits = rows <= self._max_rows and size <= self._max_bytes
            if not (fits or not self.rows or (reserved and rows <= self._max_rows + RESERVED_ROWS)):
                return False
            self._records.append(entry)
            self.rows, self.bytes = rows, size
        return True

    def take(self) -> list[Waiting]:
        """Hand out the oldest records, as many as are worth one sync; none when none wait."""
        batch: list[Waiting] = []
        rows = size = 0
        with self._lock:
            while self._records and rows < BATCH_ROWS and size < BATCH_BYTES:
                batch.append(self._records.popleft())
                rows += batch[-1].record.rows
                size += batch[-1].weight
        return batch

    def done(self, batch: list[Waiting]) -> None:
        """Forget a batch that was taken."""
        with self._lock:
            self.rows -= sum(entry.record.rows for entry in batch)
            self.bytes -= sum(entry.weight for entry in batch)

    def give_back(self, batch: list[Waiting]) -> None:
        """Put a batch that was taken back to where it stood."""
        with self._lock:
            self._records.extendleft(reversed(batch))
