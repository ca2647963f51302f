"""Renews the locks of the queues that a member holds."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pointsman.wire.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.consumer.coordination import QueueLocks
from pointsman_client.consumer.held_queue import HeldQueue

LOCK_INTERVAL_SECONDS = 20.0
"""RocketMQ ``rocketmq.client.rebalance.lockInterval``."""
AGAIN_SECONDS = 3.0
"""After a renewal that was not granted everywhere; RocketMQ tries such a queue again so soon."""


class LockKeeper:
    """Renews until cancelled. What an ordered queue's lost lock means, ``lost`` decides."""

    def __init__(
        self,
        locks: QueueLocks,
        *,
        held: Callable[[], Collection[HeldQueue]],
        renewed: Callable[[HeldQueue], None],
        lost: Callable[[HeldQueue], None],
        clock: Clock,
    ) -> None:
        self._locks = locks
        self._held = held
        self._renewed = renewed
        self._lost = lost
        self._clock = clock
        self._wakeup = Wakeup(clock)

    def renew_now(self) -> None:
        """Renew at once: an agent may have lost its memory, or another one keeps the locks from now on."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Renew in time, and sooner where it failed."""
        wait = LOCK_INTERVAL_SECONDS
        while True:
            await self._wakeup.wait(wait)
            wait = LOCK_INTERVAL_SECONDS if await self.renew() else AGAIN_SECONDS

    async def renew(self) -> bool:
        """Renew the locks of all queues that were begun; return whether each was granted."""
        begun = [each for each in self._held() if each.process_queue is not None]
        if not begun:
            return True
        asked_at = self._clock.monotonic()
        granted = await self._locks.lock([each.queue for each in begun])
        for each in begun:
            if each.queue in granted:
                each.lock.granted(now=asked_at)
                self._renewed(each)
            elif not each.lock.is_held(now=self._clock.monotonic()):
                self._lost(each)
        return len(granted) == len(begun)
