"""The id of a refused call, in its error and in one log line, so that a user can pass it to an operator."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman.daemon.rpc.calling_peer import Context, peer_of
from pointsman.wire.refusals import Refusal

log = logging.getLogger(__name__)

METADATA_KEY = "x-request-id"
"""Metadata in which a client may send its own id."""
USABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""An id from a client goes to the log and back: one word, bounded."""

EXPECTED = frozenset({"NOT_FOUND", "UNAVAILABLE"})
"""Codes that a healthy fleet causes: a topic that does not exist yet, a server that warms up, drains or stops."""
WINDOW_SECONDS = 10.0
WINDOW_LINES = 10
"""Lines per code and window: one client in a loop is refused thousands of times per second."""


def request_id_of(context: Context) -> str:
    """Return the id that the client sent, else a random one."""
    for key, value in context.invocation_metadata() or ():
        if key == METADATA_KEY and isinstance(value, str) and USABLE_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)


@dataclass(slots=True)
class _Window:
    ends_at: float
    lines: int = 0
    suppressed: int = 0


class RefusalLog:
    """One line per refused call: DEBUG for EXPECTED codes, else INFO and bounded per code."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def note(self, refusal: Refusal, *, method: str, context: Context, request_id: str) -> None:
        """Log a refusal, unless its code has used its lines of this window; the next window's first line counts
        those."""
        level = logging.DEBUG if refusal.status in EXPECTED else logging.INFO
        if not log.isEnabledFor(level):
            return
        suppressed = 0
        if level == logging.INFO:
            window = self._windows.get(refusal.code)
            if window is None or self._clock.monotonic() >= window.ends_at:
                suppressed = 0 if window is None else window.suppressed
                window = self._windows[refusal.code] = _Window(self._clock.monotonic() + WINDOW_SECONDS)
            if window.lines == WINDOW_LINES:
                window.suppressed += 1
                return
            window.lines += 1
        facts = {
            "request_id": request_id,
            "method": method,
            "status": refusal.status,
            "code": refusal.code,
            "reason": str(refusal),
            "peer": peer_of(context).addr,
        }
        log.log(
            level, "call refused", extra={"facts": facts | ({"suppressed_lines": suppressed} if suppressed else {})}
        )
