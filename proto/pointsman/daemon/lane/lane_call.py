"""One call on the lane: the request as the handler takes it, and the response as it gives it.

To a handler it is a ``grpc.aio.ServicerContext``, with those of its methods that the handlers of this project use.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

import grpc

from pointsman.daemon.lane.lane_methods import Metadata, Method, status_block
from pointsman.daemon.subscriptions import KeptStream
from pointsman.http2.grpc_framing import CONTENT_TYPE, PREFIX, BadMessage, GrpcStatus, MessageReader, PackedMessage
from pointsman.http2.header_blocks import ReadyHeaders
from pointsman.http2.http2_connection import Http2Connection

HEAD: Final = ReadyHeaders([(b":status", b"200"), (b"content-type", CONTENT_TYPE)])
OK_TAIL: Final = ReadyHeaders([(b"grpc-status", b"0")])
_OK: Final = grpc.StatusCode.OK

OPEN_REQUEST_BYTES = 1_024
"""Memory of a call whose request is not complete, without its content: such calls count, however small they are."""
LINGER_SECONDS = 0.1
"""Longest wait of a refused upload for its end, or of a refused stream for its first message.

A client of grpcio that is writing when the status arrives reports an error itself in place of it: of 300 refused
uploads of 500 kB 17 did without this wait, none with it, and three with grpcio's server.
"""

log = logging.getLogger(__name__)


class CallOwner(Protocol):
    """What a call takes of its connection."""

    http2: Http2Connection
    loop: asyncio.AbstractEventLoop
    auth: Mapping[str, Sequence[bytes]]
    """Of the client's certificate, as ``auth_context`` has it."""
    is_writable: bool
    """Whether the socket accepts more."""

    @property
    def peer(self) -> str:
        """As gRPC has it: ``ipv4:`` or ``ipv6:``, then host:port; empty at the end of the connection."""

    def flush_soon(self, size: int = 0) -> bool:
        """Write the output, with that of other calls, in this turn of the loop; immediately if handlers have added much
        since the last write. ``size``: bytes added. Return whether it was written."""

    def forget(self, stream_id: int) -> None:
        """Remove an ended call."""

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""

    def push_soon(self, call: LaneCall) -> None:
        """Let a call push responses soon, with others."""

    def note_request(self, call: LaneCall, by: int, incomplete: int, *, is_another: bool) -> None:
        """Count bytes of a request that handlers have not taken, or with a negative number those that they took.

        ``incomplete``: those of a message whose end was not received; ``is_another``: it began after the last note.
        """


