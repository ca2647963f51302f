"""Acknowledges the messages that a listener finished, several in one request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pointsman.clock import Clock
from pointsman_client.aio import end_tasks, start_task
from pointsman_client.consumer.held_leases import HeldLeases
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import LeaseExpiredError, PointsmanError

RETRY_SECONDS = 1.0
"""Pause after a broker did not confirm."""
END_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Acknowledger:
    """Has one request at a time for each broker; what is finished during it is in the next one.

    A message whose acknowledgement fails is acknowledged again until its lease is over.
    """

    def __init__(self, leases: HeldLeases, *, group: str, clock: Clock, on_done: Callable[[], None]) -> None:
        """``on_done`` is called when :attr:`pending` has become less."""
        self._leases = leases
        self._group = group
        self._clock = clock
        self._on_done = on_done
        self._finished: dict[BrokerKey, list[ReceivedMessage]] = {}
        self._tasks: dict[BrokerKey, asyncio.Task[None]] = {}
        self._is_failing = False
        self.pending = 0
        """Number of messages that are finished and not acknowledged yet."""

    def finish(self, message: ReceivedMessage) -> None:
        """Acknowledge a message soon."""
        key = message.queue.broker_key
        self._finished.setdefault(key, []).append(message)
        self.pending += 1
        if key not in self._tasks:
            name = f"pointsman-consumer-{self._group}-acknowledge"
            self._tasks[key] = start_task(self._acknowledge_at(key), name=name)

    async def done(self) -> None:
        """Wait until all are acknowledged, or their leases are over."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        """Give up what is not acknowledged: it is delivered again."""
        await end_tasks(list(self._tasks.values()), timeout_seconds=END_SECONDS)

    async def _acknowledge_at(self, key: BrokerKey) -> None:
        try:
            while messages := self._finished.pop(key, None):
                failed = await self._acknowledge(messages)
                self.pending -= len(messages) - len(failed)
                self._on_done()
                if failed:
                    self._finished[key] = failed + self._finished.get(key, [])
                    await self._clock.sleep(RETRY_SECONDS)
        finally:
            del self._tasks[key]

    async def _acknowledge(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return the messages that no broker has confirmed and that are still leased."""
        failure: PointsmanError | None = None
        try:
            await self._leases.acknowledge(messages)
        except LeaseExpiredError as error:
            logger.warning("group %s finished messages that are delivered again, too: %s", self._group, error)
        except PointsmanError as error:
            failure = error
        if failure is not None and not self._is_failing:
            logger.warning("group %s cannot acknowledge messages, it is tried again: %s", self._group, failure)
        self._is_failing = failure is not None
        return [] if failure is None else [message for message in messages if self._leases.is_valid(message)]
