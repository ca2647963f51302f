"""Tell the service manager how the daemon fares: one datagram a message to ``$NOTIFY_SOCKET``, as sd_notify(3) does.

Nothing here holds up or ends the daemon: without the variable each message is a no-op, one that cannot be sent is
dropped, and the first of those is said in the log.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from pointsman.wire.clock import Clock

FEEDS_PER_WATCHDOG = 3
"""The watchdog is fed this often within its time, so that one lost datagram is no restart."""

log = logging.getLogger(__name__)


class ServiceManager:
    """The service manager that started this process, if there is one. Every method returns at once and never raises."""

    def __init__(self, environment: Mapping[str, str], *, clock: Clock) -> None:
        self._addr = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_seconds = watchdog_seconds(environment, pid=os.getpid())
        self._clock = clock
        self._status = ""
        self._failed = False

    def ready(self) -> None:
        """We serve: units that are ordered after ours may start."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """What we are at, as one line for people; sent when it is another than the last one."""
        text = " ".join(text.split())
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """We drain: the time to stop runs from here."""
        self._send("STOPPING=1")

    async def feed_watchdog(self) -> None:
        """Say that we live until cancelled; returns at once if nobody wants to hear it.

        A task of the event loop that is to be watched: when the loop is held for the whole interval, the service
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
                # A manager that does not read fills its queue: better a message lost than the event loop held.
                sender.setblocking(False)
                sender.sendto(message.encode(), socket_addr(self._addr))
        except (OSError, ValueError) as error:
            if not self._failed:
                self._failed = True
                facts = {"notify_socket": self._addr, "error": str(error)}
                log.warning("sd_notify failed; systemd does not get the state of this process", extra={"facts": facts})


def socket_addr(notify_socket: str) -> str:
    """The address of a socket as the kernel takes it. Raises ValueError for a kind that we do not speak."""
    if notify_socket.startswith("@"):
        return "\0" + notify_socket[1:]
    if notify_socket.startswith("/"):
        return notify_socket
    raise ValueError("NOTIFY_SOCKET is neither a path nor an abstract name")


def watchdog_seconds(environment: Mapping[str, str], *, pid: int) -> float | None:
    """Within what time the service manager wants to hear from process ``pid``; None: it does not ask that."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    asked = environment.get("WATCHDOG_PID", "")
    # A child inherits both variables: they mean the process that is named.
    if not _is_number(microseconds) or int(microseconds) == 0 or (asked and asked != str(pid)):
        return None
    return int(microseconds) / 1_000_000


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
