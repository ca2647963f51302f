"""Whether the broker says of itself that it serves, by gRPC's health protocol (``grpc.health.v1``)."""

from __future__ import annotations

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pointsman.wire.channel import CHANNEL_OPTIONS
from pointsman_agent.core.probe_verdict import ProbeFailure, ProbeResult
from pointsman_agent.probe.failed_connection import classify_failed_connection

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SAID = {
    grpc.StatusCode.UNAVAILABLE: "cannot be reached",
    grpc.StatusCode.UNIMPLEMENTED: "has no health service",
}


class GrpcProbe:
    """Asks the server at ``target`` (host:port) for the health of ``service``; empty: of the whole server.

    A new connection each time, as a new client would make one. Cannot tell incarnation or role.
    """

    def __init__(self, target: str, *, service: str = "") -> None:
        self._target = target
        self._service = service
        self._what = f"grpc {target}{f' service {service!r}' if service else ''}"

    async def look(self) -> ProbeResult:
        """See :meth:`pointsman_agent.probe.Probe.look`."""
        request = health_pb2.HealthCheckRequest(service=self._service)
        channel = grpc.aio.insecure_channel(self._target, options=CHANNEL_OPTIONS)
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(request)
        except grpc.aio.AioRpcError as error:
            is_unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
            failure = await classify_failed_connection(self._target) if is_unavailable else ProbeFailure.OTHER
            return ProbeResult(passed=False, detail=f"{self._what}: {self._said(error)}", failure=failure)
        finally:
            await channel.close()
        statuses = health_pb2.HealthCheckResponse.ServingStatus
        known = answer.status in statuses.values()
        said = statuses.Name(answer.status) if known else f"status {answer.status}"
        failure = ProbeFailure.REFUSED_TO_SERVE if answer.status == NOT_SERVING else ProbeFailure.OTHER
        return ProbeResult(passed=answer.status == SERVING, detail=f"{self._what}: {said}", failure=failure)

    def _said(self, error: grpc.aio.AioRpcError) -> str:
        # gRPC's own words are left out: they carry what differs from one try to the next.
        code = error.code()
        if code is grpc.StatusCode.NOT_FOUND:
            return f"knows no service {self._service!r}"
        return _SAID.get(code, code.name)
