"""A limit on calls for each key: a token bucket, in bounded memory. Pure: the caller gives the time."""

from __future__ import annotations

from collections import OrderedDict

MAX_KEYS = 10_000
"""Beyond it the key that was seen longest ago is forgotten, and starts full when it returns."""


class RateLimit:
    """Each key may take ``burst`` at the same moment, and ``per_second`` in the long run."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, *, now: float) -> float:
        """Take one. Returns 0, or the seconds until the next one is there; then nothing was taken."""
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self.per_second)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self.per_second
        self._buckets[key] = (left if wait else left - 1.0, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        return wait
