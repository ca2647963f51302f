"""The clock that moves only when a test says so."""

from __future__ import annotations

from pointsman.wire.manual_clock import SETTLE_ROUNDS, ManualClock

__all__ = ["SETTLE_ROUNDS", "ManualClock"]
