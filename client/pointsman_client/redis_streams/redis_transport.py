"""Transport to brokers that are Redis servers, with streams as queues."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from pointsman.clock import Clock, SystemClock
from pointsman.group_topics import is_group_topic
from pointsman_client.core.lease import GroupBacklog, Lease
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options
from pointsman_client.errors import ClientClosedError, InvalidMessageError
from pointsman_client.ports.leases import PoppedMessages
from pointsman_client.ports.transport import PulledMessages, Reader, SendReceipt
from pointsman_client.redis_streams.broker import RedisBroker, check_connection
from pointsman_client.redis_streams.options import RedisOptions

CLOSE_SECONDS = 2.0


class RedisStreamsTransport:
    """Transport to Redis servers, version 7.0 or later.

    A send returns SEND_OK when the master has the message. With ``appendfsync everysec``, a killed process loses no
    message, or those of up to 2 s if the disk is slow, and a power failure those of up to 1 s. With ``wait_replicas``
    and ``wait_fsync`` it waits for that number of replicas and for the master's disk. Messages removed by
    ``max_length`` or ``max_age_seconds`` before a consumer read them are counted in :attr:`PulledMessages.trimmed`.

    There are at most three connections per server, for any number of queues and calls. They are opened on demand. In
    addition to the methods of :class:`Transport` there is :attr:`trimmed_by_age`.
    """

    ends_in_time = True
    """See ``Transport``."""
    keeps_lease_offsets = False
    """See ``LeasesMessages``."""
    notices_late_acknowledgements = True
    """See ``LeasesMessages``."""

    @takes_options(RedisOptions)
    def __init__(self, options: RedisOptions) -> None:
        """Create a transport with the options of
        :class:`~pointsman_client.redis_streams.options.RedisOptions`.

        Raises :class:`InvalidOptionError`.
        """
        self._options = options
        check_connection(self._options)
        self._clock: Clock = options.clock or SystemClock()
        self._brokers: dict[str, RedisBroker] = {}
        self._trimmed_by_removed = 0
        self._closed = False

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`. Only retries may be delayed: all messages behind one in its queue wait, too."""
        delayed = next((each for each in messages if each.due_at is not None), None)
        if delayed is not None:
            self.check(queue, delayed)
        return await self._broker(addr).send(queue, messages, timeout_seconds)

    def check(self, queue: MessageQueue, message: OutgoingMessage) -> None:
        """See :meth:`ChecksMessages.check`."""
        if message.due_at is not None and not is_group_topic(queue.topic):
            problem = "is not supported with Redis, where all later messages of the queue would wait; remove it"
            raise InvalidMessageError("deliver_at", message.due_at.isoformat(), problem)

    async def pull(
        self,
        addr: str,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int,
        wait_seconds: float,
        timeout_seconds: float,
        reader: Reader | None = None,  # noqa: ARG002  # the consumer filters
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
        """See :meth:`Transport.offset_at`. The result is approximate if the clocks of producers differ."""
        return await self._broker(addr).offset_at(queue, at, timeout_seconds)

    async def pop(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        max_messages: int,
        invisible_seconds: float,
        is_ordered: bool,
        timeout_seconds: float,
    ) -> PoppedMessages:
        """See :meth:`LeasesMessages.pop`. The consumer filters."""
        return await self._broker(addr).leases.pop(
            queues,
            group=reader.group,
            max_messages=max_messages,
            invisible_seconds=invisible_seconds,
            is_ordered=is_ordered,
            timeout_seconds=timeout_seconds,
        )

    async def wait_for_messages(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        is_ordered: bool,
        wait_seconds: float,
        timeout_seconds: float,
    ) -> None:
        """See :meth:`LeasesMessages.wait_for_messages`. While there are leases it returns after a second."""
        await self._broker(addr).leases.wait(
            queues,
            group=reader.group,
            is_ordered=is_ordered,
            wait_seconds=wait_seconds,
            timeout_seconds=timeout_seconds,
        )

    async def acknowledge(
        self, addr: str, leases: Sequence[Lease], *, group: str, timeout_seconds: float
    ) -> tuple[Lease, ...]:
        """See :meth:`LeasesMessages.acknowledge`."""
        return await self._broker(addr).leases.acknowledge(leases, group=group, timeout_seconds=timeout_seconds)

    async def change_invisible(
        self, addr: str, leases: Sequence[Lease], *, group: str, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[Lease | None, ...]:
        """See :meth:`LeasesMessages.change_invisible`."""
        return await self._broker(addr).leases.change_invisible(
            leases, group=group, invisible_seconds=invisible_seconds, timeout_seconds=timeout_seconds
        )

    async def begin_group(
        self, addr: str, queue: MessageQueue, offset: int, *, group: str, timeout_seconds: float
    ) -> None:
        """See :meth:`LeasesMessages.begin_group`."""
        await self._broker(addr).leases.begin_group(queue, offset, group=group, timeout_seconds=timeout_seconds)

    async def backlogs(
        self, addr: str, queues: Collection[MessageQueue], *, group: str, timeout_seconds: float
    ) -> Mapping[MessageQueue, GroupBacklog]:
        """See :meth:`LeasesMessages.backlogs`."""
        return await self._broker(addr).leases.backlogs(queues, group=group, timeout_seconds=timeout_seconds)

    def forget(self, addr: str) -> None:
        """See :meth:`Transport.forget`."""
        broker = self._brokers.get(addr)
        if broker is not None:
            broker.retire()
        for known, other in list(self._brokers.items()):
            if other.is_retired and other.is_idle:
                self._trimmed_by_removed += self._brokers.pop(known).trimmed_by_age

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
        return self._trimmed_by_removed + sum(broker.trimmed_by_age for broker in self._brokers.values())

    def _broker(self, addr: str) -> RedisBroker:
        if self._closed:
            raise ClientClosedError
        broker = self._brokers.get(addr)
        if broker is None:
            broker = self._brokers[addr] = RedisBroker(addr, self._options, self._clock)
        return broker
