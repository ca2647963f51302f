"""Check the broker by a TCP connection, an HTTP GET, or gRPC's health protocol."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pointsman.names import split_addr
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from pointsman_agent.core.probe_verdict import ProbeFailure, ProbeResult
from pointsman_agent.probe.failed_connection import classify_failed_connection


class _Connection(asyncio.Protocol):
    """A minimal protocol: streams would add 10 to 40 % to the CPU time of a probe of an idle agent."""

    def __init__(self) -> None:
        self.is_closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the base's signature
        self.is_closed.set()


class TcpProbe:
    """Connects to ``target`` (host:port) and disconnects. Reports neither incarnation nor role."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._host, self._port = split_addr(target)

    async def check(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.check`."""
        loop = asyncio.get_running_loop()
        try:
            transport, connection = await loop.create_connection(_Connection, self._host, self._port)
        except (OSError, ValueError) as error:  # ValueError: an invalid host name
            reason = getattr(error, "strerror", None) or error
            failure = await classify_failed_connection(self._target)
            return ProbeResult(passed=False, detail=f"tcp {self._target}: {reason}", failure=failure)
        transport.close()
        await connection.is_closed.wait()
        return ProbeResult(passed=True, detail=f"tcp {self._target}: connected")


PASSES_BELOW = 400
REFUSES_FROM = 500
"""From here on the status is the server's own failure (RFC 9110, 15.6); a lower one may be caused by the request."""
MAX_STATUS_LINE_BYTES = 8_192
"""Nothing after the status line is read."""
NEVER_QUOTED = "/?&=%:;,+~@!$'()*[]-._"

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r?\n")


class HttpProbe:
    """GET ``path`` of ``target`` (host:port), without TLS; a status below 400 passes.

    Each probe uses a new connection, like a new client. A redirect passes and is not followed, because its target may
    be another server. Reports neither incarnation nor role.
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

    async def check(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.check`."""
        try:
            line = await self._status_line()
        except (OSError, ValueError) as error:  # ValueError: an invalid host name, a line without an end
            reason = getattr(error, "strerror", None) or error
            failure = await classify_failed_connection(self._target)
            return ProbeResult(passed=False, detail=f"{self._what}: {reason}", failure=failure)
        match = _STATUS_LINE.fullmatch(line)
        if match is None:
            reason = "connection closed without a response" if not line else "the response is not HTTP/1"
            return ProbeResult(passed=False, detail=f"{self._what}: {reason}")
        status = int(match[1])
        failure = ProbeFailure.REFUSED_TO_SERVE if status >= REFUSES_FROM else ProbeFailure.OTHER
        return ProbeResult(passed=status < PASSES_BELOW, detail=f"{self._what}: status {status}", failure=failure)

    async def _status_line(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=MAX_STATUS_LINE_BYTES)
        try:
            writer.write(self._request)
            return await reader.readline()
        finally:
            # The rest of the response is not needed.
            writer.transport.abort()


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_MEANINGS = {
    grpc.StatusCode.UNAVAILABLE: "cannot be reached",
    grpc.StatusCode.UNIMPLEMENTED: "has no health service",
}


class GrpcProbe:
    """Requests the health of ``service`` from the server at ``target`` (host:port); empty: of the complete server.

    Each probe uses a new connection, like a new client. Reports neither incarnation nor role.
    """

    def __init__(self, target: str, *, service: str = "") -> None:
        self._target = target
        self._service = service
        self._what = f"grpc {target}{f' service {service!r}' if service else ''}"

    async def check(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.check`."""
        request = health_pb2.HealthCheckRequest(service=self._service)
        channel = grpc.aio.insecure_channel(self._target, options=CHANNEL_OPTIONS)
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(request)
        except grpc.aio.AioRpcError as error:
            is_unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
            failure = await classify_failed_connection(self._target) if is_unavailable else ProbeFailure.OTHER
            return ProbeResult(passed=False, detail=f"{self._what}: {self._reason(error)}", failure=failure)
        finally:
            await channel.close()
        statuses = health_pb2.HealthCheckResponse.ServingStatus
        known = answer.status in statuses.values()
        reason = statuses.Name(answer.status) if known else f"status {answer.status}"
        failure = ProbeFailure.REFUSED_TO_SERVE if answer.status == NOT_SERVING else ProbeFailure.OTHER
        return ProbeResult(passed=answer.status == SERVING, detail=f"{self._what}: {reason}", failure=failure)

    def _reason(self, error: grpc.aio.AioRpcError) -> str:
        # gRPC's own message is omitted: it varies from one attempt to the next.
        code = error.code()
        if code is grpc.StatusCode.NOT_FOUND:
            return f"service {self._service!r} is unknown"
        return _MEANINGS.get(code, code.name)
