"""The offset at which the consumption of a queue starts: the stored one, else that of the option ``consume_from``.

By default it starts with messages born since the group first consumed the topic. A queue that was added later starts at
its first message, and a queue that was unavailable starts without messages older than the group. Committing an offset
for each queue when the group starts would miss brokers that are down at that time.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from pointsman.clock import Clock
from pointsman.group_topics import is_retry_topic
from pointsman_client.aio import BatchedQuery
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.ports.coordination import BegunTopics, OffsetStore
from pointsman_client.ports.transport import Transport

CLOCK_TOLERANCE = timedelta(seconds=60)
"""How far a producer's clock may be behind that of the group's first consumer. A group that is new to a topic may read
messages that are older by as much."""


class StoredOffset(NamedTuple):
    """The committed offset of a queue."""

    offset: int | None
    """None: there is none."""
    epoch: int = 0
    """When an operator reset it; 0: never."""


class StartOffsets:
    """Finds start offsets in the store and at the broker."""

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
        self._load = BatchedQuery(store.load)
        self._begin = BatchedQuery(self._begin_topics)
        self._begun: dict[str, datetime] = {}
        """The earliest times known here; they are recorded again in a store that lost them."""
        self._clock = clock
        self._transport = transport
        self._consume_from = consume_from
        self._consume_timestamp = consume_timestamp
        self._timeout_seconds = timeout_seconds

    async def stored(self, queue: MessageQueue) -> StoredOffset:
        """Return the committed offset. Raises the error if it is unknown: the queue must not start then."""
        loaded = await self._load.about(queue)
        if queue in loaded.unknown:
            raise loaded.unknown[queue]
        return StoredOffset(loaded.offsets.get(queue), loaded.epochs.get(queue, 0))

    async def stored_within(self, queue: MessageQueue, end: int) -> int | None:
        """Return the highest committed offset not beyond ``end``, or None. Raises as :meth:`stored`."""
        loaded = await self._load.about(queue)
        if queue in loaded.unknown:
            raise loaded.unknown[queue]
        found = (each[queue] for each in (loaded.offsets, loaded.lower) if queue in each)
        return max((offset for offset in found if offset <= end), default=None)

    async def wanted_since(self, queue: MessageQueue) -> datetime | None:
        """Return the birth time from which a queue without a committed offset is read; None: from its first message.

        A retry topic is read from its first message. Raises the error if the time is unknown: the queue must not start
        then.
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
        """Return the start offset of a queue without a committed one; ``since`` is from :meth:`wanted_since`."""
        return await (self.first(addr, queue) if since is None else self.at(addr, queue, since))

    async def _begin_topics(self, topics: Collection[str]) -> BegunTopics:
        now = self._clock.utc_now()
        begun = await self._store.begin({topic: min(now, self._begun.get(topic, now)) for topic in topics})
        self._begun.update(begun.moments)
        return begun

    async def first(self, addr: str, queue: MessageQueue) -> int:
        """Return the first offset that is still stored."""
        return await self._transport.min_offset(addr, queue, timeout_seconds=self._timeout_seconds)

    async def at(self, addr: str, queue: MessageQueue, at: datetime) -> int:
        """Return the offset of the first message born at or after a time."""
        return await self._transport.offset_at(addr, queue, at, timeout_seconds=self._timeout_seconds)
