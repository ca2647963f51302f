"""How punctual a broker's beats are: count, extremes and a histogram of the times between them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

PERIOD_SECONDS = 600.0
"""What one row of the history tells."""

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

    def add(self, interval: float) -> None:
        """Take one interval, seconds. On the way of every beat."""
        if not self.count or interval < self.shortest:
            self.shortest = interval
        self.longest = max(self.longest, interval)
        self.count += 1
        bucket = bisect_left(EDGES, interval)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def is_over(self, *, now: float) -> bool:
        """Whether it is time to tell."""
        return now - self.since >= PERIOD_SECONDS

    def detail(self) -> dict[str, object]:
        """As the history tells it: milliseconds; buckets that are empty are left out."""
        return {
            "count": self.count,
            "min_ms": round(self.shortest * 1000),
            "max_ms": round(self.longest * 1000),
            "buckets": {EDGES_MS[i]: self.buckets[i] for i in sorted(self.buckets)},
        }
