"""Process handling of a daemon: event loop, signals, exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable

from pointsman.daemon.process import logs

LOOPS = ("uvloop", "asyncio")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_CONFIGURATION = 2
EXIT_FORCED = 130
"""Exit code when a second SIGTERM or SIGINT ended the process before it had drained."""

FEW_FILES = 4_096
"""Below this limit of open files a few thousand clients would block others, the history and the snapshot: every
connection is a file."""

log = logging.getLogger(__name__)


def run(
    main: Callable[[asyncio.Event], Awaitable[int]],
    *,
    loop: str,
    on_hangup: Callable[[], None] | None = None,
    files: int = FEW_FILES,
) -> int:
    """Run ``main(stop)`` to its end and return its exit code. ``files``: as for :func:`warn_of_few_files`.

    The first SIGTERM or SIGINT sets ``stop``; a second one exits immediately with EXIT_FORCED. SIGHUP calls
    ``on_hangup`` inside the event loop; it never stops the process, whether sent by a reload, by logrotate or by a
    terminal that closes.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
            return runner.run(_with_signals(main, on_hangup, files))
    finally:
        # The loop is closed, and its handler with it: the default action of the signal would kill the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        logs.flush()


def warn_of_few_files(needed: int) -> None:
    """Log a warning when this process may open fewer files than it has connections at its limits."""
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:  # a sandbox forbids the call
        return
    if limit != resource.RLIM_INFINITY and limit < needed:
        log.warning(
            "limit of open files is low, and each connection is one: raise it to at least %d (LimitNOFILE=)",
            needed,
            extra={"facts": {"limit": limit}},
        )


async def _with_signals(
    main: Callable[[asyncio.Event], Awaitable[int]], on_hangup: Callable[[], None] | None, files: int
) -> int:
    stop = asyncio.Event()

    def on_signal(name: str) -> None:
        if stop.is_set():
            log.warning("second signal received: exiting immediately", extra={"facts": {"signal": name}})
            logs.flush()
            os._exit(EXIT_FORCED)
        log.info("signal received: draining", extra={"facts": {"signal": name}})
        stop.set()

    def ignore() -> None:
        log.info("SIGHUP ignored: there is nothing to reload")

    warn_of_few_files(files)
    running = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, on_signal, number.name)
    running.add_signal_handler(signal.SIGHUP, on_hangup or ignore)
    return await main(stop)


def _loop_factory(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415  # not on Windows, and not with --loop asyncio

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None
