"""Wipe or restore the write permission of this broker's topics on one name server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.wire.channel_opener import ChannelOpener, explain_connection_failure
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from pointsman_agent.core.drain import Answer

if TYPE_CHECKING:
    from pointsman.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

MAX_BY_LENGTH = 128


@dataclass(frozen=True, slots=True)
class PermChange:
    """Outcome of one call."""

    answer: Answer
    may_have_changed: bool
    """Whether the permission may have changed; true also without a response."""


class WritePermissions:
    """Calls ``AdminService.SetWritePerm``, each time on a new connection, because calls are rare.

    ``agent_addr`` is recorded in the history as the author; ``timeout`` is for one response, in seconds.
    """

    def __init__(
        self, *, cluster: str, broker_name: str, agent_addr: str, timeout: float, opener: ChannelOpener
    ) -> None:
        self._cluster = cluster
        self._broker_name = broker_name
        self._by = f"agent {agent_addr}"[:MAX_BY_LENGTH]
        self._timeout = timeout
        self._opener = opener

    async def set(self, name_server: str, *, writable: bool) -> PermChange:
        """Set it on one name server (host:port). A failure is returned, not raised."""
        request = admin.SetWritePermRequest(
            cluster=self._cluster, broker_name=self._broker_name, writable=writable, by=self._by
        )
        async with self._opener.open(name_server, CHANNEL_OPTIONS) as channel:
            stub: AdminServiceAsyncStub = AdminServiceStub(channel)
            try:
                response = await stub.SetWritePerm(request, timeout=self._timeout)
            except grpc.aio.AioRpcError as error:
                return _failed(error)
        text = f"{response.topic_count} topics" if response.changed else "unchanged"
        return PermChange(Answer(True, text), response.changed)


def _failed(error: grpc.aio.AioRpcError) -> PermChange:
    if error.code() is grpc.StatusCode.NOT_FOUND:
        return PermChange(Answer(True, "the broker is unknown there"), False)
    is_unknown = error.code() in {
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
    }
    return PermChange(
        Answer(False, f"{error.code().name}: {explain_connection_failure(error.details() or '')}"[:200]), is_unknown
    )
