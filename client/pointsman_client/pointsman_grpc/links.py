"""Channels to name servers and agents with their stubs: opened on first use in the running loop, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, TypeVar, cast

import grpc
import grpc.aio

from pointsman.v1 import (
    consumer_group_service_pb2_grpc,
    offset_service_pb2_grpc,
    queue_lock_service_pb2_grpc,
    route_service_pb2_grpc,
)
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman_client.errors import AgentFailedError, NameServerFailedError, NotFoundError
from pointsman_client.pointsman_grpc.status import grpc_errors_of

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

OpenChannel = Callable[[str, ChannelOpener], grpc.aio.Channel]
"""Opens a channel to an address with the given credentials; does not wait for the connection."""


def open_channel(addr: str, opener: ChannelOpener) -> grpc.aio.Channel:
    """Open a channel in the running event loop."""
    return opener.open(addr, CHANNEL_OPTIONS + KEEPALIVE_OPTIONS)


class GrpcLink:
    """The channel to one server."""

    failed: ClassVar[type[NameServerFailedError]] = NameServerFailedError
    """The error of a call without a response."""

    def __init__(self, addr: str, channel: grpc.aio.Channel, version: int) -> None:
        """``version``: of the credentials that the channel was opened with."""
        self.addr = addr
        self.channel = channel
        self.version = version

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        deadline: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Make one call that ends by ``deadline``, a time of the event loop; ``not_found`` builds the NOT_FOUND error.

        Raises ``failed``, or RequestRejectedError if the server rejects the request.
        """
        with self.errors(not_found):
            seconds = max(0.0, deadline - asyncio.get_running_loop().time())
            response: ResponseT | None = await method(request, timeout=seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise self.failed(self.addr, grpc.StatusCode.INTERNAL, "the response cannot be decoded")
        return response

    async def all_pages(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Any, ResponseT],
        request: Any,  # noqa: ANN401  # any request with a page_token
        *,
        deadline: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Call once for each page and return all pages as one response. Raises what :meth:`call` raises."""
        merged: Any = await self.call(method, request, deadline=deadline, not_found=not_found)
        while merged.next_page_token:
            request.page_token = merged.next_page_token
            merged.ClearField("next_page_token")
            merged.MergeFrom(await self.call(method, request, deadline=deadline, not_found=not_found))
        return cast("ResponseT", merged)

    def errors(self, not_found: Callable[[], NotFoundError] | None = None) -> AbstractContextManager[None]:
        """Translate errors of calls as :meth:`call` does."""
        return grpc_errors_of(self.addr, failed=self.failed, not_found=not_found)


class NameServerLink(GrpcLink):
    """The channel to one name server and its stub."""

    def __init__(self, addr: str, channel: grpc.aio.Channel, version: int) -> None:
        super().__init__(addr, channel, version)
        self.routes = route_service_pb2_grpc.RouteServiceStub(channel)


class AgentLink(GrpcLink):
    """The channel to one agent and its stubs."""

    failed = AgentFailedError

    def __init__(self, addr: str, channel: grpc.aio.Channel, version: int) -> None:
        super().__init__(addr, channel, version)
        self.groups = consumer_group_service_pb2_grpc.ConsumerGroupServiceStub(channel)
        self.locks = queue_lock_service_pb2_grpc.QueueLockServiceStub(channel)
        self.offsets = offset_service_pb2_grpc.OffsetServiceStub(channel)


LinkT = TypeVar("LinkT", bound=GrpcLink)


class Links(Generic[LinkT]):
    """One link for each server in use."""

    def __init__(
        self, kind: type[LinkT], open_channel: OpenChannel = open_channel, opener: ChannelOpener | None = None
    ) -> None:
        self._kind = kind
        self._open_channel = open_channel
        self._opener = opener or ChannelOpener()
        self._links: dict[str, LinkT] = {}

    def to(self, addr: str) -> LinkT:
        """Return the link to ``addr``, opened on first use without waiting for the connection.

        After a change of the credentials this is a new link. Calls and streams on the previous one continue until
        they end; servers close a connection without calls.
        """
        link, version = self._links.get(addr), self._opener.version
        if link is None or link.version != version:
            link = self._links[addr] = self._kind(addr, self._open_channel(addr, self._opener), version)
        return link

    async def remove(self, addr: str, *, timeout_seconds: float) -> None:
        """Close the link to a server that was removed. A later :meth:`to` opens a new one."""
        link = self._links.pop(addr, None)
        if link is not None:
            await _close_channels([link.channel], timeout_seconds=timeout_seconds)

    async def close(self, *, timeout_seconds: float) -> None:
        """End all calls and close all channels; channels that take longer are left to the garbage collector."""
        channels, self._links = [link.channel for link in self._links.values()], {}
        await _close_channels(channels, timeout_seconds=timeout_seconds)


class NameServerLinks(Links[NameServerLink]):
    """One link for each name server in use."""

    def __init__(self, open_channel: OpenChannel = open_channel, opener: ChannelOpener | None = None) -> None:
        super().__init__(NameServerLink, open_channel, opener)


class AgentLinks(Links[AgentLink]):
    """One link for each agent in use."""

    def __init__(self, open_channel: OpenChannel = open_channel, opener: ChannelOpener | None = None) -> None:
        super().__init__(AgentLink, open_channel, opener)


async def _close_channels(channels: list[grpc.aio.Channel], *, timeout_seconds: float) -> None:
    closings = [asyncio.create_task(channel.close(), name="pointsman-channel-close") for channel in channels]
    if closings:
        _, late = await asyncio.wait(closings, timeout=timeout_seconds)
        for closing in late:
            closing.cancel()
