"""One connection to a Redis server, on which requests of many callers follow each other without waiting (pipelining).

Answers come in the order of the requests, so an answer whose caller has gone is read and dropped: a cancelled call
disturbs nobody. A request that timed out puts its link out of use: it takes no more requests, and closes when nobody
waits on it any longer. What was handed to the socket may have been done, whatever became of the connection.

Built on redis-py's ``Connection``, not on its client, which waits for each response before it sends the next request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Connection
from redis.exceptions import RedisError

from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError
from pointsman_client.transports.redis_streams.refusal import ANSWERS

FAULTS = (RedisError, OSError, EOFError, ValueError)
"""How a connection fails; ValueError: what answers does not speak RESP."""


class AnswerLostError(BrokerTimeoutError):
    """The connection broke between a request and its answer."""


class Link:
    """An open connection. Errors that the server answers are given as values, for the caller to judge."""

    def __init__(self, addr: str, connection: Connection) -> None:
        self.addr = addr
        self.is_usable = True
        self.greeting: Any = None
        """What the server answered to the request that its owner makes first."""
        self._connection = connection
        self._unwritten: list[_Exchange] = []
        self._to_write = asyncio.Event()
        self._unanswered: deque[_Exchange] = deque()
        self._waiting = 0
        """Callers that wait for an answer."""
        self._is_over = False
        self.ending: asyncio.Task[None] = asyncio.create_task(self._run(), name=f"pointsman-redis-{addr}")

    async def ask(self, request: bytes, answers: int, *, timeout_seconds: float) -> list[Any]:
        """Send one or more commands and return the answer to each.

        Raises BrokerTimeoutError; AnswerLostError; BrokerUnreachableError if nothing was written.
        """
        if self._is_over:
            raise BrokerUnreachableError(self.addr, "the connection was closed")
        ends_at = asyncio.get_running_loop().time() + timeout_seconds
        exchange = _Exchange(request, answers)
        self._unwritten.append(exchange)
        self._to_write.set()
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_seconds):
                return await exchange.outcome
        except TimeoutError:
            self.is_usable = False
            if exchange.is_written:
                raise BrokerTimeoutError(self.addr, f"no answer within {timeout_seconds:g} s") from None
            text = f"the request could not be written within {timeout_seconds:g} s"
            raise BrokerUnreachableError(self.addr, text) from None
        except asyncio.CancelledError:
            # By a caller whose own deadline came first, perhaps: a connection that stays silent must go all the same.
            asyncio.get_running_loop().call_at(ends_at, self._retire_if_silent, exchange)
            raise
        finally:
            self._waiting -= 1
            self._close_when_idle()

    def retire(self) -> None:
        """Take no more requests; close when nobody waits for an answer any longer."""
        self.is_usable = False
        self._close_when_idle()

    def close(self) -> None:
        """Break off everything; ``ending`` is done when the connection is closed."""
        self.is_usable = False
        self.ending.cancel()

    def _retire_if_silent(self, exchange: _Exchange) -> None:
        if exchange in self._unanswered or exchange in self._unwritten:
            self.retire()

    def _close_when_idle(self) -> None:
        if not self.is_usable and not self._waiting:
            self.ending.cancel()

    async def _run(self) -> None:
        writing = asyncio.create_task(self._write(), name=f"pointsman-redis-write-{self.addr}")
        why = "the connection was closed"
        try:
            await self._read()
        except FAULTS as error:
            why = f"the connection broke: {str(error) or type(error).__name__}"
        finally:
            self.is_usable, self._is_over = False, True
            writing.cancel()
            self._break_off(why)
            await self._connection.disconnect(nowait=True)

    async def _read(self) -> None:
        read = self._connection.read_response
        while True:
            try:
                answer = await read(disable_decoding=True, disconnect_on_error=False)
            except ANSWERS as error:
                answer = error
            if not self._unanswered:
                raise EOFError("an answer without a request")
            exchange = self._unanswered[0]
            exchange.received.append(answer)
            if len(exchange.received) == exchange.answers:
                self._unanswered.popleft()
                if not exchange.outcome.done():
                    exchange.outcome.set_result(exchange.received)

    async def _write(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            exchanges = [exchange for exchange in self._unwritten if not exchange.outcome.done()]
            self._unwritten.clear()
            # redis-py would open a lost connection anew, where nobody expects these answers.
            if not exchanges or not self._connection.is_connected:
                self._unwritten = exchanges
                continue
            for exchange in exchanges:
                exchange.is_written = True
            self._unanswered.extend(exchanges)
            try:
                await self._connection.send_packed_command([e.request for e in exchanges], check_health=False)
            except FAULTS:
                return  # the reader meets it as well, and tells everybody

    def _break_off(self, why: str) -> None:
        for exchange in (*self._unanswered, *self._unwritten):
            if not exchange.outcome.done():
                kind = AnswerLostError if exchange.is_written else BrokerUnreachableError
                exchange.outcome.set_exception(kind(self.addr, why))
        self._unanswered.clear()
        self._unwritten.clear()


class _Exchange:
    __slots__ = ("answers", "is_written", "outcome", "received", "request")

    def __init__(self, request: bytes, answers: int) -> None:
        self.request = request
        self.answers = answers
        self.received: list[Any] = []
        self.is_written = False
        self.outcome: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()


def first_error(answers: Sequence[Any]) -> Exception | None:
    """The first of the answers that is an error."""
    return next((answer for answer in answers if isinstance(answer, Exception)), None)
