"""Responses of subscriptions: from a change to the connections that have watches of it, in slices of the loop.

A change may concern a hundred thousand streams. Their connections wait in a queue; each takes its turn once for all
its streams and all changes up to then, in one write, and between slices the loop serves calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from pointsman.clock import SystemClock

SLICE_SECONDS = 0.001


class Pushing(Protocol):
    """A connection with responses to send."""

    def push(self) -> None:
        """Send the responses of all its streams, as far as the client accepts them."""


class Pushes:
    """The queue. A connection adds itself once, until its turn."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        """Not the loop's, which stands still within a turn."""
        self._due: deque[Pushing] = deque()
        self._is_running = False

    def add(self, connection: Pushing, loop: asyncio.AbstractEventLoop) -> None:
        """Add a connection."""
        self._due.append(connection)
        if not self._is_running:
            self._is_running = True
            loop.call_soon(self._run, loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        until, due = self._clock.monotonic() + SLICE_SECONDS, self._due
        while due:
            due.popleft().push()
            if self._clock.monotonic() > until:
                break
        self._is_running = bool(due)
        if due:
            loop.call_soon(self._run, loop)
