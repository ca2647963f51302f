"""Calls of a :mod:`blocking_channel`: gRPC's threads do the work, an event loop waits for it.

What a call raises, and when, is what ``grpc.aio`` raises: ``AioRpcError`` with the status that ended it, and
``CancelledError`` when it was cancelled at this end.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

LOCALLY_CANCELLED = "Locally cancelled by application!"


class SyncCall(Protocol):
    """What gRPC's synchronous calls have that is used here: ``grpc.Call``, ``grpc.Future`` and an iterator in one."""

    def add_done_callback(self, fn: Callable[[SyncCall], None], /) -> None: ...

    def cancel(self) -> object: ...

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...

    def time_remaining(self) -> float | None: ...

    def result(self) -> object: ...

    def __next__(self) -> object: ...


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a call ended."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: grpc.aio.Metadata
    response: object = None

    def to_error(self) -> grpc.aio.AioRpcError:
        return grpc.aio.AioRpcError(self.code, grpc.aio.Metadata(), self.trailing_metadata, self.details)


class BlockingCall(grpc.aio.Call):
    """What all kinds of calls have in common. Belongs to the event loop that made it."""

    _has_one_response = False

    def __init__(self, start: Callable[[], SyncCall]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[_Ending] = self._loop.create_future()
        self._is_cancelled = False
        self._sync_call = start()
        self._sync_call.add_done_callback(self._tell_end)

    def _tell_end(self, done: SyncCall) -> None:
        """Runs on gRPC's thread: nothing here may wait."""
        code = done.code()
        metadata = grpc.aio.Metadata(*((key, value) for key, value in done.trailing_metadata() or ()))
        response = done.result() if code is grpc.StatusCode.OK and self._has_one_response else None
        ending = _Ending(code, done.details() or "", metadata, response)
        post(self._loop, lambda: self._end(ending))

    def _end(self, ending: _Ending) -> None:
        if not self._ended.done():
            self._ended.set_result(ending)

    async def _ending(self) -> _Ending:
        try:
            # The shield: cancelling who waits must not cancel what others wait for.
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def _raise_for_status(self) -> None:
        ending = await self._ending()
        if self._is_cancelled:
            raise asyncio.CancelledError
        if ending.code is not grpc.StatusCode.OK:
            raise ending.to_error()

    def cancelled(self) -> bool:
        """Whether it was cancelled before it ended."""
        return self._is_cancelled

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.done()

    def time_remaining(self) -> float | None:
        """Seconds to the deadline; None without one."""
        return self._sync_call.time_remaining()

    def cancel(self) -> bool:
        """End it at this side; whoever waits for it gets ``CancelledError``."""
        if self._ended.done():
            return False
        self._is_cancelled = True
        self._sync_call.cancel()
        self._end(_Ending(grpc.StatusCode.CANCELLED, LOCALLY_CANCELLED, grpc.aio.Metadata()))
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback(call)`` in the event loop once it has ended."""
        self._ended.add_done_callback(lambda _: callback(self))

    async def code(self) -> grpc.StatusCode:
        """Wait for the end and say how it was."""
        return (await self._ending()).code

    async def details(self) -> str:
        """Wait for the end and give the server's text."""
        return (await self._ending()).details

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Wait for the end and give what came with it."""
        return (await self._ending()).trailing_metadata

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Wait for the server's first word, or the end."""
        came: asyncio.Future[grpc.aio.Metadata] = self._loop.create_future()

        def wait() -> None:
            metadata = grpc.aio.Metadata(*((key, value) for key, value in self._sync_call.initial_metadata() or ()))
            post(self._loop, lambda: settle(came, metadata))

        threading.Thread(target=wait, name="pointsman-initial-metadata", daemon=True).start()
        return await came

    async def wait_for_connection(self) -> None:
        """Wait for the server's first word. Raises as the call itself when it ended instead."""
        await self.initial_metadata()
        if self.done():
            await self._raise_for_status()


class BlockingUnaryCall(BlockingCall, grpc.aio.UnaryUnaryCall[RequestT, ResponseT]):
    """One request, one response."""

    _has_one_response = True

    def __await__(self) -> Generator[None, None, ResponseT]:
        return cast("Generator[None, None, ResponseT]", self._response().__await__())

    async def _response(self) -> ResponseT:
        await self._raise_for_status()
        return cast("ResponseT", self._ended.result().response)


class BlockingStreamCall(BlockingCall, grpc.aio.UnaryStreamCall[RequestT, ResponseT]):
    """Responses one after the other, read by a thread of the call's own, never further ahead than it is asked."""

    def __init__(self, start: Callable[[], SyncCall]) -> None:
        self._wanted: queue.SimpleQueue[asyncio.Future[object] | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None
        super().__init__(start)

    def _end(self, ending: _Ending) -> None:
        super()._end(ending)
        self._wanted.put(None)

    def __aiter__(self) -> AsyncIterator[ResponseT]:
        return self._responses()

    async def _responses(self) -> AsyncIterator[ResponseT]:
        while (response := await self.read()) is not grpc.aio.EOF:
            yield cast("ResponseT", response)

    async def read(self) -> object | ResponseT:
        """Wait for the next response; ``grpc.aio.EOF`` after the last one."""
        if not self._ended.done():
            response = await self._next()
            if response is not grpc.aio.EOF:
                return response
        await self._raise_for_status()
        return grpc.aio.EOF

    async def _next(self) -> object:
        if self._reader is None:
            self._reader = threading.Thread(target=self._read_on, name="pointsman-stream-reader", daemon=True)
            self._reader.start()
        came: asyncio.Future[object] = self._loop.create_future()
        self._wanted.put(came)
        try:
            return await came
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _read_on(self) -> None:
        while (came := self._wanted.get()) is not None:
            try:
                response = self._sync_call.__next__()
            except (StopIteration, grpc.RpcError):
                response = grpc.aio.EOF
            post(self._loop, lambda came=came, response=response: settle(came, response))  # type: ignore[misc]  # bound now


class _Requests(Generic[RequestT]):
    """The requests of a stream as gRPC's thread takes them: it asks for the next when the last one is on its way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: queue.SimpleQueue[tuple[RequestT, asyncio.Future[object]] | None] = queue.SimpleQueue()
        self._sent: asyncio.Future[object] | None = None

    def put(self, request: RequestT) -> asyncio.Future[object]:
        """Hand over a request; the future is done once it was sent."""
        sent: asyncio.Future[object] = self._loop.create_future()
        self._waiting.put((request, sent))
        return sent

    def end(self) -> None:
        """Let the thread that takes them go."""
        self._waiting.put(None)

    def __iter__(self) -> Iterator[RequestT]:
        return self

    def __next__(self) -> RequestT:
        if (sent := self._sent) is not None:
            self._sent = None
            post(self._loop, lambda: settle(sent, None))
        item = self._waiting.get()
        if item is None:
            raise StopIteration
        request, self._sent = item
        return request


class BlockingStreamStreamCall(BlockingStreamCall[RequestT, ResponseT], grpc.aio.StreamStreamCall[RequestT, ResponseT]):
    """Requests and responses, each side at its own pace."""

    def __init__(self, start: Callable[[Iterator[RequestT]], SyncCall]) -> None:
        self._requests: _Requests[RequestT] = _Requests(asyncio.get_running_loop())
        self._is_half_closed = False
        super().__init__(lambda: start(iter(self._requests)))

    def _end(self, ending: _Ending) -> None:
        super()._end(ending)
        self._requests.end()

    async def write(self, request: RequestT) -> None:
        """Send a request and wait until it is on its way."""
        if self._ended.done():
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._is_half_closed:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        sent = self._requests.put(request)
        try:
            waited_for: set[asyncio.Future[Any]] = {sent, self._ended}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if not sent.done():
            await self._raise_for_status()

    async def done_writing(self) -> None:
        """Say that there are no more requests."""
        if not self._is_half_closed:
            self._is_half_closed = True
            self._requests.end()


def settle(waiting: asyncio.Future[Any], result: object) -> None:
    """Give a result to a future that may have been cancelled."""
    if not waiting.done():
        waiting.set_result(result)


def post(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """Let the loop do it, from any thread; a loop that is closed has nobody waiting."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what)