class LaneCall:
    """State of a call; the context of its handler."""

    __slots__ = (
        "_code",
        "_deadline",
        "_details",
        "_ending",
        "_has_head",
        "_held",
        "_is_over",
        "_kept",
        "_method",
        "_owner",
        "_reader",
        "_requests",
        "_resumed",
        "_task",
        "_trailing",
        "noted",
        "stream_id",
    )

    def __init__(self, owner: CallOwner, stream_id: int, method: Method) -> None:
        self.stream_id = stream_id
        self.noted = 0
        """Bytes of the request that the owner has counted."""
        self._owner = owner
        self._method = method
        self._reader: MessageReader | None = None
        self._held: bytes | None = None
        """The request of a unary one, until its end."""
        self._requests: _Requests | None = None
        self._resumed: asyncio.Future[None] | None = None
        """Of the handler, for what it has written to be sent."""
        self._task: asyncio.Task[None] | None = None
        self._kept: KeptStream | None = None
        """What is sent from now on, without a task."""
        self._deadline: asyncio.TimerHandle | None = None
        self._has_head = False
        self._is_over = False
        self._ending: tuple[bytes | None, bytes] | None = None
        """The response and the trailers that are still to be sent."""
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Metadata = ()

    # --- events of the connection -----------------------------------------------------------------------------

    def begin(self, *, is_end: bool) -> None:
        """Handle the headers of the request."""
        method = self._method
        if method.takes_stream:
            self._requests = _Requests(self)
            self._requests.is_over = is_end
            self._start(self._requests)
        elif is_end:
            self.fail(GrpcStatus.INTERNAL, "the request has no message")

    def receive(self, data: bytes, octets: int, *, is_end: bool) -> None:
        """Handle content of the request."""
        http2, method = self._owner.http2, self._method
        if method.inline is not None and is_end and len(data) >= PREFIX.size and self._reader is None:
            # The hot path: a request in one DATA frame, and a method that has its response ready.
            flag, length = PREFIX.unpack_from(data)
            if not flag and length == len(data) - PREFIX.size and self._held is None:
                http2.acknowledge(self.stream_id, octets)
                self._serve(data[PREFIX.size :])
                return
        messages = () if self._is_over else self._read(data, is_end=is_end)
        if self._requests is not None:
            is_taken = self._requests.add(messages, octets, is_end=is_end)
            if self._ending is not None and (is_end or method.gives_stream):
                self._send_end()
            elif not is_taken or self.noted or (self._reader is not None and self._reader.waiting):
                self.note(is_another=bool(messages))
            return
        http2.acknowledge(self.stream_id, octets)
        for message in messages:
            if self._held is not None:
                self.fail(GrpcStatus.INTERNAL, "the request has more than one message")
                return
            self._held = message
        if not is_end:
            self.note()
        elif not self._is_over:
            held, self._held = self._held, None
            if held is None:
                self.fail(GrpcStatus.INTERNAL, "the request has no message")
            else:
                self.note()
                self._serve(held)

    def note(self, *, is_another: bool = False) -> None:
        """Report to the connection what is kept of the request until the handler takes it."""
        incomplete = self._reader.waiting if self._reader is not None else 0
        if self._requests is not None:
            kept = incomplete + self._requests.kept
        elif self._owner.http2.is_request_open(self.stream_id):
            kept = incomplete = OPEN_REQUEST_BYTES + incomplete + len(self._held or b"")
        else:
            kept = incomplete = 0
        if self._is_over:
            kept = incomplete = 0
        if kept or self.noted:
            by, self.noted = kept - self.noted, kept
            self._owner.note_request(self, by, incomplete, is_another=is_another)

    def _read(self, data: bytes, *, is_end: bool) -> Sequence[bytes]:
        """Return the messages that are complete now; none if the call failed."""
        reader = self._reader
        if reader is None:
            if len(data) >= PREFIX.size:
                # The common case: one DATA frame, one message.
                flag, length = PREFIX.unpack_from(data)
                if not flag and length == len(data) - PREFIX.size:
                    return (data[PREFIX.size :],)
            elif not data:
                return ()
            reader = self._reader = MessageReader(compression=self._method.compression)
        try:
            messages = reader.feed(data)
        except BadMessage as bad:
            self.fail(bad.status, str(bad))
            return ()
        if is_end and reader.waiting:
            self.fail(GrpcStatus.INTERNAL, "the request ends within a message")
            return ()
        return messages

    def _unpacked(self, message: bytes) -> bytes | None:
        """Return the content of a compressed message; None: it has none, and the call failed."""
        assert self._reader is not None  # noqa: S101  # what is compressed was read by it
        try:
            return self._reader.unpacked(message)
        except BadMessage as bad:
            self.fail(bad.status, str(bad))
            return None

    def _serve(self, message: bytes) -> None:
        """Serve a complete unary request; without a task, where the response is ready."""
        method = self._method
        if type(message) is PackedMessage:
            content = self._unpacked(message)
            if content is None:
                return
            message = content
        if method.inline is None:
            try:
                request = message if method.read is None else method.read(message)
            except Exception:  # noqa: BLE001  # of one call: a deserializer may raise anything
                self.fail(GrpcStatus.INTERNAL, "Exception deserializing request!")
                return
            self._start(request)
            return
        response = method.inline(message, self)
        if isinstance(response, bytes) and self._code is None:
            self._is_over = True
            self._owner.http2.respond(self.stream_id, HEAD, PREFIX.pack(0, len(response)), response, OK_TAIL)
            self._owner.forget(self.stream_id)
        elif isinstance(response, bytes):
            self._finish(response)
        else:
            self._run_in_task(self._run(response))

    def resume(self) -> None:
        """Continue to write: a window has opened, or the socket accepts more."""
        if self._kept is not None:
            self._owner.push_soon(self)
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def cancel(self) -> None:
        """End without a status: the client cannot receive one."""
        self._is_over = True
        self._stop()

    def _expire(self) -> None:
        self.fail(GrpcStatus.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def fail(self, status: GrpcStatus, text: str, metadata: Metadata = ()) -> None:
        """End with a status, and cancel the handler."""
        self._stop()
        if not self._is_over:
            self._is_over = True
            self._end(None, status_block(status, text, metadata, alone=not self._has_head))

    def _end(self, response: bytes | None, trailers: bytes) -> None:
        """End the response; that of a stream when its client has sent something, that of an upload when it has sent all
        of it, or after LINGER_SECONDS."""
        self._ending = (response, trailers)
        requests = self._requests
        self._reader = None
        if requests is not None:
            requests.discard()
            self.note()
        if requests is None or requests.is_over or (self._method.gives_stream and requests.has_begun):
            self._send_end()
        else:
            self._deadline = self._owner.loop.call_later(LINGER_SECONDS, self._send_end)

    def _send_end(self) -> None:
        assert self._ending is not None  # noqa: S101  # set by the caller
        (response, trailers), self._ending = self._ending, None
        http2, stream_id = self._owner.http2, self.stream_id
        if response is not None:
            http2.send_headers(stream_id, HEAD.block)
            http2.send_data(stream_id, PREFIX.pack(0, len(response)), response)
        http2.send_headers(stream_id, trailers, is_end=True)
        self._stop()
        self._owner.forget(stream_id)
        self._owner.flush_soon()

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.abandon()
        task = self._task
        if task is not None and not task.done() and task is not asyncio.current_task():
            # After its first step, which is due before: otherwise a coroutine would be left that was never awaited.
            self._owner.loop.call_soon(task.cancel)

    # --- the handler ------------------------------------------------------------------------------------------

    def _start(self, request: Any) -> None:  # noqa: ANN401  # bytes, a message or an iterator of them
        self._run_in_task(self._run(self._method.behaviour(request, self)))

    def _run_in_task(self, run: Any) -> None:  # noqa: ANN401  # a coroutine
        if self._method.timeout is not None:
            self._deadline = self._owner.loop.call_later(self._method.timeout, self._expire)
        self._task = self._owner.loop.create_task(run)
        self._owner.keep(self._task)

    async def _run(self, behaviour: Any) -> None:  # noqa: ANN401  # an awaitable, or an asynchronous generator
        """Await a handler, and respond."""
        try:
            response = None
            if inspect.isasyncgen(behaviour):
                async for each in behaviour:
                    await self.write(each)
            else:
                response = await behaviour
                if self._kept is not None:
                    self._task = self._held = self._resumed = None
                    return
            if response is not None and self._method.write is not None:
                response = self._method.write(response)
            self._finish(response)
        except grpc.aio.AbortError:
            pass  # the status is sent
        except asyncio.CancelledError:
            if not self._is_over:
                self.fail(GrpcStatus.CANCELLED, "the server cancelled the call")
            raise
        except Exception as error:  # of one call: the connection serves others
            log.exception("error in a handler")
            self.fail(GrpcStatus.UNKNOWN, f"Unexpected {type(error)}: {error}")

    def _finish(self, response: bytes | None) -> None:
        """Send what the handler returned, or the status that it set."""
        if self._is_over:
            return
        if self._code is not None and self._code is not _OK:
            self.fail(GrpcStatus(self._code.value[0]), self._details, self._trailing)
            return
        self._stop()
        self._is_over = True
        if self._method.gives_stream:
            response = None
        alone = response is None and not self._has_head
        self._end(response, status_block(GrpcStatus.OK, "", self._trailing, alone=alone))

    # --- a stream without a task (TasklessContext) ---------------------------------------------------------------

    def keep_open(self, stream: KeptStream) -> None:
        """Keep the call open when its handler has returned."""
        self._kept = stream

    def wake(self) -> None:
        """Ask the stream for responses soon."""
        self._owner.push_soon(self)

    def push(self, room: int) -> int:
        """Send responses of the stream, as far as the client accepts them, and ``room`` bytes; return what is left."""
        kept, http2, stream_id = self._kept, self._owner.http2, self.stream_id
        if kept is None or room <= 0 or http2.unsent_of(stream_id):
            return room
        if not self._has_head:
            http2.send_headers(stream_id, HEAD.block)
            self._has_head = True
        next_response, send_message, pack = kept.subscription.next_response, http2.send_message, PREFIX.pack
        try:
            while room > 0 and (response := next_response()) is not None:
                size = len(response)
                room -= size
                if not send_message(stream_id, pack(0, size), response):
                    break
        except Exception as error:  # noqa: BLE001  # every error becomes a status
            kept.end(error)
        return room

    def end_kept(self, status: Any) -> None:  # noqa: ANN401  # grpc.Status, which has no stubs
        """End the call with a status."""
        self._kept = None
        self.fail(GrpcStatus(status.code.value[0]), status.details, tuple(status.trailing_metadata))

    # --- for its requests -------------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._owner.loop

    def acknowledge(self, octets: int) -> None:
        """Let the client send as much again."""
        self._owner.http2.acknowledge(self.stream_id, octets)

    def take(self, message: bytes, octets: int) -> Any:  # noqa: ANN401  # bytes, or a message
        """Return a received message as the handler takes it."""
        self.acknowledge(octets)
        self._owner.flush_soon()
        if self.noted:
            self.note()
        if type(message) is PackedMessage:
            content = self._unpacked(message)
            if content is None:
                raise asyncio.CancelledError
            message = content
        return message if self._method.read is None else self._method.read(message)

    # --- grpc.aio.ServicerContext -----------------------------------------------------------------------------

    async def write(self, response: Any) -> None:  # noqa: ANN401  # bytes, or a message
        """Send one response of a stream; return when the client's window and the socket accept more."""
        if self._is_over:
            raise asyncio.CancelledError
        method, http2, stream_id = self._method, self._owner.http2, self.stream_id
        message = response if method.write is None else method.write(response)
        if not self._has_head:
            http2.send_headers(stream_id, HEAD.block)
            self._has_head = True
        http2.send_data(stream_id, PREFIX.pack(0, len(message)), message)
        if self._owner.flush_soon(len(message)):
            await asyncio.sleep(0)  # a handler that never waits would keep the loop from the others
        while http2.unsent_of(stream_id) or not self._owner.is_writable:
            self._resumed = self._owner.loop.create_future()
            await self._resumed

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with a status."""
        self.fail(GrpcStatus(code.value[0]), details, tuple(trailing_metadata))
        raise grpc.aio.AbortError("the call was aborted")

    async def abort_with_status(self, status: Any) -> NoReturn:  # noqa: ANN401  # grpc.Status, which has no stubs
        """End the call with a status."""
        await self.abort(status.code, status.details, status.trailing_metadata)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status for the end of the call."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set its text."""
        self._details = details

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Set the metadata beside it."""
        self._trailing = tuple(metadata)

    def invocation_metadata(self) -> Metadata:
        """Return the metadata of the client."""
        return self._method.invocation_metadata()

    def peer(self) -> str:
        """Return the address of the client."""
        return self._owner.peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return what is known of the client's certificate."""
        return self._owner.auth


class _Requests:
    """The messages of a streaming request, as the handler takes them.

    The client may send as much again only when the handler has taken a message; what is only part of one is not held
    back, or a message larger than the window would never be complete.
    """

    __slots__ = ("_call", "_waiter", "_waiting", "has_begun", "is_over", "kept")

    def __init__(self, call: LaneCall) -> None:
        self.has_begun = False
        self.is_over = False
        self.kept = 0
        """Bytes of messages that the handler has not taken."""
        self._call = call
        self._waiting: deque[tuple[bytes, int]] = deque()
        """Messages, each with the octets of its last DATA."""
        self._waiter: asyncio.Future[None] | None = None

    def add(self, messages: Sequence[bytes], octets: int, *, is_end: bool) -> bool:
        """Add what ``octets`` of DATA have completed. Return whether the handler takes all of it in the next turn."""
        for message in messages:
            own = min(octets, len(message) + PREFIX.size)
            octets -= own
            self._waiting.append((message, own))
            self.kept += len(message)
        if octets:
            self._call.acknowledge(octets)
        self.has_begun = True
        self.is_over = self.is_over or is_end
        if self._waiter is not None and not self._waiter.done() and (messages or is_end):
            self._waiter.set_result(None)
            return len(self._waiting) <= 1
        return not self._waiting

    def discard(self) -> None:
        """Take all messages: the handler has ended."""
        while self._waiting:
            self._call.acknowledge(self._waiting.popleft()[1])
        self.kept = 0

    def __aiter__(self) -> _Requests:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401  # bytes, or a message
        while not self._waiting:
            if self.is_over:
                raise StopAsyncIteration
            self._waiter = self._call.loop.create_future()
            await self._waiter
        message, octets = self._waiting.popleft()
        self.kept -= len(message)
        return self._call.take(message, octets)
