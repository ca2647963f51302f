"""Connections to name servers: opened when first used, inside the running event loop, and closed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from pointsman.v1 import route_service_pb2_grpc
from pointsman_client.errors import NameServerFailedError, NotFoundError
from pointsman_client.rpc.channel import OpenChannel, close_channels, open_channel
from pointsman_client.rpc.status import grpc_errors_of

if TYPE_CHECKING:
    # This name exists for type checkers only.
    from pointsman.v1.route_service_pb2_grpc import RouteServiceAsyncStub

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class NameServerLink:
    """The channel to one name server with the stubs on it."""

    addr: str
    channel: grpc.aio.Channel
    routes: RouteServiceAsyncStub

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_seconds: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Make one call with a deadline and raise the client's own errors."""
        with grpc_errors_of(self.addr, not_found=not_found):
            response: ResponseT | None = await method(request, timeout=timeout_seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise NameServerFailedError(self.addr, grpc.StatusCode.INTERNAL, "the answer cannot be decoded")
        return response


class NameServerLinks:
    """One link for each name server in use."""

    def __init__(self, open_channel: OpenChannel = open_channel) -> None:
        self._open_channel = open_channel
        self._links: dict[str, NameServerLink] = {}

    def to(self, addr: str) -> NameServerLink:
        """Return the link to ``addr``; the first time, open it without waiting for the connection."""
        link = self._links.get(addr)
        if link is None:
            channel = self._open_channel(addr)
            link = self._links[addr] = NameServerLink(addr, channel, route_service_pb2_grpc.RouteServiceStub(channel))
        return link

    async def close(self, *, timeout_seconds: float) -> None:
        """End all calls and close all channels."""
        channels, self._links = [link.channel for link in self._links.values()], {}
        await close_channels(channels, timeout_seconds=timeout_seconds)
