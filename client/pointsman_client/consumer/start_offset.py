"""Where the consumption of a queue begins: a stored offset wins, else what the consumer asked for."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pointsman.wire.group_topics import is_retry_topic
from pointsman_client.consumer.coordination import OffsetStore
from pointsman_client.consumer.shared_question import SharedQuestion
from pointsman_client.message_queue import MessageQueue
from pointsman_client.transports.transport import Transport


class ConsumeFrom(StrEnum):
    """Where a group begins a queue that it has no committed offset for (RocketMQ ``ConsumeFromWhere``)."""

    LAST_OFFSET = "LAST_OFFSET"
    """At its end: with what is sent from now on."""
    FIRST_OFFSET = "FIRST_OFFSET"
    """At the first message that is still there."""
    TIMESTAMP = "TIMESTAMP"
    """At the first message born at or after ``consume_timestamp``."""


class StartOffsets:
    """Finds start offsets by the store and the broker."""

    def __init__(
        self,
        store: OffsetStore,
        transport: Transport,
        *,
        consume_from: ConsumeFrom,
        consume_timestamp: datetime | None,
        timeout_seconds: float,
    ) -> None:
        self._load = SharedQuestion(store.load)
        self._transport = transport
        self._consume_from = consume_from
        self._consume_timestamp = consume_timestamp
        self._timeout_seconds = timeout_seconds

    async def stored(self, queue: MessageQueue) -> int | None:
        """The committed offset, None if there is none. Raises why it is not known: the queue must not begin then."""
        loaded = await self._load.about(queue)
        if queue in loaded.unknown:
            raise loaded.unknown[queue]
        return loaded.offsets.get(queue)

    async def initial(self, addr: str, queue: MessageQueue) -> int:
        """The offset for a queue without a committed one. A retry topic is read from its first message on."""
        if self._consume_from is ConsumeFrom.FIRST_OFFSET or is_retry_topic(queue.topic):
            return await self.first(addr, queue)
        if self._consume_from is ConsumeFrom.TIMESTAMP and self._consume_timestamp is not None:
            return await self.at(addr, queue, self._consume_timestamp)
        return await self._transport.max_offset(addr, queue, timeout_seconds=self._timeout_seconds)

    async def first(self, addr: str, queue: MessageQueue) -> int:
        """The first offset that is still there."""
        return await self._transport.min_offset(addr, queue, timeout_seconds=self._timeout_seconds)

    async def at(self, addr: str, queue: MessageQueue, at: datetime) -> int:
        """The offset of the first message born at or after a time."""
        return await self._transport.offset_at(addr, queue, at, timeout_seconds=self._timeout_seconds)
