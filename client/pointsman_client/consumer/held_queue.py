"""A queue assigned to this member: taken over, started, and pulled until it is dropped."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from pointsman.backoff import FullJitterBackoff
from pointsman.clock import Clock
from pointsman_client.aio import BatchedQuery, Wakeup, end_tasks
from pointsman_client.consumer.queue_reader import QueueReader
from pointsman_client.consumer.start_offset import StoredOffset
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.process_queue import FlowLimits, LockTime, ProcessQueue
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import OffsetBeyondEndError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import QueueLocks

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 15.0
"""How often a full or paused queue is checked without a wakeup; well below the pull expiry time."""
SLAVE_RETRY_SECONDS = 1.0
"""Retry interval for a slave that does not have the offset yet."""
BACKOFF_CAP_SECONDS = 5.0
SETTLED_SECONDS = 60.0
"""After this time without a move the wait after the next one is short again."""
STOP_SECONDS = 2.0
LOCK_RETRY_SECONDS = 0.25
"""Retry interval for a lock that another member holds; RocketMQ's ordered consumers wait 0.5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContext:
    """Dependencies and limits that all queues of a consumer share."""

    group: str
    reader: QueueReader
    hand_over: HandOver | None
    """None: no other member reads the queue, so it is not taken over from one."""
    selected: Callable[[MessageQueue, Sequence[ReceivedMessage]], Sequence[ReceivedMessage]]
    """Returns the messages that the subscription selects; others count as finished."""
    offer: Callable[[HeldQueue], None]
    """Called when there may be a message to hand out."""
    on_started: Callable[[HeldQueue], Awaitable[object]] | None
    """Awaited before the first pull of a queue that has no committed offset. It commits the start offset: if this
    member is killed, the one that takes over must not start at the queue's end."""
    limits: FlowLimits
    clock: Clock
    rng: random.Random
    hook: MetricsHook


