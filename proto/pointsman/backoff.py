"""Full-jitter exponential backoff: each wait is uniform between 0 and a bound that doubles up to a cap.

Rule: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (the variant named Full Jitter).
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_BOUND_SECONDS = 0.2


class FullJitterBackoff:
    """Waits between attempts against one peer. ``draw(a, b)`` is ``random.uniform`` in production."""

    def __init__(
        self, draw: Callable[[float, float], float], *, first: float = FIRST_BOUND_SECONDS, cap: float = 30.0
    ) -> None:
        self._draw = draw
        self._first = min(first, cap)
        self._cap = cap
        self._bound = self._first

    def next_wait(self) -> float:
        """Return the seconds to wait before the next attempt."""
        wait = self._draw(0.0, self._bound)
        self._bound = min(self._cap, self._bound * 2)
        return wait

    def reset(self) -> None:
        """Start again at the first bound; call it after a success."""
        self._bound = self._first
