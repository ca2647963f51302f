"""Whether the broker accepts a connection."""

from __future__ import annotations

import asyncio

from pointsman.wire.names import split_addr
from pointsman_agent.core.probe_verdict import ProbeResult
from pointsman_agent.probe.failed_connection import classify_failed_connection


class _Connection(asyncio.Protocol):
    """Without a reader and a writer, which would be 10 to 40 % of what a look of an idle agent costs."""

    def __init__(self) -> None:
        self.is_closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the base's signature
        self.is_closed.set()


class TcpProbe:
    """Connects to ``target`` (host:port) and hangs up. Cannot tell incarnation or role."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._host, self._port = split_addr(target)

    async def look(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.look`."""
        loop = asyncio.get_running_loop()
        try:
            transport, connection = await loop.create_connection(_Connection, self._host, self._port)
        except (OSError, ValueError) as error:  # ValueError: a name that no resolver can be asked for
            said = getattr(error, "strerror", None) or error
            failure = await classify_failed_connection(self._target)
            return ProbeResult(passed=False, detail=f"tcp {self._target}: {said}", failure=failure)
        transport.close()
        await connection.is_closed.wait()
        return ProbeResult(passed=True, detail=f"tcp {self._target}: connected")
