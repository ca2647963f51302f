"""Record events without ever holding up serving: number them, queue them, and let a thread write them.

The queue is bounded. What does not fit, and what the disk refuses, is counted as dropped; its sequence numbers are
gone, so that a reader of the history sees the gap.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable

from namesrv.core.events import Event
from namesrv.history.files import HistoryFiles
from namesrv.history.recent import RecentEvents
from namesrv.history.row import Record, to_line
from namesrv.metrics import Metrics
from pointsman.service.clock import Clock

SYNC_SECONDS = 1.0

log = logging.getLogger(__name__)


class Recorder:
    """The history of one boot. Without ``files`` it keeps only the recent events, in memory."""

    def __init__(
        self,
        files: HistoryFiles | None,
        *,
        node: str,
        boot_id: str,
        clock: Clock,
        metrics: Metrics,
        queue_rows: int,
    ) -> None:
        self.recent = RecentEvents()
        self._files = files
        self._node = node
        self._boot_id = boot_id
        self._clock = clock
        self._metrics = metrics
        self._queue: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._queue_rows = queue_rows
        self._started_at = clock.monotonic()
        self._seq = 0
        self._overflowed = 0
        self._refused = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(files,), name="history", daemon=True)

    @property
    def dropped(self) -> int:
        """Rows lost so far: the queue was full, or the disk refused."""
        return self._overflowed + self._refused

    def start(self) -> None:
        """Make the folder and begin to write. Raises OSError when there can be no history."""
        if self._files is not None:
            self._files.prepare()
            self._thread.start()

    def record(self, events: Iterable[Event]) -> None:
        """Take events in the order in which they happened. Called on the loop; never blocks."""
        for event in events:
            self._seq += 1
            uptime = self._clock.monotonic() - self._started_at
            record = Record(event, self._clock.utc_now(), round(uptime * 1000), self._seq)
            self.recent.add(record)
            log.info("%s", event.kind, extra={"facts": _facts(record)})
            self._metrics.count_events((event,))
            if self._files is None:
                continue
            # Rows of our own life are few and say what the others are worth: they always find room.
            if event.broker is None or self._queue.qsize() < self._queue_rows:
                self._queue.put(record)
            else:
                self._overflowed += 1
                self._metrics.history_dropped.inc()
        self._metrics.history_queue.set(self._queue.qsize())

    def stop(self, *, timeout: float) -> bool:
        """Write what is queued, close the file; return whether that was done within ``timeout`` seconds."""
        if not self._thread.is_alive():
            return True
        self._stopping.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # --- the writer's thread ----------------------------------------------------------------------------------

    def _write(self, files: HistoryFiles) -> None:
        failing = False
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(SYNC_SECONDS)
            rows = self._drain()
            try:
                for record in rows:
                    files.append(to_line(record, node=self._node, boot_id=self._boot_id), event_at=record.event_at)
                files.sync()
                self._metrics.history_rows.inc(len(rows))
                failing = False
            except Exception:  # the disk may refuse in any way; serving and the next try go on
                # Some of them may have been written; how many, nobody can say.
                self._refused += len(rows)
                self._metrics.history_dropped.inc(len(rows))
                files.abandon()
                if not failing:
                    log.exception("the history cannot be written; rows are dropped until it can be")
                failing = True
        try:
            files.close()
        except OSError:
            log.exception("the last history file stays as it is")

    def _drain(self) -> list[Record]:
        rows: list[Record] = []
        try:
            while True:
                rows.append(self._queue.get_nowait())
        except queue.Empty:
            return rows


def _facts(record: Record) -> dict[str, object]:
    event, broker = record.event, record.event.broker
    facts: dict[str, object] = {"seq": record.seq, "reason": event.reason}
    if broker is not None:
        facts |= {"broker": str(broker.identity), "generation": broker.generation}
    if event.interval is not None:
        facts["interval_seconds"] = round(event.interval, 3)
    return facts | dict(event.detail)
