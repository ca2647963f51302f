"""Record events without blocking the server: number them, queue them, and let a thread write them.

Rows stay in memory until they are on disk, so a disk error for a while loses nothing. The queue is bounded in rows and
bytes. Rows that do not fit are counted as dropped. Their sequence numbers are missing, so readers of the history see
the gap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Literal

from pointsman.clock import Clock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import Reason
from pointsman_namesrv.history import topic_rows
from pointsman_namesrv.history.closed_files import ClosedFilesTask
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recent import ROUTINE, RecentEvents
from pointsman_namesrv.history.row import Record, row_count, to_lines
from pointsman_namesrv.history.waiting import Waiting, WaitingRecords
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.slices import THREAD_PAUSE_SECONDS

SYNC_SECONDS = 1.0
WRITE_SECONDS = 1.0
"""Longest wait for rows that someone needs on the disk now."""
QUEUE_BYTES = 64 * 1024 * 1024

log = logging.getLogger(__name__)


class Recorder:
    """The history of one run. Without ``files`` it stores only the recent events, in memory."""

    def __init__(
        self,
        files: HistoryFiles | None,
        *,
        node: str,
        boot_id: str,
        clock: Clock,
        metrics: Metrics,
        queue_rows: int,
        queue_bytes: int = QUEUE_BYTES,
        closed_files: ClosedFilesTask | None = None,
        recent: RecentEvents | None = None,
        run: int = 0,
    ) -> None:
        """``recent``: events of earlier runs of the same node, which this run, number ``run``, adds to."""
        self.recent = recent if recent is not None else RecentEvents()
        self._run = run
        self._files = files
        self._closed_files = closed_files
        self._node = node
        self._boot_id = boot_id
        self._clock = clock
        self._metrics = metrics
        self._waiting = WaitingRecords(max_rows=queue_rows, max_bytes=queue_bytes)
        self._started_at = clock.monotonic()
        self._seq = 0
        # Each counter is written by one thread alone.
        self._overflowed = 0
        self._lost = 0
        self._refusal = ""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(files,), name="history", daemon=True)

    @property
    def dropped(self) -> int:
        """Return the number of rows lost: the queue was full, or the disk failed for too long."""
        return self._overflowed + self._lost

    @property
    def previous_boot_id(self) -> str:
        """Return the run before this one, after :meth:`start`; empty: unknown."""
        return self._files.previous_boot_id if self._files is not None else ""

    @property
    def last_seq(self) -> int:
        """Return the number of the last row."""
        return self._seq

    @property
    def is_pressed(self) -> bool:
        """Return whether the queue is more than half full; large writers that can wait should then pause."""
        return self._waiting.is_half_full

    @property
    def is_refused(self) -> bool:
        """Return whether the last write to the disk failed."""
        return bool(self._refusal)

    def problems(self) -> list[str]:
        """Return the problems of the history, for operators."""
        found = [f"the history cannot be written: {self._refusal}"] if self._refusal else []
        if self.dropped:
            found.append(f"{self.dropped} rows of the history were dropped since the start")
        return found + (self._closed_files.problems() if self._closed_files is not None else [])

    def start(self) -> None:
        """Create the folder and start writing. Raises OSError when there can be no history."""
        if self._files is not None:
            self._files.prepare()
            if self._closed_files is not None:
                self._closed_files.start()
            self._thread.start()

    def record(self, events: Iterable[Event]) -> None:
        """Accept events in the order in which they happened. Called on the loop; never blocks, walks over no topics."""
        for event in events:
            rows = row_count(event)
            uptime = self._clock.monotonic() - self._started_at
            at = self._clock.utc_now()
            # As precise as its row, so that a restart does not change it.
            at = at.replace(microsecond=at.microsecond // 1000 * 1000)
            boot_id = self._boot_id if self._run else ""
            record = Record(event, at, round(uptime * 1000), self._seq + 1, rows, self._run, boot_id)
            self._seq += rows
            self.recent.add(record)
            level = _level(event)
            if log.isEnabledFor(level):
                log.log(level, "%s", event.kind, extra={"facts": _facts(record)})
            self._metrics.count_events((event,))
            # Rows without a broker are few, and readers need them to judge the others.
            if self._files is not None and not self._waiting.put(record, reserved=event.broker is None):
                self._overflowed += rows
                self._metrics.history_dropped.labels("disk" if self._refusal else "queue_full").inc(rows)
        self._show_queue()

    def write_now(self) -> bool:
        """Write what is queued; return whether it is on the disk. Any thread; blocks for WRITE_SECONDS at most."""
        if not self._thread.is_alive() or self.is_refused:
            return not self._waiting.rows
        self._wake.set()
        return self._waiting.wait_until_done(timeout=WRITE_SECONDS)

    def stop(self, *, timeout: float) -> bool:
        """Write what is queued and close the file; return whether that was done within ``timeout`` seconds."""
        if not self._thread.is_alive():
            return True
        began = self._clock.monotonic()
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)
        if self._closed_files is not None:
            self._closed_files.stop(timeout=max(0.0, timeout - (self._clock.monotonic() - began)))
        return not self._thread.is_alive()

    # --- the writer's thread ----------------------------------------------------------------------------------

    def _write(self, files: HistoryFiles) -> None:
        stopping = False
        while not stopping:
            self._run_closed_files()
            self._wake.wait(SYNC_SECONDS)
            self._wake.clear()
            stopping = self._stopping.is_set()
            while batch := self._waiting.take():
                if not self._write_batch(files, batch):
                    break
            self._show_queue()
        if self._waiting.rows:
            self._lose(self._waiting.rows, "disk")
            facts = {"rows_waiting": self._waiting.rows, "rows_dropped": self.dropped, "problem": self._refusal}
            log.error("stopped before all history rows were written; they are lost", extra={"facts": facts})
        try:
            files.close()
        except OSError:
            log.exception("last history file cannot be closed; it stays uncompressed")
        self._run_closed_files()
        files.release()

    def _run_closed_files(self) -> None:
        try:
            if self._closed_files is not None:
                self._closed_files.run_due()
        except Exception:  # closed files are worth less than the rows to come
            log.exception("history retention and shipping failed")

    def _write_batch(self, files: HistoryFiles, batch: list[Waiting]) -> bool:
        """Write a batch to the disk; return False, and keep all of it, when the write fails."""
        rows = size = 0
        try:
            for entry in batch:
                for line in self._lines(entry.record):
                    files.append(line, event_at=entry.record.event_at)
                    rows += 1
                    size += len(line)
                    if entry.record.rows > 1:
                        self._stopping.wait(THREAD_PAUSE_SECONDS)
            began = self._clock.monotonic()
            files.sync()
            self._metrics.history_fsync.observe(self._clock.monotonic() - began)
        except Exception as error:  # any write error: serving continues, and the batch is retried
            # Some rows may have been written. A repeated row has the same number, and readers keep one.
            files.abandon()
            self._waiting.give_back(batch)
            if not self._refusal:
                log.exception("history cannot be written; rows are queued")
            self._refusal = str(error) or type(error).__name__
            self._metrics.history_failing.set(1)
            return False
        self._waiting.done(batch)
        self._metrics.history_rows.inc(rows)
        self._metrics.history_bytes.inc(size)
        if self._refusal:
            log.info("history is written again", extra={"facts": {"rows_dropped": self.dropped}})
        self._refusal = ""
        self._metrics.history_failing.set(0)
        return True

    def _lines(self, record: Record) -> Iterator[bytes]:
        written = 0
        try:
            for line in to_lines(record, node=self._node, boot_id=self._boot_id):
                yield line
                written += 1
        except Exception:  # a row that is not JSON is a bug; it must not block the rows behind it
            log.exception("history row cannot be encoded; it is lost", extra={"facts": {"event": record.event.kind}})
            self._lose(record.rows - written, "invalid")

    def _lose(self, rows: int, cause: Literal["disk", "invalid"]) -> None:
        self._lost += rows
        self._metrics.history_dropped.labels(cause).inc(rows)

    def _show_queue(self) -> None:
        self._metrics.history_queue.set(self._waiting.rows)
        self._metrics.history_queue_bytes.set(self._waiting.bytes)


def _level(event: Event) -> int:
    if event.kind is EventKind.GUARD_ON:
        return logging.ERROR if event.reason is Reason.LIMIT else logging.WARNING
    return logging.DEBUG if event.kind in ROUTINE else logging.INFO


def _facts(record: Record) -> dict[str, object]:
    event, broker = record.event, record.event.broker
    facts: dict[str, object] = {"seq": record.seq, "reason": event.reason}
    if broker is not None:
        facts |= {"broker": str(broker.identity), "generation": broker.generation}
    elif event.group is not None:
        facts |= {"cluster": event.group.cluster, "broker_name": event.group.broker_name}
    if event.interval is not None:
        facts["interval_seconds"] = round(event.interval, 3)
    if event.topics is not None:
        facts |= {"rows": record.rows, "topics": topic_rows.entry_count(event.topics)}
    return facts | dict(event.detail)
