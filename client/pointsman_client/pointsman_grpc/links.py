"""Channels to name servers and agents with their stubs: opened on first use in the running loop, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

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

if TYPE_CHECKING:
    # These names exist for type checkers only.
    from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceAsyncStub
    from pointsman.v1.offset_service_pb2_grpc import OffsetServiceAsyncStub
    from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceAsyncStub
    from pointsman.v1.route_service_pb2_grpc import RouteServiceAsyncStub

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

OpenChannel = Callable[[str, ChannelOpener], grpc.aio.Channel]
"""Opens a channel to an address with the given credentials; does not wait for the connection."""


def open_channel(addr: str, opener: ChannelOpener) -> grpc.aio.Channel:
    """Open a channel in the running event loop."""
    return opener.open(addr, CHANNEL_OPTIONS + KEEPALIVE_OPTIONS)


@dataclass(frozen=True, slots=True)
class NameServerLink:
    """The channel to one name server and its stub."""

    addr: str
    channel: grpc.aio.Channel
    routes: RouteServiceAsyncStub
    version: int
    """Of the credentials that the channel was opened with."""

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_seconds: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Make one call with a timeout and raise the client's own errors."""
        with grpc_errors_of(self.addr, not_found=not_found):
            response: ResponseT | None = await method(request, timeout=timeout_seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise NameServerFailedError(self.addr, grpc.StatusCode.INTERNAL, "the response cannot be decoded")
        return response


@dataclass(frozen=True, slots=True)
class AgentLink:
    """The channel to one agent and its stubs."""

    addr: str
    channel: grpc.aio.Channel
    groups: ConsumerGroupServiceAsyncStub
    locks: QueueLockServiceAsyncStub
    offsets: OffsetServiceAsyncStub
    version: int
    """Of the credentials that the channel was opened with."""

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        deadline: float,
    ) -> ResponseT:
        """Make one call that ends by ``deadline``, a time of the event loop.

        Raises AgentFailedError, or RequestRejectedError if the agent rejects the request.
        """
        with self.errors():
            seconds = max(0.0, deadline - asyncio.get_running_loop().time())
            response: ResponseT | None = await method(request, timeout=seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise AgentFailedError(self.addr, grpc.StatusCode.INTERNAL, "the response cannot be decoded")
        return response

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate errors of calls as :meth:`call` does."""
        try:
            with grpc_errors_of(self.addr):
                yield
        except NameServerFailedError as failure:
            raise AgentFailedError(failure.addr, failure.status, failure.message) from failure


LinkT = TypeVar("LinkT", NameServerLink, AgentLink)


class _Links(Generic[LinkT]):
    """One link for each server in use."""

    def __init__(
        self,
        make: Callable[[str, grpc.aio.Channel, int], LinkT],
        open_channel: OpenChannel,
        opener: ChannelOpener | None,
    ) -> None:
        self._make: Callable[[str, grpc.aio.Channel, int], LinkT] = make
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
            link = self._links[addr] = self._make(addr, self._open_channel(addr, self._opener), version)
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


class NameServerLinks(_Links[NameServerLink]):
    """One link for each name server in use."""

    def __init__(self, open_channel: OpenChannel = open_channel, opener: ChannelOpener | None = None) -> None:
        super().__init__(
            lambda addr, channel, version: NameServerLink(
                addr, channel, route_service_pb2_grpc.RouteServiceStub(channel), version
            ),
            open_channel,
            opener,
        )


class AgentLinks(_Links[AgentLink]):
    """One link for each agent in use."""

    def __init__(self, open_channel: OpenChannel = open_channel, opener: ChannelOpener | None = None) -> None:
        super().__init__(
            lambda addr, channel, version: AgentLink(
                addr,
                channel,
                consumer_group_service_pb2_grpc.ConsumerGroupServiceStub(channel),
                queue_lock_service_pb2_grpc.QueueLockServiceStub(channel),
                offset_service_pb2_grpc.OffsetServiceStub(channel),
                version,
            ),
            open_channel,
            opener,
        )


async def _close_channels(channels: list[grpc.aio.Channel], *, timeout_seconds: float) -> None:
    closings = [asyncio.create_task(channel.close(), name="pointsman-channel-close") for channel in channels]
    if closings:
        _, late = await asyncio.wait(closings, timeout=timeout_seconds)
        for closing in late:
            closing.cancel()
