"""The link to a broker for one purpose: opened when it is first needed, and anew after it broke."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from redis.asyncio import Connection

from pointsman_client.errors import BrokerError, BrokerTimeoutError, BrokerUnreachableError, ClientClosedError
from pointsman_client.transports.redis_streams.link import FAULTS, AnswerLostError, Link
from pointsman_client.transports.redis_streams.refusal import is_answer, refused


class Lane:
    """At most one link in use. ``greeting`` is asked first on every connection: an error in answer to it ends that,
    or, unless ``must_greet``, counts as no answer."""

    def __init__(
        self,
        addr: str,
        new_connection: Callable[[], Connection],
        *,
        connect_timeout_seconds: float,
        greeting: bytes = b"",
        must_greet: bool = True,
    ) -> None:
        self._addr = addr
        self._new_connection = new_connection
        self._connect_timeout_seconds = connect_timeout_seconds
        self._greeting = greeting
        self._must_greet = must_greet
        self._link: Link | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[Link] | None = None
        self._closed = False
        self.openings = 0
        """Connections so far."""

    async def ask(self, request: bytes, answers: int, *, timeout_seconds: float, is_read: bool = False) -> list[Any]:
        """Send commands and return the answer to each. What only reads is asked once more if its connection broke."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_seconds
        link = self._link
        is_new = link is None or not link.is_usable
        if link is None or is_new:
            link = await self.open(timeout_seconds=timeout_seconds)
            timeout_seconds = ends_at - loop.time()
        try:
            return await link.ask(request, answers, timeout_seconds=timeout_seconds)
        except AnswerLostError as error:
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
        return await self.ask(request, answers, timeout_seconds=ends_at - loop.time(), is_read=is_read)

    async def open(self, *, timeout_seconds: float) -> Link:
        """Return the link in use; where there is none, open one for all who wait for it."""
        if self._closed:
            raise ClientClosedError
        if self._link is not None and self._link.is_usable:
            return self._link
        opening = self._opening
        if opening is None:
            self._set_aside()
            opening = self._opening = asyncio.create_task(self._open(), name=f"pointsman-redis-open-{self._addr}")
            opening.add_done_callback(self._opened)
        # Unlike awaiting the task, this leaves it to the others when this caller is cancelled.
        done, _ = await asyncio.wait([opening], timeout=max(0.0, timeout_seconds))
        if not done:
            raise BrokerUnreachableError(self._addr, f"not connected within {timeout_seconds:g} s")
        if opening.cancelled():
            raise ClientClosedError
        return opening.result()

    def retire(self) -> None:
        """Close the link when nobody waits on it."""
        if self._link is not None:
            self._link.retire()

    @property
    def is_open(self) -> bool:
        """Whether a connection is open or being opened."""
        return self._opening is not None or (self._link is not None and self._link.is_usable)

    def close(self) -> list[asyncio.Task[Any]]:
        """Break off everything for good; what is returned ends at once, if the machine lets it."""
        self._closed = True
        self._set_aside()
        ending: list[asyncio.Task[Any]] = [*self._retired]
        if self._opening is not None:
            ending.append(self._opening)
        for task in ending:
            task.cancel()
        return ending

    def _set_aside(self) -> None:
        """A link that is out of use may still have callers that wait."""
        if self._link is not None:
            ending, self._link = self._link.ending, None
            self._retired.add(ending)
            ending.add_done_callback(self._retired.discard)

    def _opened(self, opening: asyncio.Task[Link]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._link = opening.result()
            self.openings += 1

    async def _open(self) -> Link:
        link = Link(self._addr, await self._connect())
        is_greeted = False
        try:
            if self._greeting:
                link.greeting = await self._greet(link)
            is_greeted = True
        finally:
            if not is_greeted:
                link.close()
        return link

    async def _connect(self) -> Connection:
        connection = self._new_connection()
        is_connected = False
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                await connection.connect()  # type: ignore[no-untyped-call]  # so redis-py has it
            is_connected = True
        except TimeoutError:
            text = f"not connected within {self._connect_timeout_seconds:g} s (connect_timeout_seconds)"
            raise BrokerUnreachableError(self._addr, text) from None
        except FAULTS as error:
            if is_answer(error):
                raise refused(self._addr, error) from error
            raise BrokerUnreachableError(self._addr, f"cannot connect: {error}") from error
        finally:
            if not is_connected:
                await connection.disconnect(nowait=True)
        return connection

    async def _greet(self, link: Link) -> Any:  # noqa: ANN401  # whatever Redis answers
        try:
            (answer,) = await link.ask(self._greeting, 1, timeout_seconds=self._connect_timeout_seconds)
        except BrokerTimeoutError as error:
            raise BrokerUnreachableError(self._addr, error.message) from error
        if not isinstance(answer, Exception):
            return answer
        if self._must_greet:
            raise refused(self._addr, answer) from answer
        return None


async def quietly(request: asyncio.Task[Any]) -> None:
    """End a request whose answer nobody wants any longer."""
    request.cancel()
    with contextlib.suppress(asyncio.CancelledError, BrokerError):
        await request
