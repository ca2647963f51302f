"""A channel on gRPC's synchronous stack, for the event loop of the synchronous facade.

``grpc.aio`` does not support fork: in the child its poller is missing, and channels always hang or crash (grpcio 1.72
to 1.85). On the synchronous stack they work, but below 1.85 a child may crash while the parent has an open stream.
Below 1.80, two ``grpc.aio`` loops in one process also flood the log with ``BlockingIOError`` (grpc issue 42357). The
cost is 0.2 ms of CPU per call.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio

from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS

Rpc: TypeAlias = Any
"""One of gRPC's synchronous calls: ``grpc.Call``, ``grpc.Future`` and an iterator in one."""


def open_thread_channel(addr: str, opener: ChannelOpener) -> grpc.aio.Channel:
    """Open a channel on gRPC's own threads for the running event loop; an ``OpenChannel``.

    It implements the part of ``grpc.aio.Channel`` that this client uses: calls with a timeout, and streams that are
    read, written and cancelled. They raise the same errors as ``grpc.aio``.
    """
    channel = opener.open_blocking(addr, CHANNEL_OPTIONS + KEEPALIVE_OPTIONS)
    return cast("grpc.aio.Channel", ThreadChannel(channel))


class ThreadChannel:
    """The part of ``grpc.aio.Channel`` that generated stubs and their callers need. Bound to one event loop."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel: Any = channel
        self._is_closed = False

    def unary_unary(self, *method: object, **how: object) -> Callable[..., Awaitable[object]]:
        """Return a function that makes a call with one request and one response."""
        start = self._channel.unary_unary(*method, **how)

        async def call(request: object, *, timeout: float | None = None) -> object:  # noqa: ASYNC109  grpc.aio's name
            self._check_open()
            loop, rpc = asyncio.get_running_loop(), start.future(request, timeout)
            ended = loop.create_future()
            rpc.add_done_callback(lambda _: _post(loop, _settle, ended, None))
            try:
                await ended
            except asyncio.CancelledError:
                rpc.cancel()
                raise
            self.raise_for_status(rpc)
            return rpc.result()

        return call

    def unary_stream(self, *method: object, **how: object) -> Callable[..., ThreadStream]:
        """Return a function that makes a call with one request and a stream of responses."""
        start = self._channel.unary_stream(*method, **how)

        def call(request: object) -> ThreadStream:
            self._check_open()
            return ThreadStream(self, start(request))

        return call

    def stream_stream(self, *method: object, **how: object) -> Callable[..., ThreadStream]:
        """Return a function that makes a call with a stream of requests and one of responses."""
        start = self._channel.stream_stream(*method, **how)

        def call() -> ThreadStream:
            self._check_open()
            requests: queue.SimpleQueue[object] = queue.SimpleQueue()
            return ThreadStream(self, start(iter(requests.get, None)), requests)

        return call

    def stream_unary(self, *_method: object, **_how: object) -> None:
        """Unused by clients: only registrations are streams of requests with one response."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")

    def raise_for_status(self, rpc: Rpc) -> None:
        """Raise AioRpcError for a call that failed, CancelledError for one that closing the channel cancelled."""
        if self._is_closed and rpc.code() is grpc.StatusCode.CANCELLED:
            raise asyncio.CancelledError
        if rpc.code() is not grpc.StatusCode.OK:
            trailing = grpc.aio.Metadata(*(rpc.trailing_metadata() or ()))
            raise grpc.aio.AioRpcError(rpc.code(), grpc.aio.Metadata(), trailing, rpc.details() or "")

    async def close(self) -> None:
        """End all calls and the connection."""
        self._is_closed = True
        self._channel.close()


class ThreadStream:
    """Responses in sequence, read on the call's own thread, one for each :meth:`read`."""

    def __init__(self, channel: ThreadChannel, rpc: Rpc, requests: queue.SimpleQueue[object] | None = None) -> None:
        self._channel = channel
        self._rpc = rpc
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[asyncio.Future[object] | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None
        self._is_cancelled = False
        self._has_ended = False
        rpc.add_done_callback(lambda _: _post(self._loop, self._end))

    async def read(self) -> object:
        """Wait for the next response; ``grpc.aio.EOF`` after the last one."""
        if not self._has_ended:
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._read_responses, name="pointsman-stream-reader", daemon=True
                )
                self._reader.start()
            pending: asyncio.Future[object] = self._loop.create_future()
            self._wanted.put(pending)
            try:
                response = await pending
            except asyncio.CancelledError:
                self.cancel()
                raise
            if response is not grpc.aio.EOF:
                return response
        if self._is_cancelled:
            raise asyncio.CancelledError
        self._channel.raise_for_status(self._rpc)
        return grpc.aio.EOF

    async def write(self, request: object) -> None:
        """Queue a request; does not wait until it is sent."""
        if self._has_ended or self._requests is None:
            raise asyncio.InvalidStateError("RPC already finished.")
        self._requests.put(request)

    def cancel(self) -> None:
        """Cancel the call; a pending :meth:`read` raises ``CancelledError``."""
        if not self._has_ended:
            self._is_cancelled = True
            self._rpc.cancel()
            self._end()

    def _end(self) -> None:
        """Stop the threads; runs in the event loop, once."""
        if not self._has_ended:
            self._has_ended = True
            self._wanted.put(None)
            if self._requests is not None:
                self._requests.put(None)

    def _read_responses(self) -> None:
        while (pending := self._wanted.get()) is not None:
            try:
                response = next(self._rpc)
            except (StopIteration, grpc.RpcError):
                response = grpc.aio.EOF
            _post(self._loop, _settle, pending, response)


def _settle(waiting: asyncio.Future[Any], result: object) -> None:
    if not waiting.done():
        waiting.set_result(result)


def _post(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *arguments: object) -> None:
    """Call ``what`` in the loop, from any thread; ignored if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what, *arguments)
