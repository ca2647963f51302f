"""One TCP connection to a broker: many requests in flight, responses matched by opaque, in any order.

Requests of one turn of the event loop are written together. One timer serves the deadlines of all requests, and closes
the connection when it was idle. Brokers send requests on the same connection, with their own opaques.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

from pointsman.rocketmq.codes import BrokerResponseCode
from pointsman.rocketmq.frames import ANSWER_FLAG, BadFrame, Command, FrameReader, encode, read_header
from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError, ClientClosedError
from pointsman_client.rocketmq.request_frames import request_frame
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions

IDLE_SECONDS = 100.0
"""A connection without traffic is closed: the broker would do so after 120 s, perhaps while a request is on its way."""

LINGER_SECONDS = 5.0
"""Time to write what is unsent on a connection that is used no longer: a broker that reads nothing would hold it."""

FRAME_SECONDS = 30.0
"""Time to receive one frame. A wrong length would make all later responses a part of the same frame."""

_MAX_OPAQUE = 2**31 - 1
_TIMER_SLACK_SECONDS = 0.01
"""Deadlines this close together are handled by one scan."""

logger = logging.getLogger(__name__)


class Response(NamedTuple):
    """A broker's response to a request."""

    command: Command
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a request of the broker."""

    code: int = 0
    remark: str | None = None
    body: bytes = b""


RequestHandler = Callable[[Command, bytes, Callable[[Reply], None]], None]
"""Called with each request of the broker: header, body, and a function that sends the reply, now or later.