class HeldQueue:
    """Task, messages and lock of one queue."""

    def __init__(self, queue: MessageQueue, context: QueueContext) -> None:
        self.queue = queue
        self.lock = LockTime()
        self.process_queue: ProcessQueue | None = None
        """None until the start offset is known."""
        self.committed: int | None = None
        """The committed offset, as known here."""
        self.epoch = 0
        """When an operator last reset the offset, as known here; 0: never. It is that of every commit."""
        self.needs_reset = False
        """Whether the next commit may go backwards, after a seek or when the broker lost messages."""
        self.is_released = False
        """Whether the queue may belong to another member now."""
        self.is_paused = False
        self.error: PointsmanError | None = None
        """Why it cannot be read; None: the last attempt worked, or there was none."""
        self.end_offset: int | None = None
        """The queue's end, if the last pull reached it."""
        self.filtered = 0
        """Messages skipped since the queue was taken over, because the subscription does not select their tags."""
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakeup = Wakeup(context.clock)
        self._was_full = False
        """Whether the pull loop waits, or is about to wait, because a flow limit is reached."""
        self._idle = asyncio.Event()
        self._sought: int | None = None
        self._reset_to = 0
        """The offset of :attr:`epoch`."""
        self._backoff = FullJitterBackoff(context.rng.uniform, cap=BACKOFF_CAP_SECONDS)
        self._moves = FullJitterBackoff(context.rng.uniform, cap=BACKOFF_CAP_SECONDS)
        self._moved_at = -math.inf

    # Life cycle

    def start(self) -> None:
        """Start the queue's task."""
        self._spawn(self._run())

    def _spawn(self, run: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(run, name=f"pointsman-queue-{self.queue.topic}-{self.queue.queue_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Stop pulling and handing out; messages in flight are not affected."""
        if self.process_queue is not None:
            self.process_queue.drop()
        # A transport may react late to a cancellation, or not at all.
        await end_tasks(set(self._tasks), timeout_seconds=STOP_SECONDS)

    async def wait_idle(self) -> None:
        """Wait until no message is in flight."""
        while self.is_in_flight:
            self._idle.clear()
            await self._idle.wait()

    def is_locked(self, *, now: float) -> bool:
        """Whether the client may rely on the queue's lock."""
        return self.lock.is_held(now=now)

    @property
    def is_in_flight(self) -> bool:
        """Whether a listener or the application has an unfinished message of this queue."""
        return self.process_queue is not None and self.process_queue.in_flight > 0

    def needs_restart(self, *, now: float) -> bool:
        """Return whether the queue must be re-acquired: its pull expired or its task failed."""
        if not self._tasks:
            return True
        return self.process_queue is not None and self.process_queue.is_pull_expired(now=now)

    async def _run(self) -> None:
        if self._context.hand_over is not None:
            await self._context.hand_over.acquire(self.queue, self.lock)
        await self._begin()
        await self._pull_loop()

    async def _pull_loop(self) -> None:
        while True:
            await self._pull_once()

    async def _begin(self) -> None:
        while self.process_queue is None:
            try:
                stored, start = await self._context.reader.start_offset(self.queue)
            except PointsmanError as error:
                await self._back_off(error)
            else:
                self._succeeded()
                if stored.epoch < self.epoch:  # reset while it was loaded
                    stored, start = StoredOffset(self._reset_to, self.epoch), self._reset_to
                self.committed, self.epoch = stored
                sought, self._sought = self._sought, None
                self.process_queue = ProcessQueue(
                    start if sought is None else sought,
                    limits=self._context.limits,
                    now=self._context.clock.monotonic(),
                )
                if stored.offset is None and self._context.on_started is not None:
                    await self._context.on_started(self)

    async def _pull_once(self) -> None:
        messages = self.process_queue
        assert messages is not None  # noqa: S101  set by _begin
        messages.last_pull_at = self._context.clock.monotonic()
        self._was_full = messages.is_full
        if self._was_full or self.is_paused:
            await self._wakeup.wait(POLL_INTERVAL_SECONDS)
            return
        offset = messages.next_pull_offset
        try:
            pulled = await self._context.reader.pull(self.queue, offset)
        except OffsetBeyondEndError as error:
            await self._recover(messages, error)
            return
        except PointsmanError as error:
            self._context.hook.pull_failed(group=self._context.group, queue=self.queue, code=error.code)
            await self._back_off(error)
            return
        self._succeeded()
        if messages.next_pull_offset != offset:
            return  # It was moved while the pull waited.
        if pulled.is_reset:
            logger.warning(
                "the offset of group %s in %s was reset to %d", self._context.group, self.queue, pulled.next_offset
            )
            self._move_to(messages, pulled.next_offset)
            await self._pause_after_move()
            return
        if pulled.trimmed:
            self._context.hook.trimmed(group=self._context.group, queue=self.queue, messages=pulled.trimmed)
            logger.warning(
                "%d messages of %s were removed before group %s read them",
                pulled.trimmed,
                self.queue,
                self._context.group,
            )
        wanted = self._context.selected(self.queue, pulled.messages)
        if len(wanted) < len(pulled.messages):
            skipped = len(pulled.messages) - len(wanted)
            self.filtered += skipped
            self._context.hook.filtered(group=self._context.group, queue=self.queue, messages=skipped)
        self.end_offset = None if pulled.messages else pulled.next_offset
        messages.put(wanted, pulled.next_offset)
        if wanted:
            self._context.offer(self)
        if pulled.trimmed and not pulled.messages:
            await self._pause_after_move()

    async def _recover(self, messages: ProcessQueue, error: OffsetBeyondEndError) -> None:
        """Handle a queue that ends before the pull offset: the master lost messages, or this is a lagging slave."""
        try:
            start = await self._context.reader.offset_within(self.queue, error)
        except PointsmanError as failure:
            await self._back_off(failure)
            return
        if start is None:
            await self._context.clock.sleep(SLAVE_RETRY_SECONDS)
            return
        logger.warning("%s: group %s continues at offset %d", error, self._context.group, start)
        self._move_to(messages, start)
        await self._pause_after_move()

    async def _pause_after_move(self) -> None:
        """A broker may report another position in every response."""
        now = self._context.clock.monotonic()
        if now - self._moved_at > SETTLED_SECONDS:
            self._moves.reset()
        self._moved_at = now
        await self._context.clock.sleep(self._moves.next_wait())

    # For the application and the listener pool

    def seek(self, offset: int) -> None:
        """Continue from another offset immediately."""
        if self.process_queue is None:
            self.needs_reset = True
            self._sought = offset
            return
        self._move_to(self.process_queue, offset)
        self._pull_again()

    def follow_reset(self, offset: int, epoch: int) -> bool:
        """Continue at the offset of an operator's reset; False if that is known here, or the queue was released.

        Messages in flight are from before the reset: that they end has no effect, except that in order the next message
        waits for it. A released queue keeps its epoch, so that its last commit stays refused.
        """
        if epoch <= self.epoch or self.is_released:
            return False
        logger.warning(
            "an operator has reset the offset of group %s in %s to %d", self._context.group, self.queue, offset
        )
        self.epoch, self._reset_to, self._sought, self.needs_reset = epoch, offset, None, False
        if self.process_queue is not None:
            self.committed = offset
            self.process_queue.move_to(offset)
            if not self.process_queue.is_dropped:
                self._pull_again()
        return True

    def _pull_again(self) -> None:
        """Pull at the new offset: a pull may be waiting at the broker at the old one."""
        for task in self._tasks:
            task.cancel()
        self._spawn(self._pull_loop())

    def _move_to(self, messages: ProcessQueue, offset: int) -> None:
        self.needs_reset = True
        messages.move_to(offset)

    def finish(self, message: ReceivedMessage) -> None:
        """Record that a message is finished."""
        messages = self.process_queue
        if messages is None:
            return
        messages.finish(message)
        if self._was_full and not messages.is_full:
            self._was_full = False
            self._wakeup.wake()
        self._idle.set()

    def give_back(self, message: ReceivedMessage) -> None:
        """Return a message to the queue, to be handed out again."""
        if self.process_queue is not None:
            self.process_queue.give_back(message)
            self._idle.set()

    def pause(self, *, paused: bool) -> None:
        """Pause or resume pulling and handing out."""
        self.is_paused = paused
        self._wakeup.wake()
        if not paused:
            self._context.offer(self)

    @property
    def commit_offset(self) -> int | None:
        """The offset to commit; None while the start offset is unknown and none was sought."""
        return self._sought if self.process_queue is None else self.process_queue.commit_offset

    # Failures

    async def _back_off(self, error: PointsmanError) -> None:
        self.error = error
        self._context.reader.note_failure(self.queue, error)
        await self._context.clock.sleep(self._backoff.next_wait())

    def _succeeded(self) -> None:
        self.error = None
        self._backoff.reset()
        self._context.reader.note_success(self.queue)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("reading %s failed; it restarts with the next rebalance", self.queue, exc_info=error)


class HandOver:
    """Takes over queues for one member by their locks, so that the old owner finishes its messages in flight first.

    An ordered consumer starts only with the lock. A concurrent one would at worst repeat a few messages, so its wait is
    limited: it does not wait for a holder that is no longer a member or for agents that are down, and for a member at
    most ``timeout_seconds``.
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
        self._lock = BatchedQuery(locks.lock)
        self._holders = BatchedQuery(locks.holders)
        self._members = members
        self._is_ordered = is_ordered
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    async def acquire(self, queue: MessageQueue, lock: LockTime) -> None:
        """Wait until the queue may be started."""
        ends_at = self._clock.monotonic() + self._timeout_seconds
        while not await self._try(queue, lock):
            if not self._is_ordered and (self._clock.monotonic() >= ends_at or await self._is_free(queue)):
                # The holder may have released the lock between the two calls.
                await self._try(queue, lock)
                return
            await self._clock.sleep(LOCK_RETRY_SECONDS)

    async def _try(self, queue: MessageQueue, lock: LockTime) -> bool:
        requested_at = self._clock.monotonic()
        granted = queue in await self._lock.about(queue)
        if granted:
            lock.granted(now=requested_at)
        return granted

    async def _is_free(self, queue: MessageQueue) -> bool:
        holder = (await self._holders.about(queue)).get(queue)
        if holder is None:
            return True
        members = self._members()
        return members is not None and not members.has(holder)
