"""Commits offsets of finished messages: at an interval, when a queue is released, and on close."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from pointsman.clock import Clock
from pointsman_client.aio import BatchedQuery
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import QueueFailures
from pointsman_client.errors import OffsetResetError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import OffsetStore

logger = logging.getLogger(__name__)


class OffsetCommitter:
    """Commits one at a time, so that an older commit never overtakes a newer one."""

    def __init__(self, store: OffsetStore, *, group: str, clock: Clock, hook: MetricsHook) -> None:
        self._store = store
        self._group = group
        self._clock = clock
        self._hook = hook
        self._batch = BatchedQuery(self._commit_all, one_at_a_time=True)
        self._failing = QueueFailures()

    async def run(self, held: Callable[[], Iterable[HeldQueue]], *, interval_seconds: float) -> None:
        """Commit at the interval until cancelled."""
        while True:
            await self._clock.sleep(interval_seconds)
            await self.commit(list(held()))

    async def commit(self, held: Collection[HeldQueue]) -> dict[MessageQueue, PointsmanError]:
        """Pass the offsets of all queues to the store, which skips unchanged ones; return failed queues with errors.

        Calls during a running commit are combined into one, so a release of many queues waits only once for an agent.
        """
        failures = await self._batch.about(*held)
        mine = {each.queue for each in held}
        return {queue: error for queue, error in failures.items() if queue in mine}

    async def _commit_all(self, held: Collection[HeldQueue]) -> dict[MessageQueue, PointsmanError]:
        # A reset is a separate commit: other offsets must not go backwards.
        failures = await self._commit([each for each in held if each.needs_reset], reset=True)
        failures |= await self._commit([each for each in held if not each.needs_reset], reset=False)
        self._note((each.queue for each in held if each.commit_offset is not None), failures)
        return failures

    async def _commit(self, candidates: Iterable[HeldQueue], *, reset: bool) -> dict[MessageQueue, PointsmanError]:
        offsets = {each: offset for each in candidates if (offset := each.commit_offset) is not None}
        if not offsets:
            return {}
        epochs = {each.queue: each.epoch for each in offsets if each.epoch}
        wanted = {each.queue: offset for each, offset in offsets.items()}
        # An application's own store may be older than epochs, and then never loads one.
        stated = {"epochs": epochs} if epochs else {}
        failures = dict(await self._store.commit(wanted, reset=reset, **stated))
        for each, offset in offsets.items():
            error = failures.get(each.queue)
            if isinstance(error, OffsetResetError):
                each.follow_reset(error.offset, error.epoch)
            if error is not None or each.epoch != epochs.get(each.queue, 0):
                continue
            each.committed = offset
            if reset and each.commit_offset is not None and each.commit_offset >= offset:
                # Otherwise another seek moved it back during the commit.
                each.needs_reset = False
        result = next((error.code for error in failures.values()), "ok")
        self._hook.offsets_committed(group=self._group, queues=len(offsets), result=result)
        return failures

    def _note(self, queues: Iterable[MessageQueue], failures: dict[MessageQueue, PointsmanError]) -> None:
        now = self._clock.monotonic()
        # A reset queue has followed, and said so.
        failures = {queue: error for queue, error in failures.items() if not isinstance(error, OffsetResetError)}
        for queue, error in failures.items():
            if (subject := self._failing.failed(queue, error, now=now)) is not None:
                logger.warning("offsets of group %s on %s cannot be committed: %s", self._group, subject, error)
        # A queue without an offset to commit gives no information about its broker.
        bad = {queue.broker_key for queue in failures}
        for queue in queues:
            for again in self._failing.succeeded(queue, now=now) if queue.broker_key not in bad else ():
                logger.warning("offsets of group %s on %s are committed again", self._group, again)
