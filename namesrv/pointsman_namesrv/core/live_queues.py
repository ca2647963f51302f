"""The last measurement of each broker's queues, as its agent's heartbeat brought it: bytes, read on request."""

from __future__ import annotations

from typing import NamedTuple

from pointsman_namesrv.core.model import BrokerIdentity, Position

MAX_REPORT_BYTES = 16 * 1024
MAX_BYTES = 32 * 1024 * 1024
"""Of all reports together."""
OVERHEAD_BYTES = 400
"""Of one report in the table, estimated."""


class LiveReport(NamedTuple):
    """A measurement, not read yet."""

    generation: int
    """Of the registration that it belongs to."""
    body: bytes
    received_at: float
    """Monotonic seconds."""


class LiveQueueReports:
    """The last report of each replica. Its registration decides whether it still counts: see :meth:`of`."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._reports: dict[Position, LiveReport] = {}
        self.size = 0
        """Bytes of all reports, estimated."""

    def take(self, identity: BrokerIdentity, generation: int, body: bytes, *, now: float) -> bool:
        """Remember a report in place of the one before; return False if it is too large, or there is no room for it.

        The one before is forgotten in any case: it is out of date.
        """
        position = identity.position
        self.forget(position)
        size = len(body) + OVERHEAD_BYTES
        if len(body) > MAX_REPORT_BYTES or self.size + size > self._max_bytes:
            return False
        self._reports[position] = LiveReport(generation, body, now)
        self.size += size
        return True

    def of(self, identity: BrokerIdentity, generation: int) -> LiveReport | None:
        """Return the last report of a registration; None: it sent none."""
        report = self._reports.get(identity.position)
        return report if report is not None and report.generation == generation else None

    def forget(self, position: Position) -> None:
        """Forget the report of a replica: it is gone, or sends another."""
        before = self._reports.pop(position, None)
        if before is not None:
            self.size -= len(before.body) + OVERHEAD_BYTES

    def __len__(self) -> int:
        return len(self._reports)
