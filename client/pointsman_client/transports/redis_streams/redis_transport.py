"""The transport for brokers that are Redis servers with streams as queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from pointsman.wire.clock import Clock, SystemClock
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import ClientClosedError
from pointsman_client.transports.redis_streams.broker import RedisBroker, check_connection
from pointsman_client.transports.redis_streams.options import RedisOptions
from pointsman_client.transports.transport import PulledMessages, SendReceipt

CLOSE_SECONDS = 2.0


class RedisStreamsTransport:
    """Carries messages to and from Redis servers, 7.0 or later.

    ``username``, ``password``, ``db``: for every server. ``ssl``: arguments of redis-py's ``SSLConnection``, such as
    ``{"ssl_ca_certs": "ca.pem"}``; ``{}`` for TLS by the machine's certificates; None for none.

    ``max_length``: messages that a queue keeps, about: Redis removes whole nodes, so up to a hundred more stay. None
    keeps all. ``max_age_seconds``: messages born longer ago are removed too, in the background and about. What is
    removed before a consumer read it is counted in :attr:`PulledMessages.trimmed`.

    ``wait_replicas`` and ``wait_fsync``: a send is SEND_OK when so many replicas have it (WAIT), and when it is on the
    master's disk (WAITAOF, Redis 7.2); either for at most ``wait_timeout_seconds``. Without them it is SEND_OK when the
    master has it: with ``appendfsync everysec`` the kill of a process loses nothing, a loss of power up to a second.

    A server has three connections at most, whatever the number of queues and calls. Nothing is connected before it is
    used. Beside the methods of :class:`Transport` there is :attr:`trimmed_by_age`.
    """

    def __init__(
        self,
        *,
        username: str | None = None,
        password: str | None = None,
        db: int = 0,
        ssl: Mapping[str, object] | None = None,
        max_length: int | None = 1_000_000,
        max_age_seconds: float | None = None,
        wait_replicas: int = 0,
        wait_fsync: bool = False,
        wait_timeout_seconds: float = 1.0,
        connect_timeout_seconds: float = 3.0,
        clock: Clock | None = None,
    ) -> None:
        self._options = RedisOptions(
            username=username,
            password=password,
            db=db,
            ssl=ssl,
            max_length=max_length,
            max_age_seconds=max_age_seconds,
            wait_replicas=wait_replicas,
            wait_fsync=wait_fsync,
            wait_timeout_seconds=wait_timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
        )
        check_connection(self._options)
        self._clock = clock or SystemClock()
        self._brokers: dict[str, RedisBroker] = {}
        self._trimmed_by_forgotten = 0
        self._closed = False

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        return await self._broker(addr).send(queue, messages, timeout_seconds)

    async def pull(
        self,
        addr: str,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int,
        wait_seconds: float,
        timeout_seconds: float,
    ) -> PulledMessages:
        """See :meth:`Transport.pull`."""
        return await self._broker(addr).pull(
            queue, offset, max_messages=max_messages, wait_seconds=wait_seconds, timeout_seconds=timeout_seconds
        )

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.min_offset`."""
        return (await self._broker(addr).bounds(queue, timeout_seconds))[0]

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.max_offset`."""
        return (await self._broker(addr).bounds(queue, timeout_seconds))[1]

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.offset_at`. Messages of producers whose clocks differ are only roughly in order."""
        return await self._broker(addr).offset_at(queue, at, timeout_seconds)

    def forget(self, addr: str) -> None:
        """See :meth:`Transport.forget`."""
        broker = self._brokers.get(addr)
        if broker is not None:
            broker.retire()
        for known, other in list(self._brokers.items()):
            if other.is_forgotten and other.is_idle:
                self._trimmed_by_forgotten += self._brokers.pop(known).trimmed_by_age

    async def close(self) -> None:
        """See :meth:`Transport.close`."""
        self._closed = True
        brokers, self._brokers = list(self._brokers.values()), {}
        ending = [task for broker in brokers for task in broker.close()]
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_SECONDS)

    @property
    def trimmed_by_age(self) -> int:
        """Messages that this transport removed because of ``max_age_seconds``."""
        return self._trimmed_by_forgotten + sum(broker.trimmed_by_age for broker in self._brokers.values())

    def _broker(self, addr: str) -> RedisBroker:
        if self._closed:
            raise ClientClosedError
        broker = self._brokers.get(addr)
        if broker is None:
            broker = self._brokers[addr] = RedisBroker(addr, self._options, self._clock)
        return broker
