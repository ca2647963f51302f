"""All that goes to one Redis server: three connections at most, one to write, one to read, one that waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from pointsman.wire.clock import Clock
from pointsman.wire.names import split_addr
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import InvalidOptionError
from pointsman_client.transports.redis_streams.age_trim import AgeTrimmer
from pointsman_client.transports.redis_streams.appending import Appender
from pointsman_client.transports.redis_streams.lane import Lane
from pointsman_client.transports.redis_streams.options import RedisOptions
from pointsman_client.transports.redis_streams.reading import Entries, Reader, key_of
from pointsman_client.transports.redis_streams.resp import pack
from pointsman_client.transports.redis_streams.waiting_room import GREETING, WaitingRoom
from pointsman_client.transports.transport import PulledMessages, SendReceipt

_KEEPALIVE = {
    getattr(socket, option): value
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, option)
}
"""A machine that lost its power is noticed within 45 s also by who only waits; not every system has them."""

_FSYNC_CHECK = pack(b"WAITAOF", b"1", b"0", b"1")
"""Answered at once by a server that knows it; asked before anything is written."""


class RedisBroker:
    """See :class:`pointsman_client.transports.transport.Transport`, for one address."""

    def __init__(self, addr: str, options: RedisOptions, clock: Clock) -> None:
        def lane(greeting: bytes = b"", *, must_greet: bool = True) -> Lane:
            return Lane(
                addr,
                lambda: _new_connection(addr, options),
                connect_timeout_seconds=options.connect_timeout_seconds,
                greeting=greeting,
                must_greet=must_greet,
            )

        self.is_forgotten = False
        self._writing = lane(_FSYNC_CHECK if options.wait_fsync else b"")
        self._reading = lane()
        self._waiting = lane(GREETING, must_greet=False)
        self._appender = Appender(addr, self._writing, options)
        self._reader = Reader(addr, self._reading)
        self._room = WaitingRoom(addr, self._waiting, self._ask)
        self._age_trimmer: AgeTrimmer | None = None
        if options.max_age_seconds is not None:
            self._age_trimmer = AgeTrimmer(
                self._reader, self._writing, max_age_seconds=options.max_age_seconds, clock=clock
            )
        self._reached: dict[bytes, int] = {}
        """How far the queues are known to go, from what was read on the connection of ``_reached_on``."""
        self._reached_on = 0

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        self.is_forgotten = False
        receipt = await self._appender.append(queue, messages, timeout_seconds)
        if self._age_trimmer is not None:
            self._age_trimmer.written(queue)
        return receipt

    async def pull(
        self, queue: MessageQueue, offset: int, *, max_messages: int, wait_seconds: float, timeout_seconds: float
    ) -> PulledMessages:
        """See :meth:`Transport.pull`."""
        self.is_forgotten = False
        now = asyncio.get_running_loop().time
        wait_until = now() + wait_seconds
        ends_at = wait_until + timeout_seconds
        reader, key = self._reader, key_of(queue)
        entries = await reader.entries(queue, offset, count=max_messages, timeout_seconds=timeout_seconds)
        if not entries and wait_seconds > 0:
            if offset and not self._is_reached(key, offset):
                gone = await self._gone(queue, offset, ends_at - now())
                if gone is not None:
                    return gone
            entries = await self._room.wait(key, offset, count=max_messages, seconds=wait_until - now())
            if not entries:
                entries = await reader.entries(queue, offset, count=max_messages, timeout_seconds=ends_at - now())
        if not entries and offset:
            gone = await self._gone(queue, offset, ends_at - now())
            if gone is not None:
                return gone
        if not entries:
            return PulledMessages((), offset)
        return self._pulled(queue, offset, entries)

    async def bounds(self, queue: MessageQueue, timeout_seconds: float) -> tuple[int, int]:
        """See :meth:`Transport.min_offset` and :meth:`Transport.max_offset`."""
        self.is_forgotten = False
        return await self._reader.bounds(queue, timeout_seconds=timeout_seconds)

    async def offset_at(self, queue: MessageQueue, at: datetime, timeout_seconds: float) -> int:
        """See :meth:`Transport.offset_at`."""
        self.is_forgotten = False
        return await self._reader.offset_at(queue, at, timeout_seconds=timeout_seconds)

    def retire(self) -> None:
        """Close what nobody waits on; it opens again when it is used."""
        self.is_forgotten = True
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
        """End everything for good."""
        ending: list[asyncio.Task[Any]] = [*self._room.close(), *self._appender.close()]
        if self._age_trimmer is not None:
            ending += self._age_trimmer.close()
        for lane in self._lanes:
            ending += lane.close()
        return ending

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return self._writing, self._reading, self._waiting

    async def _ask(self, request: bytes, timeout_seconds: float) -> Any:  # noqa: ANN401  # whatever Redis answers
        return await self._reader.ask(request, timeout_seconds=timeout_seconds)

    async def _gone(self, queue: MessageQueue, offset: int, timeout_seconds: float) -> PulledMessages | None:
        """Where nothing came from ``offset`` on: what a pull answers if that is not the end; None if it is."""
        _, end = await self._reader.bounds(queue, timeout_seconds=timeout_seconds)
        self._reader.check_end(queue, offset, end)
        self._note_reached(key_of(queue), offset)
        if end == offset:
            return None
        # Either they came just now, or they are gone: only what is read after the end was known tells.
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
    """Raise :class:`InvalidOptionError` for what redis-py would refuse at the first send; opens nothing."""
    try:
        _new_connection("127.0.0.1:6379", options)
    except (TypeError, ValueError, RedisError) as error:
        raise InvalidOptionError("ssl", options.ssl, f"is not what redis-py's SSLConnection takes: {error}") from error


def _new_connection(addr: str, options: RedisOptions) -> Connection:
    host, port = split_addr(addr)
    kind: type[Connection] = Connection if options.ssl is None else SSLConnection
    more: Mapping[str, Any] = options.ssl or {}
    return kind(
        host=host,
        port=port,
        username=options.username,
        password=options.password,
        db=options.db,
        # Deadlines are the callers', and a try again could write twice.
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
        socket_keepalive=True,
        socket_keepalive_options=_KEEPALIVE,
        # No HELLO: its answers are of other shapes, and it hides a missing password behind a riddle.
        protocol=2,
        **more,
    )
