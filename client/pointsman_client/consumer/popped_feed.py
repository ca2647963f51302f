"""A member of a group that leases messages for a listener (RocketMQ's POP by a push consumer)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from pointsman.clock import Clock
from pointsman.group_topics import RETRY_DELAYS_SECONDS
from pointsman_client.aio import Wakeup, done_within, end_tasks, start_task
from pointsman_client.consumer.acknowledger import Acknowledger
from pointsman_client.consumer.leased_queue import LeasedQueue
from pointsman_client.consumer.leasing_member import LeasingMember
from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import Destination
from pointsman_client.core.subscription import Subscription
from pointsman_client.errors import LeaseExpiredError, PointsmanError
from pointsman_client.metrics_hook import MetricsHook

ROOM_POLL_SECONDS = 1.0
"""How often it is checked whether there is room for further messages: a lease that ends makes room without a call."""
FAILED_SECONDS = 1.0
"""Pause after an unexpected exception."""
HANDED_BACK_SECONDS = 1.0
"""After this time another member gets a message that waited here for the listener when the consumer was closed."""
END_SECONDS = 0.5

logger = logging.getLogger(__name__)


class PoppedFeed:
    """Requests messages while the listener has few, renews their leases, and acknowledges what it finished.

    Implements ``SendsFailed`` for the pool: a failed message comes back when its changed lease is over.
    """

    def __init__(
        self,
        member: LeasingMember,
        subscriptions: Mapping[str, Subscription],
        *,
        group: str,
        is_ordered: bool,
        offer: Callable[[LeasedQueue], None],
        batch_size: int,
        wait_seconds: float,
        invisible_seconds: float,
        threshold: int,
        most_in_calls: int,
        max_reconsume_times: int | None,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        """``threshold``: unfinished messages here at which no further ones are requested.

        ``most_in_calls``: messages that running calls may have. ``max_reconsume_times``: None: no failed message
        becomes a dead letter, unless the listener wants it.
        """
        self._member = member
        self._subscriptions = subscriptions
        self._group = group
        self._is_ordered = is_ordered
        self._offer = offer
        self._batch_size = batch_size
        self._wait_seconds = wait_seconds
        self._invisible_seconds = invisible_seconds
        self._threshold = threshold
        # Requests of few messages cost as much as those of many: it waits for room, while the listener has work.
        self._least_room = min(batch_size, max(1, threshold - most_in_calls))
        self._max_reconsume_times = max_reconsume_times
        self._clock = clock
        self._hook = hook
        self._leases = member.leases
        self._queues: dict[MessageQueue, LeasedQueue] = {}
        self._changed = Wakeup(clock)
        self._acknowledger = Acknowledger(member.leases, group=group, clock=clock, on_done=self._changed.wake)
        self._feeding: asyncio.Task[None] | None = None
        self._handing_back: set[asyncio.Task[None]] = set()

    # Life cycle

    async def start(self) -> None:
        """Start, without waiting for a broker."""
        self._member.start()
        self._feeding = self._start(self._feed(), "feed")

    async def close(self, *, timeout_seconds: float, finish_seconds: float) -> None:
        """Hand back what waits, finish messages in flight within ``finish_seconds``, acknowledge, leave the group."""
        short_seconds, ends_at = timeout_seconds / 8, self._clock.monotonic() + timeout_seconds
        self._member.popper.stop()
        self._changed.wake()
        try:
            if self._feeding is not None:
                # A request that is cancelled may have leased messages already.
                await self._within(self._feeding, short_seconds)
            self._hand_back([message for each in self._queues.values() for message in each.drop()])
            await self._within(self._start(self._idle(), "finish"), finish_seconds)
            await self._within(self._start(self._settled(), "close"), short_seconds)
            await self._acknowledger.close()
        finally:
            await self._member.close(timeout_seconds=max(short_seconds, ends_at - self._clock.monotonic()))

    def _start(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        return start_task(work, name=f"pointsman-consumer-{self._group}-{what}")

    async def _within(self, task: asyncio.Task[None], seconds: float) -> None:
        try:
            await done_within(task, seconds, clock=self._clock)
        finally:
            await end_tasks([task], timeout_seconds=END_SECONDS)

    async def _idle(self) -> None:
        while any(each.in_flight for each in self._queues.values()):
            await self._changed.wait(ROOM_POLL_SECONDS)

    async def _settled(self) -> None:
        await self._acknowledger.done()
        if self._handing_back:
            await asyncio.wait(self._handing_back)

    def subscriptions_changed(self) -> None:
        """Send the subscriptions to the agents; messages that wait and are no longer subscribed are handed back."""
        self._member.subscriptions_changed()
        unwanted = [each.remove(lambda message: message.topic not in self._subscriptions) for each in self._all()]
        self._hand_back([message for removed in unwanted for message in removed])

    def _all(self) -> Sequence[LeasedQueue]:
        return list(self._queues.values())

    # To the listener

    async def _feed(self) -> None:
        popper = self._member.popper
        while not popper.is_stopped:
            room = self._threshold - self._unfinished
            if room < self._least_room:
                await self._changed.wait(ROOM_POLL_SECONDS)
                continue
            try:
                messages = await self._member.receive(
                    min(room, self._batch_size),
                    invisible_seconds=self._invisible_seconds,
                    timeout_seconds=self._wait_seconds,
                )
            except Exception:  # such as of a transport that is not ours: a consumer that stands still is worse
                logger.exception("receiving for group %s failed; it is tried again", self._group)
                await self._clock.sleep(FAILED_SECONDS)
                continue
            for message in messages:
                queue = self._queue_of(message)
                queue.put(message)
                self._offer(queue)

    @property
    def _unfinished(self) -> int:
        return sum(each.unfinished for each in self._queues.values()) + self._acknowledger.pending

    def _queue_of(self, message: ReceivedMessage) -> LeasedQueue:
        found = self._queues.get(message.queue)
        if found is None:
            found = self._queues[message.queue] = LeasedQueue(
                message.queue,
                is_ordered=self._is_ordered,
                is_valid=self._leases.is_valid,
                finished=self._finish,
                given_up=self._leases.forget,
                is_full=lambda: self._unfinished >= self._threshold,
            )
        return found

    # From the listener

    def _finish(self, message: ReceivedMessage) -> None:
        # A failed one is not acknowledged: its lease was changed, or it became a dead letter.
        if self._leases.is_unchanged(message):
            self._acknowledger.finish(message)
        self._changed.wake()

    @property
    def sent(self) -> Mapping[Destination, int]:
        """See :attr:`SendsFailed.sent`."""
        return {Destination.RETRY: self._member.retries, Destination.DLQ: self._member.dead_letters}

    async def send(self, failed: ReceivedMessage, error: str, *, is_rejected: bool = False) -> bool:
        """See :meth:`SendsFailed.send`. If no broker responds the message comes back when its lease is over."""
        message, times = self._queue_of(failed).delivered(failed), failed.reconsume_times
        most = self._max_reconsume_times
        if is_rejected or (most is not None and times >= most):
            if not await self._member.move_to_dead_letters(message, failed, error):
                self._leases.forget([message])
            return True
        seconds = float(RETRY_DELAYS_SECONDS[min(times, len(RETRY_DELAYS_SECONDS) - 1)])
        try:
            await self._leases.change([message], seconds)
        except LeaseExpiredError as late:
            logger.warning("a message of group %s failed, and is delivered again already: %s", self._group, late)
        except PointsmanError as failure:
            logger.warning(
                "message %s of %s failed and comes back when its lease is over, since its broker did not change that: "
                "%s",
                message.message_id,
                message.queue,
                failure,
            )
        self._leases.forget([message])
        self._member.retries += 1
        self._hook.sent_back(group=self._group, topic=message.topic, destination=Destination.RETRY.value)
        return True

    def _hand_back(self, messages: Iterable[ReceivedMessage]) -> None:
        waiting = [message for message in messages if self._leases.is_valid(message)]
        if waiting:
            task = self._start(self._let_return(waiting), "hand-back")
            self._handing_back.add(task)
            task.add_done_callback(self._handing_back.discard)

    async def _let_return(self, messages: Sequence[ReceivedMessage]) -> None:
        try:
            await self._leases.change(messages, HANDED_BACK_SECONDS)
        except PointsmanError as error:
            logger.info("messages that waited for the listener of group %s come back later: %s", self._group, error)
        self._leases.forget(messages)

    # State

    def health(self) -> ConsumerHealth:
        """Return what keeps this member from its work, listener calls aside."""
        return self._member.health()

    def describe(self) -> dict[str, Any]:
        """Return queues, leases and members as JSON values."""
        queues = self._queues.values()
        return self._member.describe() | {
            "waiting": sum(each.waiting for each in queues),
            "inFlight": sum(each.in_flight for each in queues),
            "unacknowledged": self._acknowledger.pending,
        }
