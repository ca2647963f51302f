"""Pauses of this process: each is credited to all brokers once, by the first code that detects it."""

from __future__ import annotations

from pointsman.clock import Clock
from pointsman_namesrv.core.events import RecordEvents
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.node_metrics import Metrics

CREDITED_SECONDS = 0.1
"""The event loop is always late by less than this."""


class OwnPauses:
    """Code that records a heartbeat or expires a broker after :attr:`late_after` calls :meth:`catch_up` first.

    Heartbeats sent during a pause are only read after it.
    """

    def __init__(self, core: NameServer, *, clock: Clock, metrics: Metrics, record: RecordEvents) -> None:
        self._core = core
        self._metrics = metrics
        self._record = record
        self._credited_to = clock.monotonic()
        self.late_after = self._credited_to + CREDITED_SECONDS
        """Monotonic seconds; an attribute, because every heartbeat reads it."""

    def expect(self, due: float) -> None:
        """Record when the task that measures the loop is due; until then the loop is not late."""
        self._credited_to = max(self._credited_to, due)
        self.late_after = self._credited_to + CREDITED_SECONDS

    def catch_up(self, now: float) -> None:
        """Credit all brokers with the lateness of the event loop."""
        if now > self.late_after:
            late = now - self._credited_to
            self.expect(now)
            self._metrics.paused.inc(late)
            self._record(self._core.credit_pause(late, now=now))
