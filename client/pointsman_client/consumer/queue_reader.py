"""Pulls of queues, from whichever broker of a replica group can be read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from pointsman.wire.clock import Clock
from pointsman_client.consumer.start_offset import StartOffsets
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import QueueFailures, ReadChoice
from pointsman_client.core.route import BrokerData
from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError, OffsetBeyondEndError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.transports.transport import PulledMessages, Transport, answer_of

SLACK_SECONDS = 5.0
"""A transport that keeps its time ends before; one that does not is cut off."""

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class QueueReader:
    """Reads for one consumer; what it learns of one queue's broker counts for all queues there."""

    def __init__(
        self,
        transport: Transport,
        starts: StartOffsets,
        *,
        broker_of: Callable[[str, str], BrokerData | None],
        group: str,
        batch_size: int,
        wait_seconds: float,
        timeout_seconds: float,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        self._transport = transport
        self._starts = starts
        self._broker_of = broker_of
        self._group = group
        self._batch_size = batch_size
        self._wait_seconds = wait_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._hook = hook
        self._choice = ReadChoice()
        self._failures = QueueFailures()

    async def start_offset(self, queue: MessageQueue) -> tuple[int | None, int]:
        """The committed offset, if there is one, and the offset to begin at."""
        stored = await self._starts.stored(queue)
        if stored is not None:
            return stored, stored
        since = await self._starts.wanted_since(queue)
        return None, await self._at_broker(queue, lambda addr: self._starts.initial(addr, queue, since))

    async def pull(self, queue: MessageQueue, offset: int) -> PulledMessages:
        """Pull once; waits at the broker while there is nothing."""
        began_at = self._clock.monotonic()
        pulled = await self._at_broker(
            queue,
            lambda addr: self._transport.pull(
                addr,
                queue,
                offset,
                max_messages=self._batch_size,
                wait_seconds=self._wait_seconds,
                timeout_seconds=self._timeout_seconds,
            ),
            wait_seconds=self._wait_seconds,
        )
        seconds = self._clock.monotonic() - began_at
        self._hook.pulled(group=self._group, queue=queue, messages=len(pulled.messages), seconds=seconds)
        return pulled

    async def offset_within(self, queue: MessageQueue, error: OffsetBeyondEndError) -> int | None:
        """Where to go on in a queue that ends before the offset; None: a slave said so, which lags behind its master.

        The store is asked again: its offsets are kept beside the messages and share their fate.
        """
        broker = self._broker_of(queue.cluster, queue.broker_name)
        if broker is None or broker.master is None or broker.master.addr != error.addr:
            return None
        stored = await self._starts.stored_within(queue, error.end)
        if stored is not None:
            return stored
        return await self._at_broker(queue, lambda addr: self._starts.first(addr, queue))

    async def offset_at(self, queue: MessageQueue, at: datetime) -> int:
        """The offset of the first message born at or after a time."""
        return await self._at_broker(queue, lambda addr: self._starts.at(addr, queue, at))

    def note_failure(self, queue: MessageQueue, error: PointsmanError) -> None:
        """Say that reading a queue failed, unless it was said of its broker."""
        subject = self._failures.failed(queue, error)
        if subject is not None:
            logger.warning("group %s cannot read from %s: %s", self._group, subject, error)

    def note_success(self, queue: MessageQueue) -> None:
        """Say that reading works again, if it was said that it does not."""
        for subject in self._failures.succeeded(queue):
            logger.warning("group %s reads from %s again", self._group, subject)

    async def _at_broker(
        self, queue: MessageQueue, ask: Callable[[str], Awaitable[AnswerT]], *, wait_seconds: float = 0.0
    ) -> AnswerT:
        broker = self._broker_of(queue.cluster, queue.broker_name)
        addr = self._choice.choose(broker, now=self._clock.monotonic())
        if addr is None:
            raise BrokerUnreachableError(f"{queue.cluster}/{queue.broker_name}", "no route has it")
        try:
            allowed = wait_seconds + self._timeout_seconds + SLACK_SECONDS
            answer = await answer_of(addr, ask(addr), timeout_seconds=allowed)
        except (BrokerUnreachableError, BrokerTimeoutError):
            self._choice.failed(addr, now=self._clock.monotonic())
            raise
        self._choice.succeeded(addr)
        return answer
