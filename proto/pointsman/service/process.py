"""A daemon's life as a process: its event loop, its signals, its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable

from pointsman.service import logs

LOOPS = ("uvloop", "asyncio")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_CONFIGURATION = 2
EXIT_FORCED = 130
"""A second SIGTERM or SIGINT ended the process before it had drained."""

log = logging.getLogger(__name__)


def run(
    main: Callable[[asyncio.Event], Awaitable[int]], *, loop: str, on_hangup: Callable[[], None] | None = None
) -> int:
    """Run ``main(stop)`` to its end and return its exit code.

    The first SIGTERM or SIGINT sets ``stop``; a second one ends the process at once with EXIT_FORCED. SIGHUP calls
    ``on_hangup`` inside the event loop; without that it sets ``stop`` as well, and never ends the process at once.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
            return runner.run(_with_signals(main, on_hangup))
    finally:
        logs.flush()


async def _with_signals(main: Callable[[asyncio.Event], Awaitable[int]], on_hangup: Callable[[], None] | None) -> int:
    stop = asyncio.Event()

    def on_signal(name: str) -> None:
        if stop.is_set():
            log.warning("second signal: leaving at once", extra={"facts": {"signal": name}})
            logs.flush()
            os._exit(EXIT_FORCED)
        log.info("signal: draining", extra={"facts": {"signal": name}})
        stop.set()

    def stop_politely() -> None:
        # A terminal that closes may say it twice.
        if not stop.is_set():
            on_signal(signal.SIGHUP.name)

    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, on_signal, number.name)
    # Under nohup it stays ignored.
    if on_hangup is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        running.add_signal_handler(signal.SIGHUP, on_hangup or stop_politely)
    return await main(stop)


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415  # not on Windows, and not with --loop asyncio

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None
