"""When a consumer rebalances: at once when something happened, at times in any case, and never too often. Pure."""

from __future__ import annotations

from enum import StrEnum

REBALANCE_WAIT_INTERVAL_SECONDS = 20.0
REBALANCE_MIN_INTERVAL_SECONDS = 1.0
"""RocketMQ's ``rocketmq.client.rebalance.waitInterval`` and ``minInterval``."""


class RebalanceTrigger(StrEnum):
    """Why a rebalance ran; the values are the metric's labels."""

    START = "start"
    MEMBERS = "members"
    ROUTE = "route"
    SUBSCRIPTION = "subscription"
    PERIOD = "period"
    RETRY = "retry"
    """The one before left the member with other queues than it is to hold."""


class RebalanceTiming:
    """Tells when the next rebalance is due and what for (RocketMQ's ``RebalanceService``).

    ``wake`` when something happened, run when ``delay`` is 0, ``begin`` before the run and ``end`` after it: what wakes
    it during a run is due after that.
    """

    def __init__(
        self,
        *,
        wait_interval_seconds: float = REBALANCE_WAIT_INTERVAL_SECONDS,
        min_interval_seconds: float = REBALANCE_MIN_INTERVAL_SECONDS,
    ) -> None:

        self._wait = wait_interval_seconds
        self._min = min_interval_seconds
        self._trigger: RebalanceTrigger | None = RebalanceTrigger.START
        self._ended_at: float | None = None
        self._balanced = True
        self._refreshed_at: float | None = None

    def wake(self, trigger: RebalanceTrigger) -> None:
        """Note that something happened. The first reason since the last run is the one that is told."""
        if self._trigger is None:
            self._trigger = trigger

    def delay(self, *, now: float) -> float:
        """Seconds until the next run; 0: now."""
        if self._ended_at is None:
            return 0.0
        is_soon = self._trigger is not None or not self._balanced
        return max(0.0, self._ended_at + (self._min if is_soon else self._wait) - now)

    def is_refresh_due(self, *, now: float) -> bool:
        """Return whether a run queries the members first: once in ``wait_interval_seconds``, whatever it runs for.

        True counts as done.
        """
        if self._refreshed_at is not None and now - self._refreshed_at < self._wait:
            return False
        self._refreshed_at = now
        return True

    def begin(self) -> RebalanceTrigger:
        """Say what the run that begins is for."""
        trigger, self._trigger = self._trigger, None
        if trigger is not None:
            return trigger
        return RebalanceTrigger.PERIOD if self._balanced else RebalanceTrigger.RETRY

    def end(self, *, balanced: bool, now: float) -> None:
        """Note the end of a run, and whether the member now works on exactly what it is to hold."""
        self._balanced = balanced
        self._ended_at = now
