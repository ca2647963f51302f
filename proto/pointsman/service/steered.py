"""A daemon for users' tests: its clock is moved through standard input, and what it says goes to standard output.

First it prints one JSON line with its facts (where it listens). Then ``advance SECONDS`` moves the clock, and is
answered with ``{"now": ...}`` once the daemon has nothing left to do: its own tasks wait for time, and nothing came
over its sockets for a moment. The end of its input ends the process, so that it never outlives its test.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVarTuple

from pointsman.wire.manual_clock import ManualClock

QUIET_SECONDS = 0.002
QUIET_LOOKS = 3
"""Looks in a row, each so long, at which nothing may have happened: a call over the loopback takes less."""
LONGEST_LOOKS = 500

Arguments = TypeVarTuple("Arguments")
Announce = Callable[[Mapping[str, object]], None]
SteeredMain = Callable[[ManualClock, Announce], Coroutine[Any, Any, None]]


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts what it is asked to run soon: whatever happens in a program on sockets ends in a callback."""

    turns = 0

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Count, and do it."""
        self.turns += 1
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Count, and do it."""
        self.turns += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def run(main: SteeredMain) -> None:
    """Run ``main(clock, announce)`` until the input ends or it fails; never returns."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(_steer(main))
    leave(0)


def leave(code: int) -> None:
    """End at once: a stop by the rules would wait for a clock that nobody moves any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _steer(main: SteeredMain) -> None:
    clock = ManualClock()
    orders: asyncio.Queue[str] = asyncio.Queue(maxsize=100)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(orders.put(line), loop).result()
        leave(0)

    running = asyncio.create_task(main(clock, _say))
    threading.Thread(target=read, name="orders", daemon=True).start()
    obeying = asyncio.create_task(_obey(clock, orders))
    done, _ = await asyncio.wait({running, obeying}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    leave(1)


async def _obey(clock: ManualClock, orders: asyncio.Queue[str]) -> None:
    while True:
        verb, _, argument = (await orders.get()).strip().partition(" ")
        if verb != "advance":
            raise ValueError(f"{verb!r}: the one order is `advance SECONDS`")
        await clock.advance(float(argument))
        await settled()
        _say({"now": clock.now})


async def settled() -> None:
    """Return when nothing has happened in the running :class:`CountingLoop` for a moment."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)  # noqa: S101  run() made it
    quiet = 0
    for _ in range(LONGEST_LOOKS):
        before = loop.turns
        await asyncio.sleep(QUIET_SECONDS)
        # One turn is this wait's own.
        quiet = quiet + 1 if loop.turns <= before + 1 else 0
        if quiet == QUIET_LOOKS:
            return


def _say(facts: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
