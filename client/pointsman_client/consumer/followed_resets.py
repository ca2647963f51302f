"""Follows the resets of operators: loads offsets that may be reset, and moves the queues that are."""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.consumer.queue_table import QueueTable
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.ports.coordination import OffsetStore

RETRY_SECONDS = 1.0
"""Retry interval while an offset cannot be loaded."""
WAIT_SECONDS = 3_600.0
"""How long to wait for the next check; there is nothing to do when it ends."""


class FollowedResets:
    """Checks queues while :meth:`run` runs. A commit after a reset is refused too, so a lost notice only costs time."""

    def __init__(self, store: OffsetStore, table: QueueTable, *, clock: Clock) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._unchecked: set[MessageQueue] = set()

    def check(self, queues: Iterable[MessageQueue]) -> None:
        """Load the offsets of these queues soon; they are retried while that fails, and while they are held."""
        self._unchecked.update(queues)
        if self._unchecked:
            self._wakeup.wake()

    async def run(self) -> None:
        """Check queues until cancelled."""
        while True:
            queues, self._unchecked = self._unchecked & self._table.queues, set()
            if queues:
                loaded = await self._store.load(queues)
                for queue, epoch in loaded.epochs.items():
                    held = self._table.find(queue)
                    if held is not None and queue in loaded.offsets:
                        held.follow_reset(loaded.offsets[queue], epoch)
                self._unchecked.update(loaded.unknown)
                if loaded.unknown:
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
            if not self._unchecked:
                await self._wakeup.wait(WAIT_SECONDS)
