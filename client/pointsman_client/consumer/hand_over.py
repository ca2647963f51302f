"""How a queue comes from its old owner to its new one: by its lock, so that what is in flight is finished first."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.wire.clock import Clock
from pointsman_client.aio import SharedQuestion
from pointsman_client.consumer.coordination import QueueLocks
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.process_queue import LockTime
from pointsman_client.core.rebalance import Members

TRY_SECONDS = 0.25
"""Between two tries for a lock that another member holds; RocketMQ's ordered consumers wait 0.5 s."""


class HandOver:
    """Takes queues over for one member.

    An ordered consumer begins with the lock or not at all. A concurrent one repeats at worst a few messages, so it does
    not wait for ever: not for a holder that is no member any more, not for agents that are away, and for a living
    member at most ``timeout_seconds``.
    """

    def __init__(
        self,
        locks: QueueLocks,
        *,
        members: Callable[[], Members | None],
        is_ordered: bool,
        timeout_seconds: float,
        clock: Clock,
    ) -> None:
        self._lock = SharedQuestion(locks.lock)
        self._holders = SharedQuestion(locks.holders)
        self._members = members
        self._is_ordered = is_ordered
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    async def acquire(self, queue: MessageQueue, lock: LockTime) -> None:
        """Return when the queue may be begun."""
        ends_at = self._clock.monotonic() + self._timeout_seconds
        while not await self._try(queue, lock):
            if not self._is_ordered and (self._clock.monotonic() >= ends_at or await self._is_free(queue)):
                # Whoever held it may have let go between the two questions.
                await self._try(queue, lock)
                return
            await self._clock.sleep(TRY_SECONDS)

    async def _try(self, queue: MessageQueue, lock: LockTime) -> bool:
        asked_at = self._clock.monotonic()
        granted = queue in await self._lock.about(queue)
        if granted:
            lock.granted(now=asked_at)
        return granted

    async def _is_free(self, queue: MessageQueue) -> bool:
        holder = (await self._holders.about(queue)).get(queue)
        if holder is None:
            return True
        members = self._members()
        return members is not None and holder not in members.client_ids
