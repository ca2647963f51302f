"""Connections whose replies have a limit: a server that sends one without an end must not fill the memory.

The limit counts the bytes that arrive before a reply is complete, so it also holds for nested arrays, and for the
replies to AUTH and SELECT.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from redis.asyncio import Connection, SSLConnection

SHORT_REPLY_BYTES = 64 * 1024
"""Limit of a reply that has no content of messages, and of all replies while a connection is opened."""
BYTES_PER_REPLY = 128
"""Added for each command of a request: the reply to EXEC has an id for each message."""


_MANY_ELEMENTS = re.compile(rb"\*[0-9]{7,}")
_LONGEST_NUMBER = 20


class ReplyTooLongError(ValueError):
    """A reply exceeded the limit; its connection must be closed."""


class BoundedStream:
    """A connection's ``StreamReader``, as redis-py's parsers use it."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401  # redis-py has no type for it
        self._stream = stream
        self._received = 0
        self.limit: Callable[[], int] = lambda: SHORT_REPLY_BYTES
        """Returns the limit of the reply that arrives, bytes."""
        self.has_messages = False
        """Whether replies have contents of messages. In others no array may announce a million elements: hiredis makes
        the list in advance, and to free it can take seconds."""
        self._tail = b""

    def end_reply(self) -> None:
        """Begin to count the next reply."""
        self._received = 0

    async def read(self, length: int = -1) -> bytes:
        """Return the next bytes. Raises ReplyTooLongError."""
        data: bytes = await self._stream.read(length)
        self._count(len(data))
        if not self.has_messages:
            if _MANY_ELEMENTS.search(self._tail + data):
                raise ReplyTooLongError("an array announces a million elements or more")
            self._tail = data[-_LONGEST_NUMBER:]
        return data

    async def readexactly(self, length: int) -> bytes:
        """Return this number of bytes. Raises ReplyTooLongError before it reads too many."""
        self._count(length)
        data: bytes = await self._stream.readexactly(length)
        return data

    async def readline(self) -> bytes:
        """Return the next line. Raises ReplyTooLongError, and ValueError for a line of more than 64 KiB."""
        data: bytes = await self._stream.readline()
        self._count(len(data))
        return data

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # the stream's
        return getattr(self._stream, name)

    def _count(self, length: int) -> None:
        self._received += length
        limit = self.limit()
        if self._received > limit:
            raise ReplyTooLongError(f"a reply has more than {limit} bytes")


class BoundedConnection(Connection):
    """A connection in plain text."""

    replies: BoundedStream

    async def _connect(self) -> None:
        await super()._connect()  # type: ignore[no-untyped-call]  # untyped in redis-py
        self._reader: Any = _bounded(self)


class BoundedTlsConnection(SSLConnection):
    """A connection with TLS."""

    replies: BoundedStream

    async def _connect(self) -> None:
        await super()._connect()  # type: ignore[no-untyped-call]  # untyped in redis-py
        self._reader: Any = _bounded(self)


def _bounded(connection: BoundedConnection | BoundedTlsConnection) -> BoundedStream:
    connection.replies = BoundedStream(connection._reader)  # noqa: SLF001  # redis-py has no other way to its bytes
    return connection.replies
