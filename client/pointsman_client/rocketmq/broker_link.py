"""The link to one broker: a connection that is opened when it is first needed, and again after it broke."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping

from pointsman.names import split_addr
from pointsman.rocketmq.codes import BrokerResponseCode
from pointsman.rocketmq.frames import Command
from pointsman.wire.channel_opener import explain_connection_failure
from pointsman_client.aio import deadline_in
from pointsman_client.errors import BrokerUnreachableError, ClientClosedError
from pointsman_client.rocketmq.broker_connection import (
    BrokerConnection,
    Reply,
    RequestHandler,
    Response,
    ResponseLostError,
)
from pointsman_client.rocketmq.request_frames import request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions

CLOSE_SECONDS = 1.8
"""Time to write what is unsent when a link is closed; then the connection is aborted."""
ABORT_SECONDS = 0.1


class Link:
    """One connection at a time to the broker at ``addr``. Brokers count each link as a separate client."""

    def __init__(
        self,
        addr: str,
        options: RocketmqOptions,
        *,
        on_request: RequestHandler | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """``on_request``: without it the reply to every request of the broker is REQUEST_CODE_NOT_SUPPORTED (3).

        ``on_lost``: called when an open connection ended without :meth:`close` or :meth:`retire`.
        """
        self.addr = addr
        self._options = options
        self._on_request = on_request or _not_supported
        self._on_lost = on_lost
        self._connection: BrokerConnection | None = None
        self._open_connections: set[BrokerConnection] = set()
        """The current one, and retired ones that still have requests in flight."""
        self._opening: asyncio.Task[BrokerConnection] | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Of the callers that wait until it is open, in their order."""
        self._version = 0
        self._callers = 0
        self._closed = False

    @property
    def version(self) -> int:
        """Of the broker, from its last response (479 is 5.3.3); 0 before the first one."""
        if self._connection is not None and self._connection.version:
            self._version = self._connection.version
        return self._version

    @property
    def is_idle(self) -> bool:
        """Whether it has no connection and no request."""
        return not self._open_connections and self._opening is None and not self._callers

    async def request(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, timeout_seconds: float, is_read: bool = False
    ) -> Response:
        """Send a request and return its response, regardless of its code.

        ``is_read``: it changes nothing, so it is sent again when a connection that was open before breaks.
        Raises :class:`BrokerUnreachableError` when nothing was written (or ``is_read``), :class:`BrokerTimeoutError`
        when no response came, :class:`ClientClosedError`.
        """
        deadline = deadline_in(timeout_seconds)
        return await self.exchange(code, ext, body, deadline, is_read=is_read)

    async def exchange(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        deadline: float,
        *,
        is_read: bool,
        may_be_abandoned: bool = False,
    ) -> Response:
        """:meth:`request` until a time of the event loop. Raises AbandonedError too, where that is allowed."""
        account = self._options.access_key
        head = request_head(code, ext if account is None else account.signed(ext, body))
        self._callers += 1
        try:
            while True:
                open_before = self.connection
                connection = open_before or await self.connect(deadline)
                try:
                    return await connection.request(head, body, deadline, may_be_abandoned=may_be_abandoned)
                except ResponseLostError as error:
                    if not is_read:
                        raise
                    if open_before is None:
                        raise BrokerUnreachableError(self.addr, error.message) from error
        finally:
            self._callers -= 1

    def retire(self) -> None:
        """Close the connection when all its requests have ended; the next request opens another."""
        if self._connection is not None:
            self._version = self.version
            connection, self._connection = self._connection, None
            connection.retire()

    async def close(self) -> None:
        """Write what is unsent, then end the connection and all calls, for good."""
        self._closed = True
        self._connection = None
        ending: list[asyncio.Future[None] | asyncio.Task[BrokerConnection]] = []
        if self._opening is not None:
            self._opening.cancel()
            ending.append(self._opening)
        for connection in self._open_connections:
            connection.close()
            ending.append(connection.ended)
        if not ending:
            return
        try:
            _, late = await asyncio.wait(ending, timeout=CLOSE_SECONDS)
        finally:
            for connection in self._open_connections:
                connection.abort()
        if late:
            await asyncio.wait(late, timeout=ABORT_SECONDS)

    @property
    def connection(self) -> BrokerConnection | None:
        """The open connection; None: :meth:`connect` first."""
        connection = self._connection
        return connection if connection is not None and connection.is_usable else None

    async def connect(self, deadline: float) -> BrokerConnection:
        """Return the open connection; all callers that need a new one wait for the same."""
        if self._closed:
            raise ClientClosedError
        connection = self.connection
        if connection is not None:
            return connection
        self.retire()
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open(), name=f"pointsman-rocketmq-open-{self.addr}")
            opening.add_done_callback(self._opened)
        if len(self._waiting) >= self._options.max_in_flight:
            text = f"{self._options.max_in_flight} requests wait for the connection (max_in_flight)"
            raise BrokerUnreachableError(self.addr, text)
        # Not the task itself: it must not be cancelled with one of its callers, and to end a wait for it takes time in
        # proportion to their number.
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            raise BrokerUnreachableError(self.addr, "not connected within the timeout of the call") from None
        finally:
            del self._waiting[waiter]
        if opening.cancelled():
            raise ClientClosedError
        return opening.result()

    def _opened(self, opening: asyncio.Task[BrokerConnection]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._connection = opening.result()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _open(self) -> BrokerConnection:
        seconds = self._options.connect_timeout_seconds
        try:
            host, port = split_addr(self.addr)
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    self._new_connection, host, port, ssl=self._options.tls
                )
        except TimeoutError:
            text = f"not connected within {seconds:g} s (connect_timeout_seconds)"
            raise BrokerUnreachableError(self.addr, text) from None
        except (OSError, ValueError, OverflowError) as error:
            problem = _connect_problem(error, is_tls=self._options.tls is not None)
            raise BrokerUnreachableError(self.addr, f"cannot connect: {problem}") from error
        self._open_connections.add(connection)
        return connection

    def _new_connection(self) -> BrokerConnection:
        return BrokerConnection(self.addr, self._options, self._on_request, self._ended)

    def _ended(self, connection: BrokerConnection) -> None:
        """A connection is closed, or silent: it is used no longer."""
        if connection.ended.done():
            self._open_connections.discard(connection)
        if connection is self._connection:
            self._version = self.version
            self._connection = None
            if self._on_lost is not None and not connection.is_retired:
                self._on_lost()


def _connect_problem(error: Exception, *, is_tls: bool) -> str:
    if isinstance(error, socket.gaierror):
        return "host name cannot be resolved"
    # Of several addresses of a host, the error has one text for all.
    if f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "Connection refused"
    if is_tls and isinstance(error, ConnectionError):
        return "it closed the connection in the TLS handshake: check whether this port uses TLS"
    return explain_connection_failure(str(error))


def _not_supported(_command: Command, _body: bytes, reply: Callable[[Reply], None]) -> None:
    reply(Reply(BrokerResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported by this client"))
