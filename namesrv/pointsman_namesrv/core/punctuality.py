"""How punctual a broker's beats are: count, extremes and a histogram of the times between them, and its clock."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

PERIOD_SECONDS = 3_600.0
LATE_PERIOD_SECONDS = 600.0
"""What one row of the history covers: an hour, or less if a heartbeat in it was late."""

EDGES = tuple(0.25 * 2 ** (i / 2) for i in range(25))
"""Upper edges of the buckets in seconds, from a quarter to 1,024 in steps of the square root of two."""

EDGES_MS = (*(str(round(edge * 1000)) for edge in EDGES), "inf")


@dataclass(slots=True)
class Punctuality:
    """The intervals between beats since a moment (monotonic seconds)."""

    since: float
    count: int = 0
    shortest: float = 0.0
    longest: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)
    has_late: bool = False
    clock_ahead_ms: int | None = None
    """How far the agent's wall clock is ahead of ours; negative: behind. None: it did not say."""

    def add(self, interval: float, *, is_late: bool) -> None:
        """Take one interval, seconds. On the way of every heartbeat."""
        self.has_late = self.has_late or is_late
        if not self.count or interval < self.shortest:
            self.shortest = interval
        self.longest = max(self.longest, interval)
        self.count += 1
        bucket = bisect_left(EDGES, interval)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def add_clock(self, ahead_ms: int) -> None:
        """Take how far ahead of ours the clock was that a beat told.

        What a beat is on its way makes that less, so the most is the truest (as RFC 5905, 10, takes the sample of least
        delay).
        """
        if self.clock_ahead_ms is None or ahead_ms > self.clock_ahead_ms:
            self.clock_ahead_ms = ahead_ms

    def is_over(self, *, now: float) -> bool:
        """Return whether the row is due."""
        return now - self.since >= (LATE_PERIOD_SECONDS if self.has_late else PERIOD_SECONDS)

    def detail(self, *, now: float) -> dict[str, object]:
        """Return the row's detail: ``seconds`` is its length, the rest are milliseconds; nothing empty or unknown."""
        clock = {} if self.clock_ahead_ms is None else {"clock_ahead_ms": self.clock_ahead_ms}
        return clock | {
            "count": self.count,
            "seconds": round(now - self.since, 3),
            "min_ms": round(self.shortest * 1000),
            "max_ms": round(self.longest * 1000),
            "buckets": {EDGES_MS[i]: self.buckets[i] for i in sorted(self.buckets)},
        }
