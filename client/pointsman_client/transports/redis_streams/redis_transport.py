"""The transport for brokers that are Redis servers with streams as queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from pointsman.wire.clock import Clock, SystemClock
from pointsman_client.client_options import takes_options
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import ClientClosedError
from pointsman_client.transports.redis_streams.broker import RedisBroker, check_connection
from pointsman_client.transports.redis_streams.options import RedisOptions
from pointsman_client.transports.transport import PulledMessages, SendReceipt

CLOSE_SECONDS = 2.0


class RedisStreamsTransport:
    """Carries messages to and from Redis servers, 7.0 or later.

    A send is SEND_OK when the master has it: with ``appendfsync everysec`` the kill of a process loses nothing, a loss
    of power up to a second. With ``wait_replicas`` and ``wait_fsync`` it is when so many replicas and the master's disk
    have it. What is removed, by ``max_length`` or ``max_age_seconds``, before a consumer read it is counted in
    :attr:`PulledMessages.trimmed`.

    A server has three connections at most, whatever the number of queues and calls. Nothing is connected before it is
    used. Beside the methods of :class:`Transport` there is :attr:`trimmed_by_age`.
    """

    @takes_options(RedisOptions)
    def __init__(self, options: RedisOptions) -> None:
        """Check and keep the options: see :class:`~pointsman_client.transports.redis_streams.options.RedisOptions`.

        Raises :class:`InvalidOptionError`.
        """
        self._options = options
        check_connection(self._options)
        self._clock: Clock = options.clock or SystemClock()
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
