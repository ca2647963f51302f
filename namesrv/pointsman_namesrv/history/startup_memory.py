"""What a start remembers of earlier runs, from the history's files: their last events and states, and flap penalties.

A separate process reads the files (:mod:`pointsman_namesrv.history.newest_rows`). The loop takes its rows in slices,
beside serving: nothing waits for them but the first checkpoint of this run, whose rows must not contradict them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path

from pointsman.clock import Clock
from pointsman.storage.worker_thread import WorkerThread
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.earlier_states import LastEvent, apply_last_event
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.flap_penalties import FlapRules, ReplayedPenalties
from pointsman_namesrv.core.model import Position
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.history.newest_rows import Question, Reading
from pointsman_namesrv.history.recent import PER_BROKER, ROUTINE, RecentEvents
from pointsman_namesrv.history.row_decoding import RowInvalid, to_record
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.slices import PAUSE_SECONDS, Slices

MAX_ROWS = 60_000
"""Rows in memory until the penalties are counted, about 1 kB each: six for each of 10,000 brokers."""
MAX_BYTES = 4 * 1024**3
"""Uncompressed, about a minute of one slow core."""
MAX_SECONDS = 120.0
GRACE_SECONDS = 30.0
"""A process that takes longer by this than it may hangs at its disk; it is killed."""
END_SECONDS = 2.0
"""How long a stop waits for the end of a killed process."""
BATCH_BYTES = 16 * 1024
"""Rows that the loop takes at a time: some 20, a millisecond."""
MAX_WAITING = 50_000
"""Events of this run that wait for the penalties of earlier ones. With more, earlier events add no points."""
MAX_LOGGED = 20
"""Differences between snapshot and history in the log; the others are counted."""

log = logging.getLogger(__name__)


class EarlierRuns(StrEnum):
    """What is known of the events of earlier runs."""

    OFF = "OFF"
    """Nothing: the history is off, or its settings exclude reading it at the start."""
    READING = "READING"
    READ = "READ"
    """Everything within the bounds."""
    FAILED = "FAILED"
    """What was read before an error."""


class StartupMemory:
    """Reads the history of earlier runs once, by :meth:`run`."""

    def __init__(
        self,
        core: BrokerTables,
        recent: RecentEvents,
        config: HistoryConfig,
        *,
        node: str,
        boot_id: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._core = core
        self._recent = recent
        self._config = config
        self._node = node
        self._boot_id = boot_id
        self._clock = clock
        self._metrics = metrics
        is_on = config.enabled and config.read_back_hours > 0
        self.state = EarlierRuns.READING if is_on else EarlierRuns.OFF
        self._reading = Reading()
        self._problem = ""
        self._over = asyncio.Event()
        if not is_on:
            self._over.set()
        self._thread = WorkerThread("history-start")
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = clock.monotonic()
        self._started_on = clock.utc_now()
        self._waiting: list[tuple[Event, float, bool]] = []
        """Events of this run with their time and whether a maintenance window covered them."""
        self._is_crowded = False
        self._changed: set[Position] = set()
        """Brokers of which this run knows more than the snapshot said."""
        self._earlier: list[LastEvent] = []
        """Events of earlier runs, the newest first."""
        self._last: dict[Position, LastEvent] = {}
        self._runs: dict[str, int] = {}
        """Number of each run by its boot."""
        self._differences = 0

    def note(self, event: Event, *, now: float, in_window: bool) -> None:
        """Note an event of this run while those of earlier runs are read."""
        if self.state is not EarlierRuns.READING or (event.kind in ROUTINE and event.kind is not EventKind.CHECKPOINT):
            return
        if event.broker is not None and event.kind is not EventKind.CHECKPOINT:
            self._changed.add(event.broker.identity.position)
        self._is_crowded = self._is_crowded or len(self._waiting) == MAX_WAITING
        if not self._is_crowded:
            self._waiting.append((event, now, in_window))

    async def until_read(self) -> None:
        """Wait until the reading is over, successful or not."""
        await self._over.wait()

    def problems(self) -> list[str]:
        """Return the problems of the reading, for operators."""
        return [f"the history of earlier runs could not be read: {self._problem}"] if self._problem else []

    def sizes(self) -> dict[str, int]:
        """Return what was read and skipped, for operators; empty if nothing is read at a start."""
        if self.state is EarlierRuns.OFF:
            return {}
        done = self._reading
        return {
            "earlier_runs_reading": int(self.state is EarlierRuns.READING),
            "earlier_runs": done.runs,
            "earlier_rows": done.rows,
            "earlier_rows_of_other_nodes": done.rows_of_others,
            "earlier_rows_invalid": done.rows_invalid,
            "earlier_files": done.files,
            "earlier_files_of_other_nodes": done.files_of_others,
            "earlier_files_damaged": done.files_damaged,
            "earlier_files_huge": done.files_huge,
            "earlier_files_gone": done.files_gone,
            "earlier_states_different": self._differences,
        }

    async def run(self, *, previous_boot_id: str, in_snapshot: Mapping[Position, tuple[int, int]]) -> None:
        """Read the history. Never raises an error.

        ``previous_boot_id``: the run before this one, empty if unknown. ``in_snapshot``: boot and number of the last
        row that the snapshot of a broker contains.
        """
        if self.state is not EarlierRuns.READING:
            return
        try:
            self._thread.start()
            try:
                async with asyncio.timeout(MAX_SECONDS + GRACE_SECONDS):
                    await self._read(previous_boot_id)
            except Exception as error:  # noqa: BLE001  # any error: what was read before it is used
                self._note_error("history of earlier runs cannot be read to its end; what was read is used", error)
            await self._use(in_snapshot, Slices(self._clock, pause=PAUSE_SECONDS))
        except Exception as error:  # noqa: BLE001  # a bug must not stop the server
            self._note_error("history of earlier runs cannot be used", error)
        finally:
            self.state = EarlierRuns.FAILED if self._problem else EarlierRuns.READ
            self._waiting, self._earlier, self._last, self._changed = [], [], {}, set()
            self._thread.stop()
            self._over.set()
        self._report()

    def _note_error(self, message: str, error: Exception) -> None:
        text = "the disk did not respond in time" if isinstance(error, TimeoutError) else str(error)
        self._problem = text or type(error).__name__
        # An error of the disk is one line; anything else is a bug.
        trace = None if isinstance(error, OSError) else error
        log.error(message, exc_info=trace, extra={"facts": {"error": self._problem}})

    def _report(self) -> None:
        done, metrics = self._reading, self._metrics
        metrics.history_read_back_rows.set(done.rows)
        metrics.history_read_back_seconds.set(done.seconds)
        files = {"read": done.files, "damaged": done.files_damaged, "huge": done.files_huge, "removed": done.files_gone}
        for result, count in {**files, "other_node": done.files_of_others}.items():
            metrics.history_read_back_files.labels(result).set(count)
        if self.sizes():
            facts = {**asdict(done), "different": self._differences}
            is_short = done.ended_by in {"rows", "bytes", "seconds"} or done.files_damaged or done.files_huge
            if is_short:
                log.warning("history of earlier runs read, but not all of it", extra={"facts": facts})
            else:
                log.info("history of earlier runs read", extra={"facts": facts})

    # --- the process ------------------------------------------------------------------------------------------

    async def _read(self, previous_boot_id: str) -> None:
        raw = Path(self._config.directory) / "raw"
        if not await self._thread.run(lambda: _has_earlier(raw, self._boot_id)):
            return
        question = Question(
            raw=str(raw),
            node=self._node,
            boot_id=self._boot_id,
            previous_boot_id=previous_boot_id,
            started_at=self._started_on.timestamp(),
            max_age_seconds=self._config.read_back_hours * 3_600.0,
            exact_seconds=FlapRules().remembered_seconds,
            per_broker=PER_BROKER,
            max_rows=MAX_ROWS,
            max_bytes=MAX_BYTES,
            max_seconds=MAX_SECONDS,
        )
        ended = False
        try:
            await self._thread.run(partial(self._start, question))
            while batch := await self._thread.run(self._lines):
                for line in batch:
                    ended = self._take(line) or ended
        finally:
            if self._process is not None:
                self._process.kill()  # a thread that waits for its lines continues
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):  # also a process whose start was not waited for
                    await self._thread.run(self._end)
        if not ended:
            raise OSError("the process that reads the files ended early")

    # In the thread, one after the other.

    def _start(self, question: Question) -> None:
        self._process = _started(question)

    def _lines(self) -> list[bytes]:
        process = self._process
        return [] if process is None or process.stdout is None else process.stdout.readlines(BATCH_BYTES)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()

    def _take(self, line: bytes) -> bool:
        """Use one line of the process; return whether it is the last one."""
        run, _, rest = line.partition(b" ")
        if run == b"end":
            counted = self._reading.rows_invalid
            self._reading = Reading(**json.loads(rest))
            self._reading.rows_invalid += counted
            return True
        age_ms, _, row = rest.partition(b" ")
        try:
            record = to_record(json.loads(row), run=int(run))
        except (RowInvalid, ValueError):
            self._reading.rows_invalid += 1
            return False
        self._recent.add_earlier(record)
        self._runs[record.boot_id] = record.run
        last = LastEvent(record.event, self._started_at - int(age_ms) / 1000, record.order)
        self._earlier.append(last)
        broker = record.event.broker
        if broker is not None and broker.state.phase is not Phase.PROVISIONAL:  # that is what a snapshot said
            self._last.setdefault(broker.identity.position, last)
        return False

    # --- the loop's work --------------------------------------------------------------------------------------

    async def _use(self, in_snapshot: Mapping[Position, tuple[int, int]], slices: Slices) -> None:
        await self._correct_states(in_snapshot, slices)
        await self._count_penalties(slices)
        for _ in self._recent.drop_found():
            await slices.pause()

    async def _correct_states(self, in_snapshot: Mapping[Position, tuple[int, int]], slices: Slices) -> None:
        """Correct what the snapshot restored, except where this run knows better."""
        for last in sorted(self._last.values(), key=lambda each: each.at):
            position = last.broker.identity.position
            difference = ""
            if position not in self._changed:
                is_younger = self._is_younger(last, in_snapshot.get(position))
                difference = apply_last_event(self._core, last, is_younger=is_younger, now=self._clock.monotonic())
            if difference:
                self._differences += 1
                if self._differences <= MAX_LOGGED:
                    facts = {"broker": str(position), "difference": difference, "event": last.event.kind}
                    log.warning("snapshot and history differed; the history is younger", extra={"facts": facts})
            await slices.pause()

    def _is_younger(self, last: LastEvent, mark: tuple[int, int] | None) -> bool | None:
        """Return whether an event is younger than what the snapshot contains; None: unknown."""
        run = None if mark is None else self._runs.get(f"{mark[0]:016x}")
        return None if mark is None or run is None else last.order > (run, mark[1])

    async def _count_penalties(self, slices: Slices) -> None:
        if self._is_crowded:
            log.warning("too many events since the start; flap penalties count from the start only")
            return
        replayed = ReplayedPenalties()
        for earlier in reversed(self._earlier):
            replayed.add_earlier(earlier.event, at=earlier.at)
            if slices.is_over():
                await slices.pause()
        # Without a pause from here on: no event may come in between.
        for event, now, in_window in self._waiting:
            replayed.penalties.record(event, now=now, in_window=in_window)
        self._core.penalties = replayed.penalties


def _has_earlier(raw: Path, boot_id: str) -> bool:
    """Return whether the history has a file of another run or node."""
    return any(boot_id not in path.name for path in raw.glob("dt=*/*.jsonl*"))


def _started(question: Question) -> subprocess.Popen[bytes]:
    # -P: no module is imported from the working directory. Its own session: Ctrl-C is for the server alone.
    command = [sys.executable, "-P", "-m", "pointsman_namesrv.history.newest_rows", json.dumps(asdict(question))]
    return subprocess.Popen(  # noqa: S603  # our own program
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
