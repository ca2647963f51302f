"""Metrics of a topic source."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman.clock import Clock

RESULTS = ("changed", "unchanged", "failed")


class SourceMetrics:
    """Implements :class:`pointsman_agent.topic_source.topic_follower.FollowerMetrics`."""

    def __init__(self, registry: CollectorRegistry, *, clock: Clock) -> None:
        self._clock = clock
        self._last_good_at: float | None = None
        self._reads = Counter(
            "pointsman_agent_topic_source_reads_total",
            "Reads of the topic source, by result: changed, unchanged, failed.",
            ["result"],
            registry=registry,
        )
        for result in RESULTS:
            self._reads.labels(result)
        age = Gauge(
            "pointsman_agent_topic_source_age_seconds",
            "Time since the last successful read of the topic source; NaN before the first.",
            registry=registry,
        )
        age.set_function(self._age)
        self._skipped = Gauge(
            "pointsman_agent_topics_skipped",
            "Topics of the broker that cannot be registered; the log names the first.",
            registry=registry,
        )

    def count_read(self, result: str) -> None:
        """Count a finished read."""
        self._reads.labels(result).inc()

    def set_last_good(self, at: float) -> None:
        """Record the time of the last successful read, in monotonic seconds."""
        self._last_good_at = at

    def set_skipped(self, count: int) -> None:
        """Record the number of topics that cannot be registered."""
        self._skipped.set(count)

    def _age(self) -> float:
        return float("nan") if self._last_good_at is None else self._clock.monotonic() - self._last_good_at
