"""Long work in the event loop, or beside it in a thread, in slices: queries are answered between them."""

from __future__ import annotations

from functools import partial

from pointsman.clock import Clock

SLICE_SECONDS = 0.003
"""Longest time for which such work holds the loop."""
SLICE_TOPICS = 500
"""Topics after which work ends a slice without reading the clock; about 0.6 ms."""
PAUSE_SECONDS = 0.001
"""A real pause: a query takes several rounds of the loop and of gRPC's threads. With ``sleep(0)`` in its place, and
slices of 20 to 100 topics, the p99 of queries was 8 to 9 ms, with it 3 to 6 ms (``make bench``, queries_under_load)."""

THREAD_PAUSE_SECONDS = 0.004
"""A thread's pause after SLICE_TOPICS topics: the loop and gRPC's threads need the interpreter's lock, too. Each call
of theirs waits up to 5 ms for a thread that does not pause: heartbeats waited for a second while the history and the
snapshot of a million topics were written."""


class Slices:
    """One piece of work; its first slice begins now."""

    def __init__(self, clock: Clock, *, pause: float = 0.0, longest: float = SLICE_SECONDS) -> None:
        """``pause``: seconds between two slices; 0 lets only run what is ready. ``longest``: of a slice, seconds."""
        self._longest = longest
        self._monotonic = clock.monotonic
        self._sleep = partial(clock.sleep, pause)
        self._before = 0.0
        self._began = self._monotonic()

    def worked(self) -> float:
        """Return the seconds so far, without pauses."""
        return self._before + self._monotonic() - self._began

    def is_over(self) -> bool:
        """Return whether :meth:`pause` would pause. Asked first, it saves a coroutine for each small step."""
        return self._monotonic() - self._began > self._longest

    async def pause(self) -> None:
        """Pause if the slice is over."""
        if self.is_over():
            self._before = self.worked()
            await self._sleep()
            self._began = self._monotonic()
