"""Background tasks for closed files: compress what was left open, enforce retention, ship new files.

Runs in the recorder's thread: at the start, when a file closes, and every hour.
"""

from __future__ import annotations

import logging
from datetime import date, timedelta

from pointsman.clock import Clock
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.retention import Retention
from pointsman_namesrv.history.shipping import Shipper

UPKEEP_SECONDS = 3_600.0

log = logging.getLogger(__name__)


class ClosedFilesTask:
    """Runs retention and shipping when they are due. An error is logged and does not affect the writing."""

    def __init__(self, files: HistoryFiles, *, retention: Retention, shipper: Shipper | None, clock: Clock) -> None:
        self._files = files
        self._retention = retention
        self._shipper = shipper
        self._clock = clock
        self._started_at = clock.monotonic()
        self._started_on = clock.utc_now()
        self._closed_before = -1
        self._due_at = self._started_at

    def start(self) -> None:
        """Start shipping."""
        if self._shipper is not None:
            self._shipper.start()

    def run_due(self) -> None:
        """Run what is due."""
        now = self._clock.monotonic()
        if now < self._due_at and self._files.closed == self._closed_before:
            return
        self._due_at = now + UPKEEP_SECONDS
        self._closed_before = self._files.closed
        try:
            self._files.adopt()
            self._retention.enforce(
                today=self._today(now), utc_now=self._clock.utc_now(), open_path=self._files.open_path
            )
        except OSError as error:
            log.warning(
                "history folder cannot be listed; old files are not removed until it can be",
                extra={"facts": {"error": str(error)}},
            )
        if self._shipper is not None:
            self._shipper.wake()

    def problems(self) -> list[str]:
        """Return the problems, for operators."""
        problem = self._shipper.problem() if self._shipper is not None else ""
        return [problem] if problem else []

    def stop(self, *, timeout: float) -> None:
        """Ship new files and stop, within ``timeout`` seconds."""
        if self._shipper is not None:
            self._shipper.stop(timeout=timeout)

    def _today(self, now: float) -> date:
        # A wall clock that jumps a year ahead must not empty the history.
        latest = self._started_on + timedelta(days=1, seconds=now - self._started_at)
        return min(self._clock.utc_now(), latest).date()
