"""Runs a listener for the messages of all queues in turn, with a limit of concurrent calls."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pointsman.clock import Clock
from pointsman_client.aio import end_tasks
from pointsman_client.consumer.listener import SUCCEEDED, ListenerCaller, raised
from pointsman_client.consumer.offered_queue import OfferedQueue, SendsFailed
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import (
    SUSPEND_SECONDS,
    BlockedQueue,
    CallEnd,
    Destination,
    Outcome,
    has_exhausted_attempts,
    unblock_hint,
)
from pointsman_client.metrics_hook import MetricsHook

logger = logging.getLogger(__name__)

END_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
LOCAL_RETRY_SECONDS = 5.0
"""Delay of a local retry when no broker accepts a failed message (RocketMQ ``submitConsumeRequestLater``)."""
TURN_SECONDS = 0.00025
"""Time after which a worker lets the event loop run, when listeners do not wait for anything."""
TIMEOUT_CHECKS = 15
"""Overdue listener calls are checked this many times per consume timeout, or every ``CHECK_SECONDS`` if that is more
often."""
CHECK_SECONDS = 5.0
LONG_CALL_SECONDS = 60.0
"""A listener call that runs for longer is logged, and is a problem of the consumer."""

_NOTHING: tuple[Sequence[ReceivedMessage], Sequence[ReceivedMessage]] = ((), ())


@dataclass(slots=True, eq=False)
class _Call:
    held: OfferedQueue
    messages: Sequence[ReceivedMessage]
    """One, or those of a batch."""
    given: Sequence[ReceivedMessage]
    """The same as the listener gets them."""
    began_at: float
    is_long: bool = False
    """Whether it was logged that it runs for long."""
    is_late: bool = False


class ListenerPool:
    """Calls of one consumer's listener.

    Queues with messages to hand out are in a ring, so that a queue with many messages delays another one by one call
    per turn. Concurrent: any number of messages of a queue in parallel; a failed one is sent back. Ordered: one call of
    a queue at a time, under its lock; failed messages are retried in place. A call has one message, or several of one
    queue for a listener of batches.

    A worker is a task that calls the listener for one message after the other, since a task for each call would take as
    much time as the rest of the pool. It ends when there is no message, when its call was cancelled, and when the
    listener left context variables changed: no other call may see them.
    """

    def __init__(
        self,
        caller: ListenerCaller,
        failed: SendsFailed | None,
        *,
        group: str,
        concurrency: int,
        is_ordered: bool,
        opened: Callable[[ReceivedMessage], ReceivedMessage] | None = None,
        batch_size: int | None,
        needs_lock: bool,
        max_reconsume_times: int | None,
        consume_timeout_seconds: float,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        """``failed``: None drops failed messages immediately, as in broadcasting.

        ``opened``: returns a message as the listener gets it; None: as it is.
        ``batch_size``: maximum number of messages of a call, for a listener of batches; None: it takes one message.
        """
        self._caller = caller
        self._failed = failed
        self._group = group
        self._concurrency = concurrency
        self._is_ordered = is_ordered
        self._opened = opened
        self._is_of_batches = batch_size is not None
        self._batch_size = batch_size or 1
        self._needs_lock = needs_lock
        self._max_reconsume_times = max_reconsume_times
        self._consume_timeout_seconds = consume_timeout_seconds
        self._clock = clock
        self._hook = hook
        self._is_measured = type(hook) is not MetricsHook
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._ring: deque[OfferedQueue] = deque()
        self._in_ring: set[OfferedQueue] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._is_starting = False
        """Whether another worker is about to be started."""
        self._calls: dict[asyncio.Task[None], _Call] = {}
        """By their worker."""
        self._running_since: dict[MessageQueue, float] = {}
        """When the oldest running call of each queue began, of calls that were passed to the hook."""
        self._pausing: set[OfferedQueue] = set()
        self._blocked: dict[OfferedQueue, BlockedQueue] = {}
        self._owned: set[asyncio.Task[Any]] = set()
        self._send_slots = asyncio.Semaphore(concurrency)
        self._is_closed = False

    @property
    def running(self) -> int:
        """Number of running calls."""
        return len(self._calls)

    @property
    def oldest_call_seconds(self) -> float:
        """Time for which the oldest running call has run; 0 without one."""
        return max((self._clock.monotonic() - call.began_at for call in self._calls.values()), default=0.0)

    def oldest_calls(self) -> dict[MessageQueue, float]:
        """Return when the oldest running call of each queue began, in monotonic seconds."""
        oldest: dict[MessageQueue, float] = {}
        for call in self._calls.values():
            queue = call.held.queue
            oldest[queue] = min(call.began_at, oldest.get(queue, call.began_at))
        return oldest

    @property
    def sent_back(self) -> Mapping[Destination, int]:
        """Number of failed messages that were sent to the retry topic and to the dead letters."""
        return {} if self._failed is None else self._failed.sent

    def problems(self) -> list[str]:
        """Return the calls that run for long, and the ordered queues that are blocked, each in a sentence."""
        now = self._clock.monotonic()
        return [
            f"a listener call has run for {now - call.began_at:.0f} s, with message {call.messages[0].message_id} of "
            f"{call.held.queue}"
            for call in self._calls.values()
            if now - call.began_at > LONG_CALL_SECONDS
        ] + [
            f"message {blocked.message_id} blocks {held.queue}: {blocked.attempts} attempts failed in "
            f"{now - blocked.since:.0f} s"
            for held, blocked in self._blocked.items()
        ]

    def start(self) -> None:
        """Start the check for long calls."""
        self._own(self._watch())

    def offer(self, held: OfferedQueue) -> None:
        """Add a queue that may have messages to hand out."""
        if held not in self._in_ring:
            self._in_ring.add(held)
            self._ring.append(held)
        self._need_worker()

    async def call_once(self, message: ReceivedMessage) -> CallEnd:
        """Call the listener with a message of no queue, in addition to the calls that hold a slot."""
        given = message if self._opened is None else self._opened(message)
        return await self._caller.call((given,) if self._is_of_batches else given)

    async def close(self) -> None:
        """Cancel running calls, and wait at most ``END_SECONDS`` for them."""
        self._is_closed = True
        self._ring.clear()
        for held in list(self._blocked):
            self._unblock(held)
        tasks: set[asyncio.Task[Any]] = {*self._workers, *self._owned}
        self._calls.clear()
        self._report_running({})
        await end_tasks(tasks, timeout_seconds=END_SECONDS)
        self._caller.close()

    # From the ring to the listener

    def _need_worker(self) -> None:
        if not self._is_starting:
            self._is_starting = True
            self._loop.call_soon(self._start_worker, context=self._context)

    def _start_worker(self) -> None:
        self._is_starting = False
        if self._ring and len(self._workers) < self._concurrency and not self._is_closed:
            worker = self._loop.create_task(self._work(), name="pointsman-listener")
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    async def _work(self) -> None:
        worker = asyncio.current_task()
        assert worker is not None  # noqa: S101  # this runs in a task
        self._need_worker()  # for the next message, if this one's listener waits
        now = self._clock.monotonic()
        turn_ends_at = now + TURN_SECONDS
        while (call := self._next_call(now)) is not None:
            self._calls[worker] = call
            end = await self._caller.call(call.given if self._is_of_batches else call.given[0])
            if self._calls.pop(worker, None) is None:
                return  # Abandoned, or the pool is closed.
            now = self._clock.monotonic()
            self._settle(call, end, now - call.began_at)
            if worker.cancelling() or self._is_context_changed():
                return
            if now >= turn_ends_at:
                await asyncio.sleep(0)
                now = self._clock.monotonic()
                turn_ends_at = now + TURN_SECONDS

    def _is_context_changed(self) -> bool:
        try:
            return contextvars.copy_context() != self._context
        except Exception:  # noqa: BLE001  # of the application: a value that cannot be compared, such as an array
            return True

    def _next_call(self, now: float) -> _Call | None:
        while self._ring and not self._is_closed:
            held = self._ring.popleft()
            taken, given = self._next_of(held)
            if not taken or self._is_ordered:
                self._in_ring.discard(held)
            else:
                self._ring.append(held)
            if taken:
                return _Call(held, taken, given, now)
        return None

    def _next_of(self, held: OfferedQueue) -> tuple[Sequence[ReceivedMessage], Sequence[ReceivedMessage]]:
        """Take the messages of the next call; return them, and as the listener gets them."""
        messages = held.process_queue
        if messages is not None and messages.is_dropped:
            self._unblock(held)
            return _NOTHING
        if messages is None or held.is_paused or held in self._pausing:
            return _NOTHING
        if self._is_ordered and messages.in_flight:
            return _NOTHING
        if self._needs_lock and not held.is_locked(now=self._clock.monotonic()):
            return _NOTHING
        taken: list[ReceivedMessage] = []
        given = taken if self._opened is None else []
        while len(taken) < self._batch_size and (head := messages.peek()) is not None:
            if head.due_at is not None and (wait := self._seconds_until(head.due_at)) > 0:
                if not taken:
                    self._pause(held, wait)
                break
            is_alone = False
            if self._opened is not None:
                opened = self._opened(head)
                # It fails, and no other message of the batch may fail with it.
                is_alone = opened.decode_error is not None
                if is_alone and taken:
                    break
                given.append(opened)
            messages.take()
            taken.append(head)
            if is_alone:
                break
        return taken, given

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        error = None if worker.cancelled() else worker.exception()
        call = self._calls.pop(worker, None)
        if call is not None:
            if error is not None:
                end = raised(error)  # a BaseException; the caller handles any Exception
            else:
                end = self._timed_out() if call.is_late else CallEnd(Outcome.RAISED, "was cancelled")
            self._settle(call, end, self._clock.monotonic() - call.began_at)
        elif error is not None:
            logger.error("a worker of the listener pool failed", exc_info=error)
        self._need_worker()

    def _timed_out(self) -> CallEnd:
        seconds = self._consume_timeout_seconds
        return CallEnd(Outcome.TIMEOUT, f"took longer than {seconds:g} s (consume_timeout_seconds)")

    def _settle(self, call: _Call, end: CallEnd, seconds: float) -> None:
        held = call.held
        if self._is_measured:
            self._hook.consumed(group=self._group, queue=held.queue, result=end.outcome, seconds=seconds)
        if end is SUCCEEDED:
            for message in call.messages:
                held.finish(message)
            if self._is_ordered:
                self._unblock(held)
                self.offer(held)
            return
        failed = call.messages
        if self._is_ordered and end.outcome is not Outcome.REJECTED:
            failed = self._suspended(held, failed, end)
        for message in failed:
            self._settle_failed(held, message, end)
        self.offer(held)

    def _suspended(
        self, held: OfferedQueue, messages: Sequence[ReceivedMessage], end: CallEnd
    ) -> Sequence[ReceivedMessage]:
        """Have an ordered queue retry messages in place; return those that have exhausted their attempts."""
        most = self._max_reconsume_times
        again = [each for each in messages if not has_exhausted_attempts(each, max_reconsume_times=most)]
        if again:
            self._block(held, again[0], end)
            for message in again:
                held.give_back(message)
            self._pause(held, SUSPEND_SECONDS)
        return [each for each in messages if has_exhausted_attempts(each, max_reconsume_times=most)]

    def _settle_failed(self, held: OfferedQueue, message: ReceivedMessage, end: CallEnd) -> None:
        if not self._is_ordered:
            self._log_failure(message, end)
        if self._failed is None:
            logger.warning(
                "message %s of %s was dropped after a failure, since broadcasting has no retries and dead letters: %s",
                message.message_id,
                held.queue,
                end.error,
            )
            held.finish(message)
            self._unblock(held)
        else:
            self._own(self._send_back(self._failed, held, message, end))

    def _log_failure(self, message: ReceivedMessage, end: CallEnd) -> None:
        if end.outcome is Outcome.RAISED:
            logger.warning(
                "the listener failed on message %s of %s: %s",
                message.message_id,
                message.queue,
                end.error,
                exc_info=end.exception,
            )

    # Failures of the first message of an ordered queue

    def describe_blocked(self) -> list[dict[str, Any]]:
        """Return the ordered queues whose first message fails, sorted, as JSON values."""
        now = self._clock.monotonic()
        return [
            {
                "topic": held.queue.topic,
                "cluster": held.queue.cluster,
                "brokerName": held.queue.broker_name,
                "queueId": held.queue.queue_id,
                **blocked.describe(now=now),
            }
            for held, blocked in sorted(self._blocked.items(), key=lambda each: each[0].queue)
        ]

    def _block(self, held: OfferedQueue, message: ReceivedMessage, end: CallEnd) -> None:
        now = self._clock.monotonic()
        blocked = self._blocked.get(held)
        if blocked is None or blocked.queue_offset != message.queue_offset:
            blocked = BlockedQueue(message.queue_offset, message.message_id, since=now)
            self._blocked[held] = blocked
            self._hook.queue_blocked(group=self._group, queue=held.queue, since=now)
        if not blocked.count(is_requested=end.outcome is Outcome.LATER):
            return
        messages = held.process_queue
        behind = 0 if messages is None else messages.unfinished - 1
        logger.warning(
            "attempt %d of message %s at offset %d failed: %s; it blocks %s for %.0f s, and %s%d messages wait behind "
            "it: %s",
            blocked.attempts,
            message.message_id,
            message.queue_offset,
            end.error,
            held.queue,
            now - blocked.since,
            "at least " if messages is not None and messages.is_full else "",
            behind,
            unblock_hint(
                self._group,
                max_reconsume_times=self._max_reconsume_times,
                has_dead_letters=self._failed is not None,
            ),
            exc_info=end.exception,
        )

    def _unblock(self, held: OfferedQueue) -> None:
        blocked = self._blocked.pop(held, None)
        if blocked is None:
            return
        self._hook.queue_blocked(group=self._group, queue=held.queue, since=None)
        if blocked.is_logged:
            seconds = self._clock.monotonic() - blocked.since
            logger.warning(
                "message %s no longer blocks %s here, after %d failed attempts and %.0f s",
                blocked.message_id,
                held.queue,
                blocked.attempts,
                seconds,
            )

    # Failed messages that are sent back

    async def _send_back(self, failed: SendsFailed, held: OfferedQueue, message: ReceivedMessage, end: CallEnd) -> None:
        async with self._send_slots:
            if held.is_released:
                self._unblock(held)
                return  # Not finished, so the new owner of the queue gets it.
            is_sent = await failed.send(message, end.error, is_rejected=end.outcome is Outcome.REJECTED)
        if is_sent:
            held.finish(message)
            self._unblock(held)
        else:
            await self._clock.sleep(LOCAL_RETRY_SECONDS)
            held.give_back(message)
            # The queue may be paused until its next message is due; this one is due now.
            self._pausing.discard(held)
        self.offer(held)

    # Time

    def _seconds_until(self, due_at: datetime) -> float:
        return (due_at - self._clock.utc_now()).total_seconds()

    def _pause(self, held: OfferedQueue, seconds: float) -> None:
        """Hand out no message of a queue for this time. Then it is checked, and may pause again."""

        async def pause() -> None:
            # The limit ends the pauses of released queues.
            await self._clock.sleep(min(seconds, MAX_PAUSE_SECONDS))
            self._pausing.discard(held)
            self.offer(held)

        self._pausing.add(held)
        self._own(pause())

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(min(self._consume_timeout_seconds / TIMEOUT_CHECKS, CHECK_SECONDS))
            now = self._clock.monotonic()
            for worker, call in list(self._calls.items()):
                if not call.is_late and now - call.began_at > self._consume_timeout_seconds:
                    self._abandon(worker, call, now)
                elif not call.is_long and now - call.began_at > LONG_CALL_SECONDS:
                    self._log_long(call, now)
            self._report_running({queue: at for queue, at in self.oldest_calls().items() if now - at >= CHECK_SECONDS})

    def _report_running(self, since: dict[MessageQueue, float]) -> None:
        for queue in self._running_since.keys() - since.keys():
            self._hook.call_running(group=self._group, queue=queue, since=None)
        for queue, at in since.items():
            if self._running_since.get(queue) != at:
                self._hook.call_running(group=self._group, queue=queue, since=at)
        self._running_since = since

    def _log_long(self, call: _Call, now: float) -> None:
        call.is_long = True
        message = call.messages[0]
        born_at = message.born_at
        age = "" if born_at is None else f", born {(self._clock.utc_now() - born_at).total_seconds():.0f} s ago"
        logger.warning(
            "a listener call has run for %.0f s, with message %s at offset %d of %s%s",
            now - call.began_at,
            message.message_id,
            message.queue_offset,
            call.held.queue,
            age,
        )

    def _abandon(self, worker: asyncio.Task[None], call: _Call, now: float) -> None:
        call.is_late = True
        logger.warning(
            "the listener has been processing message %s of %s for more than %g s (consume_timeout_seconds)",
            call.messages[0].message_id,
            call.held.queue,
            self._consume_timeout_seconds,
        )
        if self._is_ordered:
            # The next attempt must not run in parallel with this one, so a thread is waited for without limit.
            if not self._caller.is_plain:
                worker.cancel()
            return
        del self._calls[worker]
        worker.cancel()
        self._workers.discard(worker)
        self._owned.add(worker)
        worker.add_done_callback(self._owned.discard)
        if self._caller.is_plain:
            self._caller.abandon_thread()
        self._settle(call, self._timed_out(), now - call.began_at)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="pointsman-listener-pool")
        self._owned.add(task)
        task.add_done_callback(self._disown)

    def _disown(self, task: asyncio.Task[None]) -> None:
        self._owned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the listener pool failed", exc_info=error)