Runs in the event loop and must not block. For a one-way request the reply is dropped.
"""


class ResponseLostError(BrokerTimeoutError):
    """The connection broke between a request and its response."""


class AbandonedError(Exception):
    """A request that may be abandoned had no response at its deadline."""


class _InFlight(NamedTuple):
    outcome: asyncio.Future[Response]
    sent_at: float
    deadline: float
    may_be_abandoned: bool


class BrokerConnection(asyncio.Protocol):
    """Made by ``loop.create_connection``. ``ended`` is done when the connection is closed.

    ``on_end`` is called when it is closed, and before when it became silent, so that it is used no longer.
    """

    def __init__(
        self,
        addr: str,
        options: RocketmqOptions,
        on_request: RequestHandler,
        on_end: Callable[[BrokerConnection], None],
    ) -> None:
        self.version = 0
        """Of the broker, from its last response."""
        self.is_usable = True
        self.is_retired = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._addr = addr
        self._options = options
        self._on_request = on_request
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._in_flight: dict[int, _InFlight] = {}
        self._opaque = 0
        self._last_written = 0
        """Opaque of the last request that was passed to the socket."""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._is_blocked = False
        """Whether the socket does not accept more."""
        self._has_sent_one_way = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._used_at = self._loop.time()
        self._received_at = 0.0
        """0: nothing was received yet."""
        self._frame_began_at = float("inf")
        """When an incomplete frame began to arrive."""
        self._is_closed = False
        self._end_text = "it closed the connection"

    # Requests

    def request(
        self, head: bytes, body: bytes, deadline: float, *, may_be_abandoned: bool = False
    ) -> asyncio.Future[Response]:
        """Send a request. Raises BrokerUnreachableError when too much is in flight, or its deadline has passed.

        The future raises BrokerTimeoutError at the deadline (AbandonedError if it ``may_be_abandoned``),
        ResponseLostError or BrokerUnreachableError when the connection ends, ClientClosedError after :meth:`close`.
        """
        if len(self._in_flight) >= self._options.max_in_flight:
            text = f"{self._options.max_in_flight} requests are in flight (max_in_flight): wait for responses"
            raise BrokerUnreachableError(self._addr, text)
        opaque = self._next_opaque()
        self._write(request_frame(head, opaque, body), deadline)
        outcome: asyncio.Future[Response] = self._loop.create_future()
        self._in_flight[opaque] = _InFlight(outcome, self._used_at, deadline, may_be_abandoned)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return outcome

    def send_one_way(self, head: bytes, body: bytes, deadline: float) -> None:
        """Send a one-way request. Raises BrokerUnreachableError when too much is unsent, or its deadline has passed."""
        self._write(request_frame(head, self._next_opaque(), body), deadline)
        self._has_sent_one_way = True

    def retire(self) -> None:
        """Accept no requests from now on; close when none is in flight."""
        self.is_usable = False
        self.is_retired = True
        self._close_if_done()

    def close(self) -> None:
        """Close when everything is written; requests in flight then raise ClientClosedError."""
        self._is_closed = self.is_retired = True
        self._flush()
        self.is_usable = False
        self._end()

    def abort(self) -> None:
        """Close now; unsent requests are lost."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 if self._opaque < _MAX_OPAQUE else 1
        return self._opaque

    def _write(self, frame: bytes, deadline: float) -> None:
        if self._transport is None or not self.is_usable:
            raise BrokerUnreachableError(self._addr, self._end_text)
        if self._is_blocked or self._unsent_bytes > self._options.max_unsent_bytes:
            text = f"more than {self._options.max_unsent_bytes} bytes are unsent (max_unsent_bytes): the broker is slow"
            raise BrokerUnreachableError(self._addr, text)
        now = self._loop.time()
        if deadline <= now:
            raise BrokerUnreachableError(self._addr, "the timeout ended before the request was sent")
        if not self._unsent:
            self._loop.call_soon(self._flush)
            self._used_at = now
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)

    def _flush(self) -> None:
        if self._transport is None or not self._unsent:
            return
        data = b"".join(self._unsent)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._last_written = self._opaque
        self._transport.write(data)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self.is_usable and not self._unsent and not self._in_flight:
            self._end()

    def _end(self) -> None:
        """Close the socket when everything is written."""
        transport = self._transport
        # After a second close() asyncio's TLS transport cannot be aborted.
        if transport is None or transport.is_closing():
            return
        transport.close()
        if self._options.tls is not None and not self._has_sent_one_way:
            # With TLS asyncio waits for the broker's close_notify, which Java does not send. All requests that matter
            # have been answered, so nothing is unwritten.
            transport.abort()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_SECONDS, transport.abort)

    # Deadlines

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        self._timer_at = float("inf")
        for opaque in [opaque for opaque, each in self._in_flight.items() if each.deadline <= now]:
            self._expire(self._in_flight.pop(opaque))
        self._close_if_done()
        if self._in_flight:
            next_deadline = min(each.deadline for each in self._in_flight.values())
            self._set_timer(max(next_deadline, now + _TIMER_SLACK_SECONDS))
        elif self.is_usable and now >= max(self._used_at, self._received_at) + IDLE_SECONDS:
            self.retire()
        elif self.is_usable:
            self._set_timer(max(self._used_at, self._received_at) + IDLE_SECONDS)

    def _expire(self, late: _InFlight) -> None:
        if late.may_be_abandoned:
            if not late.outcome.done():
                late.outcome.set_exception(AbandonedError())
            return
        if self._received_at < late.sent_at or self._loop.time() > self._frame_began_at + FRAME_SECONDS:
            # Not one byte since, or no end of a frame: later requests need another connection.
            self.is_usable = False
            self._on_end(self)
        if not late.outcome.done():
            text = f"no response within {late.deadline - late.sent_at:.3g} s of the request"
            late.outcome.set_exception(BrokerTimeoutError(self._addr, text))

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._options.max_unsent_bytes)
        self._set_timer(self._loop.time() + IDLE_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Read frames; a response ends its request, if that still waits."""
        self._received_at = self._loop.time()
        reader, in_flight = self._reader, self._in_flight
        try:
            reader.feed(data)
            while (frame := reader.next()) is not None:
                self._frame_began_at = float("inf")
                command = read_header(frame.form, frame.header)
                if not command.flag & ANSWER_FLAG:
                    self._handle(command, frame.body)
                    continue
                self.version = command.version
                request = in_flight.pop(command.opaque, None)
                if request is not None and not request.outcome.done():
                    request.outcome.set_result(Response(command, frame.body))
        except BadFrame as error:
            self._end_text = f"it does not send RocketMQ frames: {error}"
            self.abort()
            return
        if reader.waiting:
            self._frame_began_at = min(self._frame_began_at, self._received_at)
        self._close_if_done()

    def pause_writing(self) -> None:
        """Refuse requests for now."""
        self._is_blocked = True

    def resume_writing(self) -> None:
        """Accept requests again."""
        self._is_blocked = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is in flight."""
        self.is_usable = False
        self._transport = None
        self._unsent.clear()
        if self._timer is not None:
            self._timer.cancel()
        text = self._end_text if exc is None else f"the connection broke: {exc}"
        if not self._received_at:
            missing = "TLS, connect with TLS" if self._options.tls is None else "a client certificate, give one"
            text += f" before any response; if it requires {missing}"
        waiting, self._in_flight = self._in_flight, {}
        for opaque, request in waiting.items():
            if request.outcome.done():
                continue
            if self._is_closed:
                request.outcome.set_exception(ClientClosedError())
            elif opaque > self._last_written:
                request.outcome.set_exception(BrokerUnreachableError(self._addr, text))
            else:
                request.outcome.set_exception(ResponseLostError(self._addr, text))
        if not self.ended.done():
            self.ended.set_result(None)
        self._on_end(self)

    # Requests of the broker

    def _handle(self, command: Command, body: bytes) -> None:
        def reply(answer: Reply) -> None:
            transport = self._transport
            if command.is_one_way or transport is None or transport.is_closing() or self._is_blocked:
                return
            header = Command(code=answer.code, opaque=command.opaque, flag=ANSWER_FLAG, remark=answer.remark)
            transport.write(encode(header, answer.body))

        try:
            self._on_request(command, body, reply)
        except Exception as error:  # a fault of the handler must not end the connection
            logger.exception("request %d of broker %s could not be handled", command.code, self._addr)
            reply(Reply(BrokerResponseCode.SYSTEM_ERROR, str(error)))
