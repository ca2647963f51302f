"""Sends the messages of an outbox, in order per queue, as soon as the queue can be written."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pointsman.clock import Clock
from pointsman_client.aio import Wakeup, end_tasks, finish_tasks, start_task
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import OrderKey
from pointsman_client.errors import (
    ClientClosedError,
    InvalidInputError,
    OutboxFailedError,
    PointsmanError,
    QueueUnavailableError,
)
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.producer.outbox import Outbox, Parked

logger = logging.getLogger(__name__)

IDLE_SECONDS = 3_600.0
RETRY_SECONDS = 1.0
"""Wait between two attempts for a queue; a route change ends it."""
REFUSED_RETRY_SECONDS = 3_600.0
"""Wait until refused messages are tried again: a delay that is too long for a broker becomes shorter."""
MAX_BATCH_MESSAGES = 64
"""Maximum number of messages of a queue per send."""
MAX_PARALLEL_QUEUES = 16
"""Queues that are sent to in parallel, so that a broker that hangs does not block the others."""

SendParked = Callable[[MessageQueue, Sequence[OutgoingMessage]], Awaitable[object]]
"""Sends to exactly this queue; raises a PointsmanError if the messages were not stored."""

QueuesInstead = Callable[[MessageQueue], Callable[[OrderKey], MessageQueue] | None]
"""Returns the map of keys to use for a queue that was removed permanently; None: it is only not writable now."""

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class _Batch:
    """Changes of the outbox in one transaction."""

    added: list[Parked] = field(default_factory=list)
    sent: list[Parked] = field(default_factory=list)
    problem: str = "was not written completely"
    """Empty: the transaction is on the disk."""


@dataclass(slots=True)
class _KeyInOrder:
    """The waiting messages of one order key."""

    queue: MessageQueue
    """That of the last one."""
    waiting: int = 0


class OutboxSender:
    """Parks messages in one producer's outbox, and runs the task that sends them."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        clock: Clock,
        send: SendParked,
        queues_instead: QueuesInstead,
        max_batch_size: int,
        metrics_hook: MetricsHook,
    ) -> None:
        self._outbox = outbox
        self._send = send
        self._queues_instead = queues_instead
        self._max_batch_size = max_batch_size
        self._metrics_hook = metrics_hook
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._lanes: dict[MessageQueue, deque[Parked]] = {}
        self._keys: dict[tuple[str, OrderKey], _KeyInOrder] = {}
        self._failing: set[MessageQueue] = set()
        self._refused: list[Parked] = []
        """Messages that transport or broker do not accept: they wait, too, but hold up no others."""
        self._retry_refused_at = math.inf
        self._waiting: Counter[str] = Counter()
        # One call of the outbox at a time, in a thread, since it blocks on the disk.
        self._file_access = asyncio.Lock()
        self._batch = _Batch()
        """Changes that wait for the previous transaction."""
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    async def start(self) -> None:
        """Open the outbox and start to send the messages in it. Raises :class:`OutboxFailedError`."""
        for parked in await self._shielded(self._in_thread(self._outbox.open)):
            self._add(parked)
        self._tasks.append(start_task(self._run(), name="pointsman-outbox"))

    def is_waiting_for(self, queue: MessageQueue) -> bool:
        """Whether messages wait for the queue; later ones must then be parked, too, to keep the order."""
        return queue in self._lanes

    def queue_of_key(self, topic: str, order_key: OrderKey) -> MessageQueue | None:
        """Return the queue for which messages of the key wait; None: no message of it waits."""
        key = self._keys.get((topic, order_key))
        return None if key is None else key.queue

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Queues for which messages wait."""
        return frozenset(self._lanes)

    @property
    def waiting(self) -> int:
        """Number of waiting messages."""
        return sum(self._waiting.values())

    async def put(self, queue: MessageQueue, outgoing: OutgoingMessage, order_key: OrderKey | None) -> None:
        """Park a message after the others of its queue.

        Raises :class:`OutboxFullError`, :class:`OutboxFailedError`.
        """
        if self._closed:
            raise ClientClosedError
        await self._shielded(self._put(queue, outgoing, order_key))

    def wake(self) -> None:
        """Retry now, because a route changed."""
        self._wakeup.wake()

    async def close(self, *, timeout_seconds: float) -> None:
        """Stop sending and close the file, which retains unsent messages."""
        self._closed = True
        await end_tasks(self._tasks, timeout_seconds=timeout_seconds / 2)
        # Waits for a write in progress, which has the lock.
        closing = asyncio.create_task(self._in_thread(self._outbox.close), name="pointsman-outbox-close")
        await finish_tasks([closing], timeout_seconds=timeout_seconds / 2)

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait(RETRY_SECONDS if self._lanes else self._idle_seconds())
            if self._clock.monotonic() >= self._retry_refused_at:
                refused, self._refused, self._retry_refused_at = self._refused, [], math.inf
                for parked in refused:
                    self._append(parked)
            waiting = list(self._lanes)
            for begin in range(0, len(waiting), MAX_PARALLEL_QUEUES):
                async with asyncio.TaskGroup() as group:
                    for queue in waiting[begin : begin + MAX_PARALLEL_QUEUES]:
                        group.create_task(self._empty(queue), name="pointsman-outbox-queue")

    def _idle_seconds(self) -> float:
        return min(IDLE_SECONDS, max(0.0, self._retry_refused_at - self._clock.monotonic()))

    async def _empty(self, queue: MessageQueue) -> None:
        lane = self._lanes[queue]
        most = MAX_BATCH_MESSAGES
        while lane:
            batch = self._head_of(lane, most=most)
            most = MAX_BATCH_MESSAGES
            try:
                await self._send(queue, [parked.outgoing for parked in batch])
            except InvalidInputError as error:
                # A message of the batch must not hold up the others.
                most = 1
                if len(batch) == 1:
                    text = "parked message %s cannot be sent to %s; it stays in the outbox, tried again in an hour: %s"
                    logger.warning(text, batch[0].outgoing.message_id, queue, error)
                    # Its key's later messages overtake it, so the key need not keep its queue for it.
                    self._refused += [replace(each, order_key=None) for each in self._pop(queue, 1)]
                    self._retry_refused_at = min(
                        self._retry_refused_at, self._clock.monotonic() + REFUSED_RETRY_SECONDS
                    )
                    await asyncio.sleep(0)  # there may be thousands, and such a send does not wait for anything
            except PointsmanError as error:
                if queue not in self._failing:
                    logger.warning("%d parked messages cannot be sent to %s yet; retrying: %s", len(lane), queue, error)
                self._failing.add(queue)
                if isinstance(error, QueueUnavailableError):
                    self._move(queue)
                return
            else:
                self._failing.discard(queue)
                await self._remove_sent(queue, batch)

    def _head_of(self, lane: deque[Parked], *, most: int) -> list[Parked]:
        batch: list[Parked] = []
        size = 0
        for parked in lane:
            size += parked.outgoing.message.size
            if batch and (size > self._max_batch_size or len(batch) == most):
                break
            # RocketMQ has no batches with delayed messages.
            if parked.outgoing.due_at is not None:
                return batch or [parked]
            batch.append(parked)
        return batch

    def _add(self, parked: Parked) -> None:
        if not self._lanes:
            self._wakeup.wake()
        self._append(parked)
        self._waiting[parked.queue.topic] += 1
        self._metrics_hook.parked(topic=parked.queue.topic, waiting=self._waiting[parked.queue.topic])

    def _append(self, parked: Parked) -> None:
        self._lanes.setdefault(parked.queue, deque()).append(parked)
        if parked.order_key is not None:
            key = self._keys.setdefault((parked.queue.topic, parked.order_key), _KeyInOrder(parked.queue))
            key.queue = parked.queue
            key.waiting += 1

    def _move(self, queue: MessageQueue) -> None:
        """Let messages of a queue that was removed follow their keys; those without a key remain."""
        queue_of = self._queues_instead(queue)
        if queue_of is None:
            return
        moved = 0
        for each in self._pop(queue, len(self._lanes[queue])):
            other = queue if each.order_key is None else queue_of(each.order_key)
            moved += other != queue
            self._append(replace(each, queue=other))
        if moved:
            logger.warning("%d parked messages follow their keys to other queues: %s was removed", moved, queue)
            self._wakeup.wake()

    async def _remove_sent(self, queue: MessageQueue, batch: Sequence[Parked]) -> None:
        try:
            await self._shielded(self._write(sent=batch))
        except OutboxFailedError as error:
            logger.warning("%d sent messages stay in the outbox; a restart sends them again: %s", len(batch), error)
        self._outbox.discount(self._pop(queue, len(batch)))
        self._waiting[queue.topic] -= len(batch)
        self._metrics_hook.parked(topic=queue.topic, waiting=self._waiting[queue.topic])

    def _pop(self, queue: MessageQueue, number: int) -> list[Parked]:
        lane = self._lanes[queue]
        popped = [lane.popleft() for _ in range(number)]
        if not lane:
            del self._lanes[queue]
        for parked in popped:
            if parked.order_key is not None:
                key = self._keys[queue.topic, parked.order_key]
                key.waiting -= 1
                if not key.waiting:
                    del self._keys[queue.topic, parked.order_key]
        return popped

    async def _put(self, queue: MessageQueue, outgoing: OutgoingMessage, order_key: OrderKey | None) -> None:
        parked = self._outbox.add(queue, outgoing, order_key)
        try:
            await self._write(added=[parked])
        except OutboxFailedError:
            self._outbox.discount([parked])
            raise
        self._add(parked)

    async def _write(self, *, added: Sequence[Parked] = (), sent: Sequence[Parked] = ()) -> None:
        """Write in one transaction with other callers that wait for the disk; all raise :class:`OutboxFailedError`."""
        batch = self._batch
        batch.added += added
        batch.sent += sent
        async with self._file_access:
            if batch is self._batch:
                self._batch = _Batch()
                try:
                    await asyncio.to_thread(self._outbox.write, batch.added, batch.sent)
                    batch.problem = ""
                except OutboxFailedError as error:
                    batch.problem = error.why
        if batch.problem:
            raise OutboxFailedError(str(self._outbox.path), batch.problem)

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        async with self._file_access:
            return await asyncio.to_thread(work)

    async def _shielded(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Finish the work when the caller is cancelled: a thread cannot be stopped, and its result must be recorded."""
        return await asyncio.shield(asyncio.create_task(work, name="pointsman-outbox-write"))
