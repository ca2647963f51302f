"""One queue that this member holds: taken over, begun at its start, pulled until it is dropped."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pointsman.wire.backoff import FullJitterBackoff
from pointsman.wire.clock import Clock
from pointsman_client.aio import SharedQuestion, Wakeup, end_tasks
from pointsman_client.consumer.coordination import QueueLocks
from pointsman_client.consumer.queue_reader import QueueReader
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.process_queue import FlowLimits, LockTime, ProcessQueue
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import OffsetBeyondEndError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook

logger = logging.getLogger(__name__)

LOOK_SECONDS = 15.0
"""How often a queue that is full or paused looks again on its own; well within the time after which pulls expire."""
LAG_SECONDS = 1.0
"""Wait before a slave that has not come so far is asked again."""
BACKOFF_CAP_SECONDS = 5.0
STOP_SECONDS = 2.0
TRY_SECONDS = 0.25
"""Between two tries for a lock that another member holds; RocketMQ's ordered consumers wait 0.5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSurroundings:
    """What all queues of a consumer share."""

    group: str
    reader: QueueReader
    hand_over: HandOver | None
    """None: nobody else reads the queue, so there is nobody to take it over from."""
    accepts: Callable[[ReceivedMessage], bool]
    """Whether the subscription wants a message; others count as finished."""
    offer: Callable[[HeldQueue], None]
    """Told when there may be something to hand out."""
    begun: Callable[[HeldQueue], Awaitable[object]] | None
    """Awaited between the start of a queue that has no committed offset and its first pull. It commits the start: a
    member that takes the queue over from one that was killed must not begin at the queue's end."""
    limits: FlowLimits
    clock: Clock
    rng: random.Random
    hook: MetricsHook


