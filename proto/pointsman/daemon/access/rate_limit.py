"""Rate limits: one per key, and one that peers share; both in bounded memory. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict

MAX_KEYS = 10_000
"""Limit of keys. Beyond it the key used longest ago is dropped, and starts with a full bucket when it returns."""

OWN_PART = 100
"""Each peer that shares a limit may use this part of its rate in any case."""
OWN_BURST = 20
"""Uses of a peer at the same moment in any case, and at most that part of the burst: a few commands, or a broker that
reconnects several times."""
RESERVE_PART = 10
"""The reserve for such uses is this part of the burst."""


class RateLimit:
    """Each key may use ``burst`` at the same moment, and ``per_second`` in the long run."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, *, now: float, keep: float = 0.0) -> float:
        """Use one, if ``keep`` are left. Return 0, or the seconds until one is available; then none was used."""
        left, at = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self.per_second)
        wait = 0.0 if left >= 1.0 + keep else (1.0 + keep - left) / self.per_second
        self._buckets[key] = (left if wait else left - 1.0, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_KEYS:
            self._buckets.popitem(last=False)
        return wait


class SharedRateLimit:
    """All peers together may use ``burst`` at the same moment, and ``per_second`` in the long run.

    Whatever the rate of some peers, those that use little are served: once the others have used everything, a peer
    that stays below its own part takes from a reserve, which is filled first. A few peers cannot use up the reserve,
    a hundred can.
    """

    def __init__(self, per_second: float, burst: float) -> None:
        own_burst = max(1.0, min(burst / OWN_PART, OWN_BURST))
        self.per_second = per_second
        self._reserve = max(burst / RESERVE_PART, own_burst)
        self._all = RateLimit(per_second, burst + self._reserve)
        self._own = RateLimit(per_second / OWN_PART, own_burst)

    def take(self, peer: str, *, now: float) -> float:
        """Use one. Return 0, or the seconds until one is available; then none was used."""
        is_small = not self._own.take(peer, now=now)
        return self._all.take("", now=now, keep=0.0 if is_small else self._reserve)
