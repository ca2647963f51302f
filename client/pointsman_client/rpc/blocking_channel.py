"""A channel for an event loop that grpc.aio must not run in.

``grpc.aio`` serves one event loop in a process; a second one fills the log with ``BlockingIOError`` (grpc issue
42357). The synchronous facade runs the client in a loop of its own, beside whatever loops the application has, so
its calls go through gRPC's synchronous channel and its threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import grpc
import grpc.aio

from pointsman.wire.channel import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman_client.rpc.blocking_call import (
    BlockingCall,
    BlockingStreamCall,
    BlockingStreamStreamCall,
    BlockingUnaryCall,
    SyncCall,
)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
CallT = TypeVar("CallT", bound=BlockingCall)

Serializer = Callable[[RequestT], bytes]
Deserializer = Callable[[bytes], ResponseT]
Metadata = grpc.aio.Metadata | Sequence[tuple[str, str | bytes]]


def open_blocking_channel(addr: str) -> grpc.aio.Channel:
    """Open a channel on gRPC's own threads for the running event loop; an ``OpenChannel``."""
    return BlockingChannel(grpc.insecure_channel(addr, options=CHANNEL_OPTIONS + KEEPALIVE_OPTIONS))


class BlockingChannel(grpc.aio.Channel):
    """Looks like ``grpc.aio.Channel`` to generated stubs; to be used in one event loop."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._calls: set[BlockingCall] = set()
        self._is_closed = False

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer[RequestT] | None = None,
        response_deserializer: Deserializer[ResponseT] | None = None,
        _registered_method: bool = False,
    ) -> grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]:
        """See ``grpc.aio.Channel``."""
        return _UnaryUnary(self, self._channel.unary_unary(method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer[RequestT] | None = None,
        response_deserializer: Deserializer[ResponseT] | None = None,
        _registered_method: bool = False,
    ) -> grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT]:
        """See ``grpc.aio.Channel``."""
        return _UnaryStream(self, self._channel.unary_stream(method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer[RequestT] | None = None,
        response_deserializer: Deserializer[ResponseT] | None = None,
        _registered_method: bool = False,
    ) -> grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]:
        """See ``grpc.aio.Channel``."""
        call = self._channel.stream_stream(method, request_serializer, response_deserializer)
        # Not a subclass: in grpcio 1.72 this one is not generic when the program runs.
        return cast("grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]", _StreamStream(self, call))

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer[RequestT] | None = None,
        response_deserializer: Deserializer[ResponseT] | None = None,
        _registered_method: bool = False,
    ) -> grpc.aio.StreamUnaryMultiCallable[RequestT, ResponseT]:
        """No service for applications has such a call (brokers register so)."""
        raise NotImplementedError(f"{method}: a stream of requests with one response is for agents")

    def begin(self, make: Callable[[], CallT]) -> CallT:
        """Make a call and keep it in sight until it ends, so that closing ends it."""
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        call = make()
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    async def close(self, grace: float | None = None) -> None:
        """End all calls, after ``grace`` seconds at most, and the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        if grace and self._calls:
            endings = [asyncio.ensure_future(call.code()) for call in self._calls]
            _, late = await asyncio.wait(endings, timeout=grace)
            for ending in late:
                ending.cancel()
        for call in list(self._calls):
            call.cancel()
        self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Not to be had without a thread that watches; calls tell."""
        raise NotImplementedError("the state of a synchronous channel is told by its calls")

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:  # noqa: ARG002  gRPC's
        """See :meth:`get_state`."""
        self.get_state()

    async def channel_ready(self) -> None:
        """See :meth:`get_state`."""
        self.get_state()


class _MultiCallable:
    def __init__(self, channel: BlockingChannel, method: object) -> None:
        self._channel = channel
        self._method: Any = method  # one of gRPC's four synchronous kinds, whose calls are a SyncCall


class _UnaryUnary(_MultiCallable, grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT], Generic[RequestT, ResponseT]):
    def __call__(
        self,
        request: RequestT,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> BlockingUnaryCall[RequestT, ResponseT]:
        def start() -> SyncCall:
            call: SyncCall = self._method.future(
                request, timeout, _pairs(metadata), credentials, wait_for_ready, compression
            )
            return call

        return self._channel.begin(lambda: BlockingUnaryCall[RequestT, ResponseT](start))


class _UnaryStream(
    _MultiCallable, grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT], Generic[RequestT, ResponseT]
):
    def __call__(
        self,
        request: RequestT,
        *,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> BlockingStreamCall[RequestT, ResponseT]:
        def start() -> SyncCall:
            call: SyncCall = self._method(request, timeout, _pairs(metadata), credentials, wait_for_ready, compression)
            return call

        return self._channel.begin(lambda: BlockingStreamCall[RequestT, ResponseT](start))


class _StreamStream(_MultiCallable, Generic[RequestT, ResponseT]):
    def __call__(
        self,
        request_iterator: AsyncIterator[RequestT] | Iterator[RequestT] | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> BlockingStreamStreamCall[RequestT, ResponseT]:
        if request_iterator is not None:
            raise NotImplementedError("write() the requests: an iterator of them is not taken")

        def start(requests: Iterator[RequestT]) -> SyncCall:
            call: SyncCall = self._method(requests, timeout, _pairs(metadata), credentials, wait_for_ready, compression)
            return call

        return self._channel.begin(lambda: BlockingStreamStreamCall[RequestT, ResponseT](start))


def _pairs(metadata: Metadata | None) -> tuple[tuple[str, str | bytes], ...] | None:
    return None if metadata is None else tuple((key, value) for key, value in metadata)
