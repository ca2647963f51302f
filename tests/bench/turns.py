"""CPU time per call of several loads, in turns: disturbances of the machine affect all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.bench.report import Report

ROUNDS = 13
ROUND_SECONDS = 0.5
"""Short: disturbances of a machine last seconds."""

Load = Callable[[float], Awaitable[int]]
"""Make calls for the given seconds and return how many."""


class Server(Protocol):
    """The measured process."""

    async def ask(self, command: str, /, *arguments: object) -> Any:
        """Return for "cpu" the seconds of CPU time that it has used, for "rss" its memory in bytes."""


@dataclass(frozen=True)
class Turn:
    """A load and the server whose CPU time it costs."""

    server: Server
    load: Load


@dataclass(frozen=True)
class Costs:
    """CPU microseconds a call, of each load in each round."""

    rounds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """CPU microseconds a call."""
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, base: str) -> float:
        """Cost of the base against that of ``name``: calls a CPU second of ``name`` as a share of those of the base.

        The median over the rounds, in each of which both took their turn.
        """
        return statistics.median(b / n for n, b in zip(self.rounds[name], self.rounds[base], strict=True))


async def in_turns(turns: Mapping[str, Turn], report: Report, *, title: str) -> Costs:
    """Run each load once a round, and one round more for warming up."""
    rounds: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(ROUNDS + 1):
        if number % 5 == 0:
            report.progress(f"{title}: round {number} of {ROUNDS}")
        # The first turn alternates.
        names = list(turns)[:: 1 if number % 2 else -1]
        for name in names:
            turn = turns[name]
            before = await turn.server.ask("cpu")
            calls = await turn.load(ROUND_SECONDS)
            cpu = await turn.server.ask("cpu") - before
            if number:
                rounds[name].append(cpu / calls * 1e6)
    return Costs(rounds)


async def repeat(call: Callable[[], Awaitable[object]], seconds: float) -> int:
    """Make one call after the other for ``seconds``; return how many."""
    until, calls = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        await call()
        calls += 1
    return calls