class HeldQueue:
    """One queue's task, its messages and its lock."""

    def __init__(self, queue: MessageQueue, around: QueueSurroundings) -> None:
        self.queue = queue
        self.lock = LockTime()
        self.process_queue: ProcessQueue | None = None
        """None until its start offset is known."""
        self.committed: int | None = None
        """What the store has, as far as this member knows."""
        self.needs_reset = False
        """Whether the next commit may go backwards: the application sought, or the broker lost messages."""
        self.is_released = False
        """Whether the queue may be another member's by now."""
        self.is_paused = False
        self.end_offset: int | None = None
        """The queue's end as a pull that found nothing saw it."""
        self.filtered = 0
        """Messages skipped since the queue was taken over, because the subscription does not select their tags."""
        self._around = around
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = Wakeup(around.clock)
        self._idle = asyncio.Event()
        self._sought: int | None = None
        self._backoff = FullJitterBackoff(around.rng.uniform, cap=BACKOFF_CAP_SECONDS)

    # Life

    def start(self) -> None:
        """Begin in a task of its own."""
        self._spawn(self._run())

    def _spawn(self, run: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(run, name=f"pointsman-queue-{self.queue.topic}-{self.queue.queue_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Hand out nothing more and pull no more; what is in flight goes on."""
        if self.process_queue is not None:
            self.process_queue.drop()
        # A transport may take its time to be cancelled, or never be.
        await end_tasks(set(self._tasks), timeout_seconds=STOP_SECONDS)

    async def wait_idle(self) -> None:
        """Return when nothing is in flight."""
        while self.is_in_flight:
            self._idle.clear()
            await self._idle.wait()

    @property
    def is_in_flight(self) -> bool:
        """Whether a listener, or the application, has a message of it."""
        return self.process_queue is not None and self.process_queue.in_flight > 0

    def needs_new_start(self, *, now: float) -> bool:
        """Whether the queue should be taken anew: it was not pulled for long, or its task died."""
        if not self._tasks:
            return True
        return self.process_queue is not None and self.process_queue.is_pull_expired(now=now)

    async def _run(self) -> None:
        if self._around.hand_over is not None:
            await self._around.hand_over.acquire(self.queue, self.lock)
        await self._begin()
        await self._pull_on()

    async def _pull_on(self) -> None:
        while True:
            await self._pull_once()

    async def _begin(self) -> None:
        while self.process_queue is None:
            try:
                stored, start = await self._around.reader.start_offset(self.queue)
            except PointsmanError as error:
                await self._rest_after(error)
            else:
                self._succeeded()
                self.committed = stored
                sought, self._sought = self._sought, None
                self.process_queue = ProcessQueue(
                    start if sought is None else sought,
                    limits=self._around.limits,
                    now=self._around.clock.monotonic(),
                )
                if stored is None and self._around.begun is not None:
                    await self._around.begun(self)

    async def _pull_once(self) -> None:
        messages = self.process_queue
        assert messages is not None  # noqa: S101  set by _begin
        messages.last_pull_at = self._around.clock.monotonic()
        if messages.is_full or self.is_paused:
            await self._room.wait(LOOK_SECONDS)
            return
        offset = messages.next_pull_offset
        try:
            pulled = await self._around.reader.pull(self.queue, offset)
        except OffsetBeyondEndError as error:
            await self._mend(messages, error)
            return
        except PointsmanError as error:
            self._around.hook.pull_failed(group=self._around.group, queue=self.queue, code=error.code)
            await self._rest_after(error)
            return
        self._succeeded()
        if messages.next_pull_offset != offset:
            return  # It was moved while the pull waited.
        if pulled.trimmed:
            self._around.hook.trimmed(group=self._around.group, queue=self.queue, messages=pulled.trimmed)
            logger.warning(
                "%d messages of %s were gone before group %s read them", pulled.trimmed, self.queue, self._around.group
            )
        wanted = [message for message in pulled.messages if self._around.accepts(message)]
        if len(wanted) < len(pulled.messages):
            skipped = len(pulled.messages) - len(wanted)
            self.filtered += skipped
            self._around.hook.filtered(group=self._around.group, queue=self.queue, messages=skipped)
        self.end_offset = None if pulled.messages else pulled.next_offset
        messages.put(wanted, pulled.next_offset)
        if wanted:
            self._around.offer(self)

    async def _mend(self, messages: ProcessQueue, error: OffsetBeyondEndError) -> None:
        """The master ends before our offset: it lost messages, or another one took over. A slave only lags."""
        try:
            mended = await self._around.reader.offset_within(self.queue, error)
        except PointsmanError as failure:
            await self._rest_after(failure)
            return
        if mended is None:
            await self._around.clock.sleep(LAG_SECONDS)
            return
        logger.warning("%s: group %s goes on at offset %d", error, self._around.group, mended)
        self._move_to(messages, mended)

    # What the others do with it

    def seek(self, offset: int) -> None:
        """Go on from another offset at once."""
        if self.process_queue is None:
            self.needs_reset = True
            self._sought = offset
            return
        self._move_to(self.process_queue, offset)
        # A pull may wait at the broker for messages that nobody wants now.
        for task in self._tasks:
            task.cancel()
        self._spawn(self._pull_on())

    def _move_to(self, messages: ProcessQueue, offset: int) -> None:
        self.needs_reset = True
        messages.move_to(offset)
        self._idle.set()

    def finish(self, message: ReceivedMessage) -> None:
        """Note that a message needs nothing more."""
        messages = self.process_queue
        if messages is None:
            return
        was_full = messages.is_full
        if messages.finish(message):
            if was_full and not messages.is_full:
                self._room.wake()
            self._idle.set()

    def give_back(self, message: ReceivedMessage) -> None:
        """Let a message wait again."""
        if self.process_queue is not None and self.process_queue.give_back(message):
            self._idle.set()

    def pause(self, *, paused: bool) -> None:
        """Pull nothing and hand nothing out, or go on."""
        self.is_paused = paused
        self._room.wake()
        if not paused:
            self._around.offer(self)

    @property
    def commit_offset(self) -> int | None:
        """What to commit if it differs from what the store has; None while the start is not known."""
        return None if self.process_queue is None else self.process_queue.commit_offset

    # Faults

    async def _rest_after(self, error: PointsmanError) -> None:
        self._around.reader.note_failure(self.queue, error)
        await self._around.clock.sleep(self._backoff.next_wait())

    def _succeeded(self) -> None:
        self._backoff.reset()
        self._around.reader.note_success(self.queue)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s is not read any more until the next rebalance", self.queue, exc_info=error)


class HandOver:
    """Takes queues over for one member, each by its lock, so that what its old owner has in flight is finished first.

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
                # The member that held it may have released it between the two calls.
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
