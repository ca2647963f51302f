"""One connection to a Redis server with pipelined requests of many callers.

Replies arrive in the order of the requests. The reply to a cancelled request is read and dropped, without effect on
other callers. After a timeout the link accepts no further requests, and closes when no caller is waiting. One timer
serves the deadlines of all requests. A command that was written to the socket may have been executed, even if the
connection broke.

Built on redis-py's ``Connection``, not on its client, which waits for each response before it sends the next request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any

from redis.exceptions import RedisError

from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError
from pointsman_client.redis_streams.bounded_replies import (
    BYTES_PER_REPLY,
    SHORT_REPLY_BYTES,
    BoundedConnection,
    BoundedTlsConnection,
)
from pointsman_client.redis_streams.refusal import ERROR_REPLIES

CONNECTION_ERRORS = (RedisError, OSError, EOFError, ValueError, MemoryError)
"""Errors of a connection; ValueError: the server does not use RESP, or a reply is too long; MemoryError: a reply
announces more elements than fit into the memory."""
_TIMER_SLACK_SECONDS = 0.01
"""Deadlines this close together are handled by one scan."""


class ReplyLostError(BrokerTimeoutError):
    """The connection broke between a request and its reply."""


class Link:
    """An open connection. Error replies of the server are returned as values."""

    def __init__(
        self, addr: str, connection: BoundedConnection | BoundedTlsConnection, *, max_reply_bytes: int
    ) -> None:
        self.addr = addr
        self._max_reply_bytes = max_reply_bytes
        self.is_usable = True
        self.greeting: Any = None
        """Reply to the first request of the link's owner."""
        self._connection = connection
        self._unwritten: list[_Exchange] = []
        self._to_write = asyncio.Event()
        self._unreplied: deque[_Exchange] = deque()
        self._waiting = 0
        """Number of waiting callers."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_over = False
        self.ending: asyncio.Task[None] = asyncio.create_task(self._run(), name=f"pointsman-redis-{addr}")

    async def execute(self, request: bytes, replies: int, *, timeout_seconds: float) -> list[Any]:
        """Send one or more commands and return their replies.

        Raises BrokerTimeoutError, ReplyLostError, and BrokerUnreachableError if nothing was written.
        """
        if self._is_over:
            raise BrokerUnreachableError(self.addr, "the connection was closed")
        exchange = _Exchange(request, replies, timeout_seconds, self._loop)
        self._unwritten.append(exchange)
        self._to_write.set()
        if exchange.ends_at < self._timer_at:
            self._set_timer(exchange.ends_at)
        self._waiting += 1
        try:
            return await exchange.outcome
        finally:
            self._waiting -= 1
            self._close_when_idle()

    def retire(self) -> None:
        """Accept no further requests; close when no caller is waiting."""
        self.is_usable = False
        self._close_when_idle()

    def close(self) -> None:
        """Cancel all requests; ``ending`` is done when the connection is closed."""
        self.is_usable = False
        self.ending.cancel()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._on_timer), at

    def _on_timer(self) -> None:
        now, self._timer_at = self._loop.time(), inf
        waiting = (*self._unreplied, *self._unwritten)
        for late in [exchange for exchange in waiting if exchange.ends_at <= now]:
            # Also where its caller had a shorter timeout: a connection without a reply must be retired.
            self.is_usable = False
            if not late.outcome.done():
                late.outcome.set_exception(late.timeout(self.addr))
        self._close_when_idle()
        if next_end := min((exchange.ends_at for exchange in waiting if exchange.ends_at > now), default=0.0):
            self._set_timer(max(next_end, now + _TIMER_SLACK_SECONDS))

    def _close_when_idle(self) -> None:
        if not self.is_usable and not self._waiting:
            self.ending.cancel()

    async def _run(self) -> None:
        writing = asyncio.create_task(self._write(), name=f"pointsman-redis-write-{self.addr}")
        why = "the connection was closed"
        try:
            await self._read()
        except CONNECTION_ERRORS as error:
            why = f"the connection broke: {str(error) or type(error).__name__}"
        finally:
            self.is_usable, self._is_over = False, True
            if self._timer is not None:
                self._timer.cancel()
            writing.cancel()
            self._break_off(why)
            await self._connection.disconnect(nowait=True)

    async def _read(self) -> None:
        read, stream = self._connection.read_response, self._connection.replies
        stream.limit = self._limit
        stream.has_messages = self._max_reply_bytes > SHORT_REPLY_BYTES
        while True:
            stream.end_reply()
            try:
                reply = await read(disable_decoding=True, disconnect_on_error=False)
            except ERROR_REPLIES as error:
                reply = error
            if not self._unreplied:
                raise EOFError("received a reply without a request")
            exchange = self._unreplied[0]
            exchange.received.append(reply)
            if len(exchange.received) == exchange.replies:
                self._unreplied.popleft()
                if not exchange.outcome.done():
                    exchange.outcome.set_result(exchange.received)

    def _limit(self) -> int:
        replies = self._unreplied[0].replies if self._unreplied else 1
        return self._max_reply_bytes + replies * BYTES_PER_REPLY

    async def _write(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            exchanges = [exchange for exchange in self._unwritten if not exchange.outcome.done()]
            self._unwritten.clear()
            # redis-py would reconnect, and the replies would arrive on a connection that has no reader.
            if not exchanges or not self._connection.is_connected:
                self._unwritten = exchanges
                continue
            for exchange in exchanges:
                exchange.is_written = True
            self._unreplied.extend(exchanges)
            try:
                await self._connection.send_packed_command([e.request for e in exchanges], check_health=False)
            except CONNECTION_ERRORS:
                return  # the reader gets the error too, and passes it to all callers

    def _break_off(self, why: str) -> None:
        for exchange in (*self._unreplied, *self._unwritten):
            if not exchange.outcome.done():
                kind = ReplyLostError if exchange.is_written else BrokerUnreachableError
                exchange.outcome.set_exception(kind(self.addr, why))
        self._unreplied.clear()
        self._unwritten.clear()


class _Exchange:
    __slots__ = ("ends_at", "is_written", "outcome", "received", "replies", "request", "timeout_seconds")

    def __init__(self, request: bytes, replies: int, timeout_seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.replies = replies
        self.timeout_seconds = timeout_seconds
        self.ends_at = loop.time() + timeout_seconds
        self.received: list[Any] = []
        self.is_written = False
        self.outcome: asyncio.Future[list[Any]] = loop.create_future()

    def timeout(self, addr: str) -> BrokerTimeoutError | BrokerUnreachableError:
        """Return the error at its deadline."""
        if self.is_written:
            return BrokerTimeoutError(addr, f"no response within {self.timeout_seconds:g} s")
        text = f"the request could not be written within {self.timeout_seconds:g} s"
        return BrokerUnreachableError(addr, text)


def first_error(replies: Sequence[Any]) -> Exception | None:
    """Return the first error among the replies, or None."""
    return next((reply for reply in replies if isinstance(reply, Exception)), None)
