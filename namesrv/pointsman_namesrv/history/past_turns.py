"""Whose question about the past comes next: of those that wait, the one whose asker has used the worker least.

So an asker that asks without pause waits for itself, not others for it. The questions that may wait are bounded: at
the bound the one that would come last is refused; it need not be the newest.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pointsman.clock import Clock

FIRST_ESTIMATE_SECONDS = 1.0
HALF_LIFE_SECONDS = 60.0
"""After which half of what an asker used is forgotten."""
MAX_ASKERS = 1_000
"""Askers whose use is remembered; of more, those that used the worker last."""


class NoRoom(Exception):
    """As many questions wait as may, and all of them come before this one."""


@dataclass(eq=False, slots=True)
class _Waiting:
    asker: str
    turn: asyncio.Future[bool]
    """False: it is refused."""


class PastTurns:
    """One question at a time. ``most``: how many may wait for it."""

    def __init__(self, most: int, *, clock: Clock) -> None:
        self.seconds = FIRST_ESTIMATE_SECONDS
        """Moving average of a turn."""
        self._most = most
        self._clock = clock
        self._asker: str | None = None
        """Whose turn it is; None: it is the turn of none."""
        self._waiting: list[_Waiting] = []
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Seconds that each asker used, and when that was so."""

    @property
    def waiting(self) -> int:
        """Return how many questions wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, asker: str) -> AsyncIterator[None]:
        """Wait for the turn of a question, which lasts as long as the context. Raises NoRoom."""
        if self._asker is None:
            self._asker = asker
        else:
            await self._wait(asker)
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._note(asker, self._clock.monotonic() - began)
            self._pass_on()

    async def _wait(self, asker: str) -> None:
        own = _Waiting(asker, asyncio.get_running_loop().create_future())
        self._waiting.append(own)
        if len(self._waiting) > self._most:
            last = self._in_order()[-1]
            self._waiting.remove(last)
            last.turn.set_result(False)
        try:
            is_its_turn = await own.turn
        except asyncio.CancelledError:
            if own in self._waiting:
                self._waiting.remove(own)
            elif not own.turn.cancelled() and own.turn.result():
                self._pass_on()
            raise
        if not is_its_turn:
            raise NoRoom

    def _pass_on(self) -> None:
        self._asker = None
        if self._waiting:
            following = self._in_order()[0]
            self._waiting.remove(following)
            self._asker = following.asker
            following.turn.set_result(True)

    def _in_order(self) -> list[_Waiting]:
        """Return the waiting questions, each after what its asker used and its earlier questions will probably use."""
        now, earlier = self._clock.monotonic(), Counter(() if self._asker is None else (self._asker,))
        places: list[tuple[float, int, _Waiting]] = []
        for number, each in enumerate(self._waiting):
            places.append((self._used_by(each.asker, now) + earlier[each.asker] * self.seconds, number, each))
            earlier[each.asker] += 1
        return [each for _, _, each in sorted(places)]

    def _used_by(self, asker: str, now: float) -> float:
        seconds, at = self._used.get(asker, (0.0, now))
        return seconds * math.exp2((at - now) / HALF_LIFE_SECONDS)

    def _note(self, asker: str, seconds: float) -> None:
        now = self._clock.monotonic()
        self.seconds += (seconds - self.seconds) / 4
        self._used[asker] = (self._used_by(asker, now) + seconds, now)
        self._used.move_to_end(asker)
        if len(self._used) > MAX_ASKERS:
            self._used.popitem(last=False)
