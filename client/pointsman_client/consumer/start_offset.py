"""Where the consumption of a queue begins: a stored offset wins, else what the consumer asked for.

By default that is when the group first consumed the topic, so a queue that was added later begins at its first message,
and one that was away begins without what is older than the group. An offset for each queue, committed when the group
begins, would miss the brokers that are down at that time.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum

from pointsman.wire.clock import Clock
from pointsman.wire.group_topics import is_retry_topic
from pointsman_client.aio import SharedQuestion
from pointsman_client.consumer.coordination import BegunTopics, OffsetStore
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.transports.transport import Transport


class ConsumeFrom(StrEnum):
    """Where a group begins a queue that it has no committed offset for (RocketMQ ``ConsumeFromWhere``)."""

    LAST_OFFSET = "LAST_OFFSET"
    """With what is sent from now on, where the group is new to the topic. Else, in a queue that was added or is back,
    with the first message born since the group first consumed the topic; less a minute, for clocks that differ."""
    FIRST_OFFSET = "FIRST_OFFSET"
    """At the first message that is still there."""
    TIMESTAMP = "TIMESTAMP"
    """At the first message born at or after ``consume_timestamp``."""


CLOCK_TOLERANCE = timedelta(seconds=60)
"""How far a producer's clock may be behind that of the consumer that began a topic. A group that is new to a topic may
read messages of as long before."""


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
        clock: Clock,
    ) -> None:
        self._store = store
        self._load = SharedQuestion(store.load)
        self._begin = SharedQuestion(self._begin_topics)
        self._begun: dict[str, datetime] = {}
        """The earliest moments known here: a store that lost its memory learns them again."""
        self._clock = clock
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

    async def stored_within(self, queue: MessageQueue, end: int) -> int | None:
        """The highest committed offset that is not beyond ``end``; None if there is none. Raises as :meth:`stored`."""
        loaded = await self._load.about(queue)
        if queue in loaded.unknown:
            raise loaded.unknown[queue]
        found = (each[queue] for each in (loaded.offsets, loaded.lower) if queue in each)
        return max((offset for offset in found if offset <= end), default=None)

    async def wanted_since(self, queue: MessageQueue) -> datetime | None:
        """From which birth on messages are wanted of a queue without a committed offset; None: from the first on.

        A retry topic is read from its first message on. Raises why it is not known: the queue must not begin then.
        """
        if self._consume_from is ConsumeFrom.FIRST_OFFSET or is_retry_topic(queue.topic):
            return None
        if self._consume_from is ConsumeFrom.TIMESTAMP and self._consume_timestamp is not None:
            return self._consume_timestamp
        begun = await self._begin.about(queue.topic)
        if queue.topic in begun.unknown:
            raise begun.unknown[queue.topic]
        return begun.moments[queue.topic] - CLOCK_TOLERANCE

    async def initial(self, addr: str, queue: MessageQueue, since: datetime | None) -> int:
        """The offset for a queue without a committed one, by what :meth:`wanted_since` returned."""
        return await (self.first(addr, queue) if since is None else self.at(addr, queue, since))

    async def _begin_topics(self, topics: Collection[str]) -> BegunTopics:
        now = self._clock.utc_now()
        begun = await self._store.begin({topic: min(now, self._begun.get(topic, now)) for topic in topics})
        self._begun.update(begun.moments)
        return begun

    async def first(self, addr: str, queue: MessageQueue) -> int:
        """The first offset that is still there."""
        return await self._transport.min_offset(addr, queue, timeout_seconds=self._timeout_seconds)

    async def at(self, addr: str, queue: MessageQueue, at: datetime) -> int:
        """The offset of the first message born at or after a time."""
        return await self._transport.offset_at(addr, queue, at, timeout_seconds=self._timeout_seconds)
