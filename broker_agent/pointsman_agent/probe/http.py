"""Whether the broker's HTTP port answers a GET."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

from pointsman.wire.names import split_addr
from pointsman_agent.core.probe_verdict import ProbeFailure, ProbeResult
from pointsman_agent.probe.failed_connection import classify_failed_connection

PASSES_BELOW = 400
REFUSES_FROM = 500
"""Such a status is the server's own failure (RFC 9110, 15.6); one below may be the fault of the request."""
MAX_STATUS_LINE_BYTES = 8_192
"""Nothing after the status line is read."""
NEVER_QUOTED = "/?&=%:;,+~@!$'()*[]-._"

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r?\n")


class HttpProbe:
    """GET ``path`` of ``target`` (host:port), without TLS; a status below 400 passes.

    A new connection each time, as a new client would make one. A redirect passes and is not followed: where it leads
    is another server's health. Cannot tell incarnation or role.
    """

    def __init__(self, target: str, *, path: str = "/") -> None:
        self._target = target
        self._host, self._port = split_addr(target)
        self._what = f"http {target}{path}"
        # Quoted, so that no path can end the request line early.
        self._request = (
            f"GET {quote(path, safe=NEVER_QUOTED)} HTTP/1.1\r\n"
            f"Host: {target}\r\nUser-Agent: pointsman-agent\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        ).encode("ascii")

    async def look(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.look`."""
        try:
            line = await self._status_line()
        except (OSError, ValueError) as error:  # ValueError: a name that cannot be asked for, a line without an end
            said = getattr(error, "strerror", None) or error
            failure = await classify_failed_connection(self._target)
            return ProbeResult(passed=False, detail=f"{self._what}: {said}", failure=failure)
        match = _STATUS_LINE.fullmatch(line)
        if match is None:
            said = "hung up without an answer" if not line else "what answers does not speak HTTP/1"
            return ProbeResult(passed=False, detail=f"{self._what}: {said}")
        status = int(match[1])
        failure = ProbeFailure.REFUSED_TO_SERVE if status >= REFUSES_FROM else ProbeFailure.OTHER
        return ProbeResult(passed=status < PASSES_BELOW, detail=f"{self._what}: status {status}", failure=failure)

    async def _status_line(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=MAX_STATUS_LINE_BYTES)
        try:
            writer.write(self._request)
            return await reader.readline()
        finally:
            # Whatever else it would say is of no interest: no waiting for a polite end.
            writer.transport.abort()
