"""Write committed offsets to their store, and read them at the start.

A commit is in the store within ``interval`` seconds while the store works, also when the agent stops. While the store
fails, commits are accepted and stored in memory, the latest of each queue, until a later round writes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman_agent.core.offsets import OffsetKey, Offsets
from pointsman_agent.offsets.stored_offsets import OffsetStore, StoreFailed

ROUND_SHARE = 0.8
"""Share of the interval between two rounds; the rest is for the writes themselves."""
LOAD_RETRY_SECONDS = 1.0
ABSORB_BATCH = 5_000
"""Offsets merged before other tasks run: about 10 ms."""
PAUSE_SECONDS = 0.001
CLOSE_SECONDS = 2.0
"""Deadline for closing the store, after the last round."""

READ, WRITE = "read", "write"
FAILED = {READ: "cannot be read from the store", WRITE: "cannot be written; they are in memory only"}
RECOVERED = {READ: "are read again", WRITE: "are written again"}

log = logging.getLogger(__name__)


class OffsetMetrics:
    """Metrics of the offsets, registered in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.offsets = Gauge("pointsman_agent_offsets", "Committed offsets of all consumer groups.", registry=registry)
        self.unwritten = Gauge(
            "pointsman_agent_offsets_unwritten",
            "Committed offsets not written to the offset store yet.",
            registry=registry,
        )
        self.age = Gauge(
            "pointsman_agent_offsets_unwritten_age_seconds",
            "Age of the oldest committed offset not written to the offset store.",
            registry=registry,
        )
        self.rounds = Counter(
            "pointsman_agent_offset_store_operations_total",
            "Reads and writes of the offset store, by result: loaded, written, failed.",
            ["result"],
            registry=registry,
        )


class Flusher:
    """The offsets of one store: :meth:`run` while the agent serves, then :meth:`finish` after the last commit."""

    def __init__(
        self, offsets: Offsets, store: OffsetStore, *, interval: float, clock: Clock, metrics: OffsetMetrics
    ) -> None:
        self._offsets = offsets
        self._store = store
        self._interval = interval
        self._clock = clock
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._has_changes = asyncio.Event()
        self._in_sync_at = clock.monotonic()
        """When memory was last known to contain only what the store has now."""
        self._was_ours = False
        self._problems: dict[str, str] = {}
        self.is_loaded = False
        """Whether the offsets of the store are loaded; before that, commits and queries are refused."""
        offsets.before_first_change = self._expect_change
        metrics.offsets.set_function(lambda: len(offsets))
        metrics.unwritten.set_function(lambda: offsets.unwritten)
        metrics.age.set_function(lambda: self._age)

    @property
    def durable_within(self) -> float:
        """Return the age of the offsets that a crash now would leave, in seconds."""
        return max(self._interval, self._age)

    @property
    def problem(self) -> str:
        """Why the last read or write of the store failed; empty if it succeeded."""
        return self._problems.get(WRITE) or self._problems.get(READ, "")

    async def run(self) -> None:
        """Load, then synchronize store and memory periodically, until cancelled."""
        while not self.is_loaded:
            await self.refresh()
            if not self.is_loaded:
                await self._clock.sleep(min(LOAD_RETRY_SECONDS, self._interval))
        while True:
            await self._wait_for_round()
            is_ours = self._store.is_ours()
            # Once more when this agent becomes the writer: another agent may have written until then.
            if not (is_ours and self._was_ours):
                self._was_ours = await self.refresh() and is_ours
            await self.flush()

    async def _wait_for_round(self) -> None:
        """Sleep until the next round is due; an exclusive store without changes needs none."""
        self._has_changes.clear()
        if self._was_ours and self._store.is_exclusive() and not self._offsets.unwritten:
            await self._has_changes.wait()
        await self._clock.sleep(self._interval * ROUND_SHARE)

    def _expect_change(self) -> None:
        if not self._offsets.unwritten:
            self._in_sync_at = self._clock.monotonic()
        self._has_changes.set()

    async def refresh(self) -> bool:
        """Merge the content of the store; return whether it could be read.

        :meth:`run` calls it while another agent may write the store. Call it when the broker became a master, before
        its clients are notified.
        """
        async with self._turn:
            try:
                stored = await self._store.load()
            except StoreFailed as error:
                self._note(READ, error)
                return False
            self._note(READ, None)
            await self._absorb(stored)
            if not self.is_loaded:
                self.is_loaded = True
                self._in_sync_at = self._clock.monotonic()
                log.info("offsets loaded", extra={"facts": {"offsets": len(stored)}})
            self._metrics.rounds.labels("loaded").inc()
            return True

    async def flush(self) -> bool:
        """Write what the store lacks; return whether it has everything that was committed before."""
        async with self._turn:
            taken_at = self._clock.monotonic()
            changes = self._offsets.take()
            is_written = not changes
            try:
                if changes:
                    self._offsets.written(await self._store.write(changes))
                    is_written = True
                    self._metrics.rounds.labels("written").inc()
            except StoreFailed as error:
                self._note(WRITE, error)
            finally:
                if not is_written:
                    self._offsets.not_written()
            if is_written:
                self._in_sync_at = taken_at
                self._note(WRITE, None)
            return is_written

    async def finish(self, seconds: float) -> bool:
        """Write a last time, within ``seconds``, and close the store; return whether everything is written.

        Call it after :meth:`run` was cancelled.
        """
        is_written = False
        try:
            is_written = await within(self._clock, seconds, self.flush())
        except TimeoutError:
            self._note(WRITE, StoreFailed(f"the last write did not end within {seconds:g} s"))
        if not is_written:
            facts = {"offsets": self._offsets.unwritten, "age_seconds": round(self._age, 1), "error": self.problem}
            log.error("final offset flush failed; recent commits are lost", extra={"facts": facts})
        try:
            await within(self._clock, CLOSE_SECONDS, self._store.close())
        except TimeoutError:
            log.warning("offset store did not close in time")
        return is_written

    async def _absorb(self, stored: Mapping[OffsetKey, int]) -> None:
        rest = iter(stored.items())
        while part := tuple(islice(rest, ABSORB_BATCH)):
            self._offsets.absorb(part)
            if len(part) == ABSORB_BATCH:
                await self._clock.sleep(PAUSE_SECONDS)

    @property
    def _age(self) -> float:
        return self._clock.monotonic() - self._in_sync_at if self._offsets.unwritten else 0.0

    def _note(self, what: str, error: StoreFailed | None) -> None:
        """Log the first failure of reads or writes, and their recovery."""
        before = self._problems.get(what, "")
        if error is not None:
            self._problems[what] = str(error)
            self._metrics.rounds.labels("failed").inc()
            if not before:
                facts = {"error": str(error), "unwritten": self._offsets.unwritten}
                log.error("offsets %s", FAILED[what], extra={"facts": facts})
        elif before:
            del self._problems[what]
            log.info("offsets %s", RECOVERED[what])
