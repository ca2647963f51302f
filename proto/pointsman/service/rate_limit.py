"""A rate limit per key: a token bucket, in bounded memory. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict

MAX_KEYS = 10_000
"""Limit of keys. Beyond it the key used longest ago is dropped, and starts with a full bucket when it returns."""


class RateLimit:
    """Each key may use ``burst`` at the same moment, and ``per_second`` in the long run."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, *, now: float) -> float:
        """Use one. Return 0, or the seconds until one is available; then none was used."""
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self.per_second)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self.per_second
        self._buckets[key] = (left if wait else left - 1.0, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        return wait
