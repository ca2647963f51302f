"""Pulls from queues, at a readable broker of the replica group."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from pointsman.clock import Clock
from pointsman.group_topics import is_group_topic
from pointsman_client.consumer.start_offset import StartOffsets, StoredOffset
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.read_choice import QueueFailures, ReadChoice
from pointsman_client.core.route import BrokerData
from pointsman_client.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    GroupModeError,
    OffsetBeyondEndError,
    PointsmanError,
)
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.leases import LeasesMessages
from pointsman_client.ports.transport import PulledMessages, Reader, Transport, response_of

SLACK_SECONDS = 5.0
"""Extra time after which a call is cancelled whose transport exceeds its timeout."""

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT")


class QueueReader:
    """Reads queues for one consumer. Failures of a broker apply to all of its queues."""

    def __init__(
        self,
        transport: Transport,
        starts: StartOffsets,
        *,
        broker_of: Callable[[str, str], BrokerData | None],
        group: str,
        expression_of: Callable[[str], str],
        batch_size: int,
        wait_seconds: float,
        timeout_seconds: float,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        self._transport = transport
        self._ends_in_time: bool = getattr(transport, "ends_in_time", False)
        self._starts = starts
        self._broker_of = broker_of
        self._group = group
        self._expression_of = expression_of
        self._batch_size = batch_size
        self._wait_seconds = wait_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._hook = hook
        self._choice = ReadChoice()
        self._failures = QueueFailures()

    async def start_offset(self, queue: MessageQueue) -> tuple[StoredOffset, int]:
        """Return the committed offset, and the offset to start at."""
        await self._refuse_leases(queue)
        stored = await self._starts.stored(queue)
        if stored.offset is not None:
            return stored, stored.offset
        since = await self._starts.wanted_since(queue)
        return stored, await self._at_broker(queue, lambda addr: self._starts.initial(addr, queue, since))

    async def _refuse_leases(self, queue: MessageQueue) -> None:
        """Raise GroupModeError if the group leases the messages of the queue.

        Not while the broker is down: a queue with a committed offset must start without it.
        """
        transport, group = self._transport, self._group
        if not isinstance(transport, LeasesMessages) or transport.keeps_lease_offsets or is_group_topic(queue.topic):
            return
        try:
            leased = await self._at_broker(
                queue,
                lambda addr: transport.backlogs(addr, [queue], group=group, timeout_seconds=self._timeout_seconds),
            )
        except BrokerError:
            return
        if leased:
            problem = f"it leases the messages of {queue}: use SimpleConsumer, or another group"
            raise GroupModeError(group, queue.topic, problem)

    async def pull(self, queue: MessageQueue, offset: int) -> PulledMessages:
        """Pull once. Without messages the pull waits at the broker for up to ``wait_seconds``."""
        reader = Reader(self._group, self._expression_of(queue.topic))
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
                reader=reader,
            ),
            wait_seconds=self._wait_seconds,
        )
        seconds = self._clock.monotonic() - began_at
        self._hook.pulled(group=self._group, queue=queue, messages=len(pulled.messages), seconds=seconds)
        return pulled

    async def offset_within(self, queue: MessageQueue, error: OffsetBeyondEndError) -> int | None:
        """Return where to continue in a queue that ends before the offset; None: the error is from a lagging slave.

        The stored offset is loaded again, since the broker may have lost it together with the messages.
        """
        broker = self._broker_of(queue.cluster, queue.broker_name)
        if broker is None or broker.master is None or broker.master.addr != error.addr:
            return None
        stored = await self._starts.stored_within(queue, error.end)
        if stored is not None:
            return stored
        return await self._at_broker(queue, lambda addr: self._starts.first(addr, queue))

    async def offset_at(self, queue: MessageQueue, at: datetime) -> int:
        """Return the offset of the first message born at or after a time."""
        return await self._at_broker(queue, lambda addr: self._starts.at(addr, queue, at))

    def note_failure(self, queue: MessageQueue, error: PointsmanError) -> None:
        """Log that reading a queue failed, once per broker."""
        subject = self._failures.failed(queue, error, now=self._clock.monotonic())
        if subject is not None:
            logger.warning("group %s cannot read from %s: %s", self._group, subject, error)

    def note_success(self, queue: MessageQueue) -> None:
        """Log that reading works again, if its failure was logged."""
        for subject in self._failures.succeeded(queue, now=self._clock.monotonic()):
            logger.warning("group %s reads from %s again", self._group, subject)

    async def _at_broker(
        self, queue: MessageQueue, request: Callable[[str], Awaitable[ResponseT]], *, wait_seconds: float = 0.0
    ) -> ResponseT:
        broker = self._broker_of(queue.cluster, queue.broker_name)
        addr = self._choice.choose(broker, now=self._clock.monotonic())
        if addr is None:
            raise BrokerUnreachableError(f"{queue.cluster}/{queue.broker_name}", "it is in no route")
        try:
            allowed = wait_seconds + self._timeout_seconds + SLACK_SECONDS
            response = await response_of(addr, request(addr), timeout_seconds=allowed, ends_in_time=self._ends_in_time)
        except (BrokerUnreachableError, BrokerTimeoutError):
            self._choice.failed(addr, now=self._clock.monotonic())
            raise
        self._choice.succeeded(addr)
        return response
