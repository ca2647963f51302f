"""Notify the service manager of the daemon's state: one datagram per message to ``$NOTIFY_SOCKET``, see sd_notify(3).

Nothing here blocks or ends the daemon: without the variable each message is a no-op, one that cannot be sent is
dropped, and the first of those is logged.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from pointsman.clock import Clock

FEEDS_PER_WATCHDOG = 3
"""Watchdog messages per watchdog time, so that one lost datagram does not cause a restart."""

log = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that started this process, if any. No method blocks or raises."""

    def __init__(self, environment: Mapping[str, str], *, clock: Clock) -> None:
        self._addr = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_seconds = watchdog_seconds(environment, pid=os.getpid())
        self._clock = clock
        self._status = ""
        self._failed = False

    def ready(self) -> None:
        """Report that the daemon serves: units ordered after it may start."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Report the state as one line for operators; sent only if it changed."""
        text = " ".join(text.split())
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """Report that the daemon drains: the time limit of the stop begins."""
        self._send("STOPPING=1")

    async def feed_watchdog(self) -> None:
        """Send watchdog messages until cancelled; return immediately if no watchdog is configured.

        Run as a task of the event loop to be watched: if the loop is blocked for the whole interval, the service
        manager ends the process.
        """
        if not self._addr or self._watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await self._clock.sleep(self._watchdog_seconds / FEEDS_PER_WATCHDOG)

    def _send(self, message: str) -> None:
        if not self._addr:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A manager that does not read fills its queue: drop the message rather than block the event loop.
                sender.setblocking(False)
                sender.sendto(message.encode(), socket_addr(self._addr))
        except (OSError, ValueError) as error:
            if not self._failed:
                self._failed = True
                facts = {"notify_socket": self._addr, "error": str(error)}
                log.warning("sd_notify failed; systemd does not get the state of this process", extra={"facts": facts})


def socket_addr(notify_socket: str) -> str:
    """Return the address of a socket for the kernel. Raises ValueError for an unsupported kind."""
    if notify_socket.startswith("@"):
        return "\0" + notify_socket[1:]
    if notify_socket.startswith("/"):
        return notify_socket
    raise ValueError("NOTIFY_SOCKET is neither a path nor an abstract name")


def watchdog_seconds(environment: Mapping[str, str], *, pid: int) -> float | None:
    """Return the watchdog time that the service manager set for process ``pid``; None: no watchdog."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    asked = environment.get("WATCHDOG_PID", "")
    # A child inherits both variables; they apply to the named process.
    if not _is_number(microseconds) or int(microseconds) == 0 or (asked and asked != str(pid)):
        return None
    return int(microseconds) / 1_000_000


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
