"""One Redis server, with at most three connections: one to write, one to read, one for blocking reads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from pointsman.clock import Clock
from pointsman.names import split_addr
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ports.transport import PulledMessages, SendReceipt
from pointsman_client.redis_streams.age_trim import AgeTrimmer
from pointsman_client.redis_streams.appending import Appender
from pointsman_client.redis_streams.blocking_reader import GREETING, BlockingReader
from pointsman_client.redis_streams.bounded_replies import (
    SHORT_REPLY_BYTES,
    BoundedConnection,
    BoundedTlsConnection,
)
from pointsman_client.redis_streams.lane import Lane
from pointsman_client.redis_streams.options import RedisOptions
from pointsman_client.redis_streams.reading import Entries, Reader, key_of
from pointsman_client.redis_streams.resp import pack
from pointsman_client.redis_streams.stream_leases import Leases

_KEEPALIVE = {
    getattr(socket, option): value
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, option)
}
"""A host without power is detected within 45 s also on idle connections. Not every system has these options."""

_FSYNC_CHECK = pack(b"WAITAOF", b"1", b"0", b"1")
"""Checks before the first write that the server supports WAITAOF."""


class RedisBroker:
    """See :class:`pointsman_client.ports.transport.Transport`, for one address."""

    def __init__(self, addr: str, options: RedisOptions, clock: Clock) -> None:
        def lane(max_reply_bytes: int, greeting: bytes = b"", *, must_greet: bool = True) -> Lane:
            return Lane(
                addr,
                lambda: _new_connection(addr, options),
                max_reply_bytes=max_reply_bytes,
                connect_timeout_seconds=options.connect_timeout_seconds,
                greeting=greeting,
                must_greet=must_greet,
            )

        self.is_retired = False
        self._writing = lane(SHORT_REPLY_BYTES, _FSYNC_CHECK if options.wait_fsync else b"")
        self._reading = lane(options.max_reply_bytes)
        self._waiting = lane(options.max_reply_bytes, GREETING, must_greet=False)
        self._appender = Appender(addr, self._writing, options)
        self._reader = Reader(addr, self._reading)
        self._blocking_reader = BlockingReader(addr, self._waiting, self._execute)
        self._leases = Leases(addr, self._reading, self._blocking_reader, clock)
        self._age_trimmer: AgeTrimmer | None = None
        if options.max_age_seconds is not None:
            self._age_trimmer = AgeTrimmer(
                self._reader, self._writing, max_age_seconds=options.max_age_seconds, clock=clock
            )
        self._reached: dict[bytes, int] = {}
        """Known minimum of the queues' ends, from reads on the connection number ``_reached_on``."""
        self._reached_on = 0

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        self.is_retired = False
        receipt = await self._appender.append(queue, messages, timeout_seconds)
        if self._age_trimmer is not None:
            self._age_trimmer.written(queue)
        return receipt

    async def pull(
        self, queue: MessageQueue, offset: int, *, max_messages: int, wait_seconds: float, timeout_seconds: float
    ) -> PulledMessages:
        """See :meth:`Transport.pull`."""
        self.is_retired = False
        now = asyncio.get_running_loop().time
        wait_until = now() + wait_seconds
        ends_at = wait_until + timeout_seconds
        reader, key = self._reader, key_of(queue)
        entries = await reader.entries(queue, offset, count=max_messages, timeout_seconds=timeout_seconds)
        if not entries and wait_seconds > 0:
            if offset and not self._is_reached(key, offset):
                resolved = await self._resolve_empty_read(queue, offset, ends_at - now())
                if resolved is not None:
                    return resolved
            entries = await self._blocking_reader.wait(key, offset, count=max_messages, seconds=wait_until - now())
            if not entries:
                entries = await reader.entries(queue, offset, count=max_messages, timeout_seconds=ends_at - now())
        if not entries and offset:
            resolved = await self._resolve_empty_read(queue, offset, ends_at - now())
            if resolved is not None:
                return resolved
        if not entries:
            return PulledMessages((), offset)
        return self._pulled(queue, offset, entries)

    async def bounds(self, queue: MessageQueue, timeout_seconds: float) -> tuple[int, int]:
        """See :meth:`Transport.min_offset` and :meth:`Transport.max_offset`."""
        self.is_retired = False
        return await self._reader.bounds(queue, timeout_seconds=timeout_seconds)

    async def offset_at(self, queue: MessageQueue, at: datetime, timeout_seconds: float) -> int:
        """See :meth:`Transport.offset_at`."""
        self.is_retired = False
        return await self._reader.offset_at(queue, at, timeout_seconds=timeout_seconds)

    @property
    def leases(self) -> Leases:
        """The leases of messages, to be used now."""
        self.is_retired = False
        return self._leases

    def retire(self) -> None:
        """Close connections without pending requests; they are reopened on demand."""
        self.is_retired = True
        for lane in self._lanes:
            lane.retire()

    @property
    def is_idle(self) -> bool:
        """Whether no connection is open."""
        return not any(lane.is_open for lane in self._lanes)

    @property
    def trimmed_by_age(self) -> int:
        """Messages removed because of their age."""
        return 0 if self._age_trimmer is None else self._age_trimmer.trimmed

    def close(self) -> list[asyncio.Task[Any]]:
        """Close all connections; return the tasks that are ending."""
        ending: list[asyncio.Task[Any]] = [*self._blocking_reader.close(), *self._appender.close()]
        if self._age_trimmer is not None:
            ending += self._age_trimmer.close()
        for lane in self._lanes:
            ending += lane.close()
        return ending

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return self._writing, self._reading, self._waiting

    async def _execute(self, request: bytes, timeout_seconds: float) -> Any:  # noqa: ANN401  # any Redis reply
        return await self._reader.execute(request, timeout_seconds=timeout_seconds)

    async def _resolve_empty_read(
        self, queue: MessageQueue, offset: int, timeout_seconds: float
    ) -> PulledMessages | None:
        """Return the result of a pull that read nothing; None if the queue ends at ``offset``."""
        _, end = await self._reader.bounds(queue, timeout_seconds=timeout_seconds)
        self._reader.check_end(queue, offset, end)
        self._note_reached(key_of(queue), offset)
        if end == offset:
            return None
        # Messages arrived just now, or were removed. Only a read after the end is known distinguishes them.
        entries = await self._reader.entries(queue, offset, count=1, timeout_seconds=timeout_seconds)
        if entries:
            return self._pulled(queue, offset, entries)
        return PulledMessages((), end, trimmed=end - offset)

    def _pulled(self, queue: MessageQueue, offset: int, entries: Entries) -> PulledMessages:
        pulled = self._reader.pulled(queue, offset, entries)
        self._note_reached(key_of(queue), pulled.next_offset)
        return pulled

    def _is_reached(self, key: bytes, offset: int) -> bool:
        return self._reached_on == self._reading.openings and self._reached.get(key, 0) >= offset

    def _note_reached(self, key: bytes, offset: int) -> None:
        if self._reached_on != self._reading.openings:
            self._reached_on = self._reading.openings
            self._reached.clear()
        self._reached[key] = offset


def check_connection(options: RedisOptions) -> None:
    """Raise :class:`InvalidOptionError` for options that redis-py would reject at the first send. Does not connect."""
    try:
        _new_connection("127.0.0.1:6379", options)
    except (TypeError, ValueError, RedisError) as error:
        raise InvalidOptionError("ssl", options.ssl, f"is not valid for redis-py's SSLConnection: {error}") from error


def _new_connection(addr: str, options: RedisOptions) -> BoundedConnection | BoundedTlsConnection:
    host, port = split_addr(addr)
    kind = BoundedConnection if options.ssl is None else BoundedTlsConnection
    more: Mapping[str, Any] = options.ssl or {}
    return kind(
        host=host,
        port=port,
        username=options.username,
        password=options.password,
        db=options.db,
        # Callers have deadlines, and a retry could write twice.
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
        socket_keepalive=True,
        socket_keepalive_options=_KEEPALIVE,
        # No HELLO: RESP3 replies have other types, and it hides the error of a missing password.
        protocol=2,
        **more,
    )
