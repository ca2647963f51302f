"""The queues that a member holds or is releasing (RocketMQ's process-queue table)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

from pointsman.clock import Clock
from pointsman_client.aio import BatchedQuery, done_within, end_tasks
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.consumer.offset_committer import OffsetCommitter
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.ports.coordination import QueueLocks

logger = logging.getLogger(__name__)

ABORT_SECONDS = 0.5


class QueueTable:
    """Starts queues and releases them. Release: stop pulling, finish messages in flight, commit, unlock."""

    def __init__(
        self,
        make: Callable[[MessageQueue], HeldQueue],
        committer: OffsetCommitter | None,
        locks: QueueLocks | None,
        *,
        finish_seconds: float,
        is_ordered: bool,
        clock: Clock,
    ) -> None:
        """``committer``: None commits nothing. ``finish_seconds``: time for messages in flight; infinity: no limit.
        ``is_ordered``: a queue with a message in flight is not unlocked; its lock expires."""
        self._make = make
        self._committer = committer
        self._unlock = None if locks is None else BatchedQuery(locks.unlock)
        self._finish_seconds = finish_seconds
        self._is_ordered = is_ordered
        self._clock = clock
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._releases: dict[HeldQueue, asyncio.Task[None]] = {}

    @property
    def held(self) -> tuple[HeldQueue, ...]:
        """Queues held by this member."""
        return tuple(self._held.values())

    @property
    def locked(self) -> tuple[HeldQueue, ...]:
        """Queues whose lock this member has: those held and those being released."""
        return (*self._held.values(), *self._releases)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Held queues."""
        return frozenset(self._held)

    @property
    def releasing(self) -> frozenset[MessageQueue]:
        """Queues that are being released."""
        return frozenset(each.queue for each in self._releases)

    def find(self, queue: MessageQueue) -> HeldQueue | None:
        """Return the queue if it is held."""
        return self._held.get(queue)

    def expired(self, *, now: float) -> tuple[MessageQueue, ...]:
        """Return queues to re-acquire: not pulled for too long, or failed."""
        return tuple(queue for queue, held in self._held.items() if held.needs_restart(now=now))

    def add(self, queues: Iterable[MessageQueue]) -> None:
        """Start queues, each in its own task."""
        for queue in queues:
            held = self._held[queue] = self._make(queue)
            held.start()

    def drop(self, queues: Iterable[MessageQueue], *, finish_seconds: float | None = None) -> None:
        """Release queues, each in its own task; they are ``releasing`` until that task ends.

        ``finish_seconds``: None: that of the table.
        """
        seconds = self._finish_seconds if finish_seconds is None else finish_seconds
        for queue in queues:
            held = self._held.pop(queue, None)
            if held is None:
                continue
            task = asyncio.create_task(
                self._release(held, seconds), name=f"pointsman-release-{queue.topic}-{queue.queue_id}"
            )
            self._releases[held] = task
            task.add_done_callback(lambda _, held=held: self._end_release(held))  # type: ignore[misc]

    async def release_all(self, *, finish_seconds: float) -> None:
        """Release all queues, and wait for it."""
        self.drop(list(self._held), finish_seconds=finish_seconds)
        await self.settled()

    async def abort(self) -> None:
        """Cancel the releases that :meth:`release_all` did not complete in time."""
        releases, held = list(self._releases.values()), list(self._held.values())
        await end_tasks(releases, timeout_seconds=ABORT_SECONDS)
        await asyncio.gather(*(each.stop() for each in held))

    async def settled(self) -> None:
        """Wait until no queue is being released."""
        if self._releases:
            await asyncio.wait(list(self._releases.values()))

    async def _release(self, held: HeldQueue, finish_seconds: float) -> None:
        await held.stop()
        await self._finish(held, finish_seconds)
        held.is_released = True
        if self._committer is not None:
            await self._committer.commit([held])
        if self._is_ordered and held.is_in_flight:
            logger.warning("a listener still has a message of %s; its lock is not released and will expire", held.queue)
        elif self._unlock is not None:
            await self._unlock.about(held.queue)

    async def _finish(self, held: HeldQueue, finish_seconds: float) -> None:
        if not held.is_in_flight:
            return
        if finish_seconds == math.inf:
            await held.wait_idle()
            return
        idle = asyncio.ensure_future(held.wait_idle())
        try:
            await done_within(idle, finish_seconds, clock=self._clock)
        finally:
            idle.cancel()

    def _end_release(self, held: HeldQueue) -> None:
        task = self._releases.pop(held)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s was released without a clean hand-over", held.queue, exc_info=error)
