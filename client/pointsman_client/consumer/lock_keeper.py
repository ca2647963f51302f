"""Renewal of a member's queue locks."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pointsman.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.ports.coordination import QueueLocks

LOCK_INTERVAL_SECONDS = 20.0
"""RocketMQ ``rocketmq.client.rebalance.lockInterval``."""
RETRY_SECONDS = 3.0
"""Interval after a renewal that was not granted for all queues, as in RocketMQ."""


class LockKeeper:
    """Renews locks until cancelled. Calls ``lost`` for a queue whose lock expired without a renewal."""

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
        """Renew immediately: an agent may have lost its state, or the locks are now at another agent."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Renew at the interval, and sooner after a failure."""
        wait = LOCK_INTERVAL_SECONDS
        while True:
            await self._wakeup.wait(wait)
            wait = LOCK_INTERVAL_SECONDS if await self.renew() else RETRY_SECONDS

    async def renew(self) -> bool:
        """Renew the locks of all started queues; return whether all were granted."""
        started = [each for each in self._held() if each.process_queue is not None]
        if not started:
            return True
        requested_at = self._clock.monotonic()
        granted = await self._locks.lock([each.queue for each in started])
        for each in started:
            if each.queue in granted:
                each.lock.granted(now=requested_at)
                self._renewed(each)
            elif not each.lock.is_held(now=self._clock.monotonic()):
                self._lost(each)
        return len(granted) == len(started)
