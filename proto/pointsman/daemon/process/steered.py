"""A daemon for users' tests: standard input moves its clock, and its messages go to standard output.

First it prints one JSON line with its facts (its addresses). Then ``advance SECONDS`` moves the clock. The response
``{"now": ...}`` follows once the daemon is idle: its own tasks wait for time, and its sockets are quiet for a moment.
The end of its input ends the process, so that it never outlives its test.
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

from pointsman.manual_clock import ManualClock

QUIET_SECONDS = 0.002
IDLE_POLLS = 3
"""Consecutive idle polls after which the daemon is idle; a call over the loopback takes less than one."""
MAX_POLLS = 500

Arguments = TypeVarTuple("Arguments")
Announce = Callable[[Mapping[str, object]], None]
SteeredMain = Callable[[ManualClock, Announce], Coroutine[Any, Any, None]]


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts scheduled callbacks: everything that happens on sockets ends in one."""

    turns = 0

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Count, and schedule."""
        self.turns += 1
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Count, and schedule."""
        self.turns += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def run(main: SteeredMain) -> None:
    """Run ``main(clock, announce)`` until the input ends or it fails; never returns."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(_steer(main))
    exit_now(0)


def exit_now(code: int) -> None:
    """Exit immediately: an orderly stop would wait for a clock that no longer moves."""
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
        exit_now(0)

    running = asyncio.create_task(main(clock, _print))
    threading.Thread(target=read, name="orders", daemon=True).start()
    obeying = asyncio.create_task(_obey(clock, orders))
    done, _ = await asyncio.wait({running, obeying}, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    exit_now(1)


async def _obey(clock: ManualClock, orders: asyncio.Queue[str]) -> None:
    while True:
        verb, _, argument = (await orders.get()).strip().partition(" ")
        if verb != "advance":
            raise ValueError(f"unknown command {verb!r}: use `advance SECONDS`")
        await clock.advance(float(argument))
        await settled()
        _print({"now": clock.now})


async def settled() -> None:
    """Return when the running :class:`CountingLoop` was idle for a moment."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)  # noqa: S101  # created by run()
    quiet = 0
    for _ in range(MAX_POLLS):
        before = loop.turns
        await asyncio.sleep(QUIET_SECONDS)
        # One callback is this wait itself.
        quiet = quiet + 1 if loop.turns <= before + 1 else 0
        if quiet == IDLE_POLLS:
            return


def _print(facts: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
