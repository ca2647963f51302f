"""Offsets that could not be committed when they should have been: they are not forgotten with their queue."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime

from pointsman_client.consumer.coordination import BegunTopics, LoadedOffsets, OffsetStore
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import PointsmanError, RequestRejectedError

logger = logging.getLogger(__name__)


class OwedOffsets:
    """An :class:`OffsetStore` before another one.

    A broker that dies takes its queues out of the routes, so they are let go of while nobody takes their offsets. Those
    are committed with the next commit that passes here, and in any case before the queue's offset is asked for: the
    store never goes backwards by it.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._owed: dict[MessageQueue, int] = {}

    @property
    def owed(self) -> Mapping[MessageQueue, int]:
        """Queues with the offset that the store does not have yet; at most those that were held here."""
        return self._owed

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`."""
        if not self._owed.keys().isdisjoint(queues):
            await self.commit({queue: self._owed[queue] for queue in queues if queue in self._owed})
        return await self._store.load(queues)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`."""
        return await self._store.begin(moments)

    async def commit(
        self, offsets: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`."""
        if reset:
            for queue in offsets:
                self._owed.pop(queue, None)
            return await self._store.commit(offsets, reset=True)
        wanted = {**self._owed, **offsets}
        failures = await self._store.commit(wanted)
        for queue, offset in wanted.items():
            error = failures.get(queue)
            if error is None:
                self._owed.pop(queue, None)
            elif isinstance(error, RequestRejectedError):
                # The broker came back with less, or without the queue: this offset is nobody's any more.
                if self._owed.pop(queue, None) is not None:
                    logger.warning("offset %d of %s is given up: %s", offset, queue, error)
            else:
                self._owed[queue] = offset
        return {queue: error for queue, error in failures.items() if queue in offsets}
