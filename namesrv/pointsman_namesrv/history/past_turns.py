"""Whose question about the past comes next: of those that wait, the one whose asker has used the worker least.

So an asker that asks without pause waits for itself, not others for it. The questions that may wait are bounded: at
the bound the one that would come last is refused; it need not be the newest.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from pointsman.clock import Clock

FIRST_ESTIMATE_SECONDS = 1.0
HALF_LIFE_SECONDS = 60.0
"""After which half of what an asker used is forgotten."""
MAX_ASKERS = 1_000
"""Askers whose use is remembered; of more, those that used the worker last."""


class NoRoom(Exception):
    """As many questions wait as may, and all of them come before this one."""


class Asker(NamedTuple):
    """Who asks. Groups share the worker equally, and askers the part of their group."""

    group: str
    """An authenticated identity, else a host: one process may have many connections."""
    name: str
    """The identity, else the connection."""


@dataclass(eq=False, slots=True)
class _Waiting:
    asker: Asker
    turn: asyncio.Future[bool]
    """False: it is refused."""


class PastTurns:
    """One question at a time. ``most``: how many may wait for it."""

    def __init__(self, most: int, *, clock: Clock) -> None:
        self.seconds = FIRST_ESTIMATE_SECONDS
        """Moving average of a turn."""
        self._most = most
        self._clock = clock
        self._asker: Asker | None = None
        """Whose turn it is; None: it is the turn of none."""
        self._waiting: list[_Waiting] = []
        self._of_groups = _Used()
        self._of_askers = _Used()

    @property
    def waiting(self) -> int:
        """Return how many questions wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Wait for the turn of a question, which lasts as long as the context. Raises NoRoom.

        A question that is refused counts as one of average length within its group, so that askers that repeat it
        without pause come after its others.
        """
        if self._asker is None:
            self._asker = asker
        else:
            await self._wait(asker)
        began = self._clock.monotonic()
        try:
            yield
        finally:
            now = self._clock.monotonic()
            seconds = now - began
            self.seconds += (seconds - self.seconds) / 4
            self._of_groups.add(asker.group, seconds, now)
            self._of_askers.add(asker.name, seconds, now)
            self._pass_on()

    async def _wait(self, asker: Asker) -> None:
        own = _Waiting(asker, asyncio.get_running_loop().create_future())
        self._waiting.append(own)
        in_order = self._in_order()
        if len(in_order) > self._most:
            last = in_order[-1]
            self._waiting.remove(last)
            self._of_askers.add(last.asker.name, self.seconds, self._clock.monotonic())
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
        if in_order := self._in_order():
            following = in_order[0]
            self._waiting.remove(following)
            self._asker = following.asker
            following.turn.set_result(True)

    def _in_order(self) -> list[_Waiting]:
        """Return the questions that wait, each after what its asker used and what its earlier ones may use.

        Drops those that were given up.
        """
        self._waiting = [each for each in self._waiting if not each.turn.done()]
        now, earlier = self._clock.monotonic(), Counter(() if self._asker is None else (self._asker.name,))
        of_groups: defaultdict[str, list[tuple[float, int, _Waiting]]] = defaultdict(list)
        for number, each in enumerate(self._waiting):
            group, name = each.asker
            place = self._of_askers.seconds(name, now) + earlier[name] * self.seconds
            of_groups[group].append((place, number, each))
            earlier[name] += 1
        places: list[tuple[float, int, _Waiting]] = []
        for group, questions in of_groups.items():
            is_served = self._asker is not None and self._asker.group == group
            used = self._of_groups.seconds(group, now)
            for position, (_, number, each) in enumerate(sorted(questions), is_served):
                places.append((used + position * self.seconds, number, each))
        return [each for _, _, each in sorted(places)]


class _Used:
    """Seconds that each used lately."""

    def __init__(self) -> None:
        self._seconds: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """And when that was so."""

    def seconds(self, name: str, now: float) -> float:
        seconds, at = self._seconds.get(name, (0.0, now))
        return seconds * math.exp2((at - now) / HALF_LIFE_SECONDS)

    def add(self, name: str, seconds: float, now: float) -> None:
        self._seconds[name] = (self.seconds(name, now) + seconds, now)
        self._seconds.move_to_end(name)
        if len(self._seconds) > MAX_ASKERS:
            self._seconds.popitem(last=False)
