"""The link to a broker for one purpose, opened on demand and reopened after it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError, ClientClosedError
from pointsman_client.redis_streams.bounded_replies import BoundedConnection, BoundedTlsConnection
from pointsman_client.redis_streams.link import CONNECTION_ERRORS, Link, ReplyLostError
from pointsman_client.redis_streams.refusal import is_error_reply, refused


class Lane:
    """At most one open link, whose replies have at most ``max_reply_bytes`` each.

    ``greeting`` is the first command on every connection. An error reply to it closes the connection; without
    ``must_greet`` it is ignored.
    """

    def __init__(
        self,
        addr: str,
        new_connection: Callable[[], BoundedConnection | BoundedTlsConnection],
        *,
        max_reply_bytes: int,
        connect_timeout_seconds: float,
        greeting: bytes = b"",
        must_greet: bool = True,
    ) -> None:
        self._addr = addr
        self._new_connection = new_connection
        self._max_reply_bytes = max_reply_bytes
        self._connect_timeout_seconds = connect_timeout_seconds
        self._greeting = greeting
        self._must_greet = must_greet
        self._link: Link | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[Link] | None = None
        self._closed = False
        self.openings = 0
        """Number of connections opened."""

    async def execute(
        self, request: bytes, replies: int, *, timeout_seconds: float, is_read: bool = False
    ) -> list[Any]:
        """Send commands and return their replies. With ``is_read`` they are sent once more if the connection broke."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_seconds
        link = self._link
        is_new = link is None or not link.is_usable
        if link is None or is_new:
            link = await self.open(timeout_seconds=timeout_seconds)
            timeout_seconds = ends_at - loop.time()
        try:
            return await link.execute(request, replies, timeout_seconds=timeout_seconds)
        except ReplyLostError as error:
            if self._closed:
                raise ClientClosedError from None
            if not is_read:
                raise
            if is_new:
                raise BrokerUnreachableError(self._addr, error.message) from error
        except BrokerUnreachableError:
            if self._closed:
                raise ClientClosedError from None
            if is_new or loop.time() >= ends_at:
                raise
        # The server may have restarted since the link was last used.
        return await self.execute(request, replies, timeout_seconds=ends_at - loop.time(), is_read=is_read)

    async def open(self, *, timeout_seconds: float) -> Link:
        """Return the open link; if there is none, open one for all waiting callers."""
        if self._closed:
            raise ClientClosedError
        if self._link is not None and self._link.is_usable:
            return self._link
        opening = self._opening
        if opening is None:
            self._detach_link()
            opening = self._opening = asyncio.create_task(self._open(), name=f"pointsman-redis-open-{self._addr}")
            opening.add_done_callback(self._opened)
        # Unlike awaiting the task, this does not cancel it when one caller is cancelled.
        done, _ = await asyncio.wait([opening], timeout=max(0.0, timeout_seconds))
        if not done:
            raise BrokerUnreachableError(self._addr, f"not connected within {timeout_seconds:g} s")
        if opening.cancelled():
            raise ClientClosedError
        return opening.result()

    def retire(self) -> None:
        """Close the link when it has no pending requests."""
        if self._link is not None:
            self._link.retire()

    @property
    def is_open(self) -> bool:
        """Whether a connection is open or being opened."""
        return self._opening is not None or (self._link is not None and self._link.is_usable)

    def close(self) -> list[asyncio.Task[Any]]:
        """Cancel all requests and close the link; return the tasks that are ending."""
        self._closed = True
        self._detach_link()
        ending: list[asyncio.Task[Any]] = [*self._retired]
        if self._opening is not None:
            ending.append(self._opening)
        for task in ending:
            task.cancel()
        return ending

    def _detach_link(self) -> None:
        """Replace the link; pending requests of the old one may still complete."""
        if self._link is not None:
            ending, self._link = self._link.ending, None
            self._retired.add(ending)
            ending.add_done_callback(self._retired.discard)

    def _opened(self, opening: asyncio.Task[Link]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._link = opening.result()
            self.openings += 1
            if self._closed:  # Between the end of the task and this call.
                self._link.close()

    async def _open(self) -> Link:
        link = Link(self._addr, await self._connect(), max_reply_bytes=self._max_reply_bytes)
        is_greeted = False
        try:
            if self._greeting:
                link.greeting = await self._greet(link)
            is_greeted = True
        finally:
            if not is_greeted:
                link.close()
        return link

    async def _connect(self) -> BoundedConnection | BoundedTlsConnection:
        connection = self._new_connection()
        is_connected = False
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                await connection.connect()  # type: ignore[no-untyped-call]  # untyped in redis-py
            is_connected = True
        except TimeoutError:
            text = f"not connected within {self._connect_timeout_seconds:g} s (connect_timeout_seconds)"
            raise BrokerUnreachableError(self._addr, text) from None
        except CONNECTION_ERRORS as error:
            if is_error_reply(error):
                raise refused(self._addr, error) from error
            raise BrokerUnreachableError(self._addr, f"cannot connect: {error}") from error
        finally:
            if not is_connected:
                await connection.disconnect(nowait=True)
        return connection

    async def _greet(self, link: Link) -> Any:  # noqa: ANN401  # any Redis reply
        try:
            (reply,) = await link.execute(self._greeting, 1, timeout_seconds=self._connect_timeout_seconds)
        except BrokerTimeoutError as error:
            raise BrokerUnreachableError(self._addr, error.message) from error
        if not isinstance(reply, Exception):
            return reply
        if self._must_greet:
            raise refused(self._addr, reply) from reply
        return None


async def cancel_request(request: asyncio.Task[Any]) -> None:
    """Cancel a request and ignore its outcome."""
    request.cancel()
    await asyncio.wait({request})
    if not request.cancelled():
        request.exception()  # marks it as retrieved
