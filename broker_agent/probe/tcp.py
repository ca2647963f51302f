"""Whether the broker accepts a connection."""

from __future__ import annotations

import asyncio
import contextlib

from broker_agent.core.probe_verdict import ProbeResult
from pointsman.wire.names import split_addr


class TcpProbe:
    """Connects to ``target`` (host:port) and hangs up. Cannot tell incarnation or role."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._host, self._port = split_addr(target)

    async def look(self) -> ProbeResult:
        """See :meth:`broker_agent.probe.Probe.look`."""
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except (OSError, ValueError) as error:  # ValueError: a name that no resolver can be asked for
            said = getattr(error, "strerror", None) or error
            return ProbeResult(passed=False, detail=f"tcp {self._target}: {said}")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return ProbeResult(passed=True, detail=f"tcp {self._target}: connected")
