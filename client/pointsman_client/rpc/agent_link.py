"""Connections to agents: opened when first used, inside the running event loop, and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from pointsman.v1 import (
    consumer_group_service_pb2_grpc,
    offset_service_pb2_grpc,
    queue_lock_service_pb2_grpc,
)
from pointsman_client.errors import AgentFailedError, NameServerFailedError
from pointsman_client.rpc.channel import OpenChannel, close_channels, open_channel
from pointsman_client.rpc.status import grpc_errors_of

if TYPE_CHECKING:
    # These names exist for type checkers only.
    from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceAsyncStub
    from pointsman.v1.offset_service_pb2_grpc import OffsetServiceAsyncStub
    from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceAsyncStub

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class AgentLink:
    """The channel to one agent with the stubs on it."""

    addr: str
    channel: grpc.aio.Channel
    groups: ConsumerGroupServiceAsyncStub
    locks: QueueLockServiceAsyncStub
    offsets: OffsetServiceAsyncStub

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        deadline: float,
    ) -> ResponseT:
        """Make one call that ends by ``deadline``, a time of the event loop.

        Raises AgentFailedError, or RequestRejectedError for an agent's no.
        """
        with self.errors():
            seconds = max(0.0, deadline - asyncio.get_running_loop().time())
            response: ResponseT | None = await method(request, timeout=seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise AgentFailedError(self.addr, grpc.StatusCode.INTERNAL, "the answer cannot be decoded")
        return response

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate what calls raise, as :meth:`call` does."""
        try:
            with grpc_errors_of(self.addr):
                yield
        except NameServerFailedError as failure:
            raise AgentFailedError(failure.addr, failure.status, failure.message) from failure


class AgentLinks:
    """One link for each agent in use."""

    def __init__(self, open_channel: OpenChannel = open_channel) -> None:
        self._open_channel = open_channel
        self._links: dict[str, AgentLink] = {}

    def to(self, addr: str) -> AgentLink:
        """Return the link to ``addr``; the first time, open it without waiting for the connection."""
        link = self._links.get(addr)
        if link is None:
            channel = self._open_channel(addr)
            link = self._links[addr] = AgentLink(
                addr,
                channel,
                consumer_group_service_pb2_grpc.ConsumerGroupServiceStub(channel),
                queue_lock_service_pb2_grpc.QueueLockServiceStub(channel),
                offset_service_pb2_grpc.OffsetServiceStub(channel),
            )
        return link

    async def forget(self, addr: str, *, timeout_seconds: float) -> None:
        """Close the link to an agent that is no longer there. A later :meth:`to` opens another one."""
        link = self._links.pop(addr, None)
        if link is not None:
            await close_channels([link.channel], timeout_seconds=timeout_seconds)

    async def close(self, *, timeout_seconds: float) -> None:
        """End all calls and close all channels."""
        channels, self._links = [link.channel for link in self._links.values()], {}
        await close_channels(channels, timeout_seconds=timeout_seconds)
