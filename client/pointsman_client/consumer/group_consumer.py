"""The common part of push and pull consumers: membership, queues, offsets, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pointsman.clock import Clock
from pointsman.group_topics import is_retry_topic, retry_topic
from pointsman.tag_expression import ALL
from pointsman_client.aio import done_within, end_tasks, start_task
from pointsman_client.consumer.consumer_options import ConsumerOptions
from pointsman_client.consumer.followed_resets import FollowedResets
from pointsman_client.consumer.held_queue import HandOver, HeldQueue, QueueContext
from pointsman_client.consumer.listener_pool import ListenerPool
from pointsman_client.consumer.lock_keeper import LockKeeper
from pointsman_client.consumer.offset_committer import OffsetCommitter
from pointsman_client.consumer.queue_reader import QueueReader
from pointsman_client.consumer.queue_table import QueueTable
from pointsman_client.consumer.readable_queues import ReadableQueues
from pointsman_client.consumer.rebalancer import Rebalancer
from pointsman_client.consumer.start_offset import StartOffsets
from pointsman_client.core.allocation import AllocationStrategy
from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.consumer_reading import ConsumerReading, QueueReading
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue, rocketmq_order
from pointsman_client.core.rebalance import MessageModel, RebalanceTiming, RebalanceTrigger
from pointsman_client.core.retry_rules import Destination
from pointsman_client.core.route import RouteChange
from pointsman_client.core.subscription import Subscription
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.coordination import Coordination, GroupMembership, Routes
from pointsman_client.ports.transport import Transport

logger = logging.getLogger(__name__)

END_SECONDS = 0.5
LEAVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSetting:
    """Settings of a consumer, derived from its options."""

    group: str
    client_id: str
    model: MessageModel
    is_ordered: bool
    retries: bool
    """Whether the group's retry topic is consumed too."""
    shares: bool
    """Whether queues are assigned by rebalance; else by the application, without group membership."""
    auto_commit: bool
    finish_seconds: float
    """Time to finish messages in flight when a queue goes to another member, seconds."""
    options: ConsumerOptions
    strategy: AllocationStrategy


class GroupConsumer:
    """One member of a group. ``offer`` is called with each queue that has messages to hand out."""

    def __init__(
        self,
        setting: ConsumerSetting,
        routes: Routes,
        transport: Transport,
        coordination: Coordination,
        subscriptions: dict[str, Subscription],
        *,
        offer: Callable[[HeldQueue], None],
        pool: ListenerPool | None,
        clock: Clock,
        rng: random.Random,
        hook: MetricsHook,
    ) -> None:
        """``subscriptions`` belongs to the caller, who calls :meth:`subscriptions_changed` after a change.

        ``pool``: of the listener; None: the application polls.
        """
        options = setting.options
        self._setting = setting
        self._routes = routes
        self._coordination = coordination
        self._subscriptions = subscriptions
        self._offer = offer
        self._pool = pool
        self._clock = clock
        self._hook = hook
        locks = coordination.locks if setting.shares and setting.model is MessageModel.CLUSTERING else None
        self._starts = StartOffsets(
            coordination.offsets,
            transport,
            consume_from=options.consume_from,
            consume_timestamp=options.consume_timestamp,
            timeout_seconds=options.pull_timeout_seconds,
            clock=clock,
        )
        self.reader = QueueReader(
            transport,
            self._starts,
            broker_of=routes.broker,
            group=setting.group,
            expression_of=self._expression_of,
            batch_size=options.pull_batch_size,
            wait_seconds=options.pull_wait_seconds,
            timeout_seconds=options.pull_timeout_seconds,
            clock=clock,
            hook=hook,
        )
        self._committer = OffsetCommitter(coordination.offsets, group=setting.group, clock=clock, hook=hook)
        context = QueueContext(
            group=setting.group,
            reader=self.reader,
            hand_over=None
            if locks is None
            else HandOver(
                locks,
                members=lambda: coordination.membership.members,
                is_ordered=setting.is_ordered,
                timeout_seconds=options.handover_timeout_seconds,
                clock=clock,
            ),
            selected=self._selected,
            offer=offer,
            on_started=self._commit_start if setting.auto_commit else None,
            limits=options.limits,
            clock=clock,
            rng=rng,
            hook=hook,
        )
        self.table = QueueTable(
            lambda queue: HeldQueue(queue, context),
            self._committer if setting.auto_commit else None,
            locks,
            finish_seconds=setting.finish_seconds,
            is_ordered=setting.is_ordered,
            clock=clock,
        )
        self._rebalancer = Rebalancer(
            self.table,
            ReadableQueues(
                routes,
                group=setting.group,
                with_retry_topic=setting.retries,
                is_retry_topic_routed=coordination.is_rocketmq,
            ),
            group=setting.group,
            client_id=setting.client_id,
            model=setting.model,
            strategy=setting.strategy,
            topics=lambda: subscriptions,
            members=lambda: coordination.membership.members,
            refresh_members=coordination.membership.refresh_members,
            queue_order=rocketmq_order if coordination.is_rocketmq else None,
            timing=RebalanceTiming(wait_interval_seconds=options.rebalance_interval_seconds),
            clock=clock,
            hook=hook,
        )
        self._keeper = (
            None
            if locks is None
            else LockKeeper(locks, held=lambda: self.table.locked, renewed=offer, lost=self._lock_lost, clock=clock)
        )
        self._resets = FollowedResets(coordination.offsets, self.table, clock=clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_route_changes: Callable[[], None] | None = None

    @property
    def membership(self) -> GroupMembership:
        """Membership in the group."""
        return self._coordination.membership

    # Life cycle

    async def start(self) -> None:
        """Join the group and start, without waiting for a response."""
        if self._setting.auto_commit:
            self._begin(
                self._committer.run(
                    lambda: self.table.locked, interval_seconds=self._setting.options.persist_offset_interval_seconds
                )
            )
        if not self._setting.shares:
            return
        self._stop_route_changes = self._routes.on_route_change(self._route_changed)
        await self.membership.start()
        self._begin(self._rebalancer.run())
        if self._keeper is not None:
            self._begin(self._keeper.run())
        self._begin(self._resets.run())

    async def close(self, *, timeout_seconds: float, finish_seconds: float) -> None:
        """Release all queues, leave the group and close the coordination, within ``timeout_seconds``.

        Messages in flight get ``finish_seconds`` of it.
        """
        if self._stop_route_changes is not None:
            self._stop_route_changes()
        topics = {queue.topic for queue in self.table.queues}
        try:
            await end_tasks(self._tasks, timeout_seconds=END_SECONDS)
            await self._within(self.table.release_all(finish_seconds=finish_seconds), timeout_seconds * 3 / 4)
            if self._setting.shares:
                await self._within(self.membership.leave(), min(LEAVE_SECONDS, timeout_seconds / 4))
        finally:
            await self.table.abort()
            for topic in topics:
                self._hook.queues_held(group=self._setting.group, topic=topic, count=0)
            await self._coordination.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(start_task(work, name=f"pointsman-consumer-{self._setting.group}"))

    async def _within(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        task = start_task(work, name=f"pointsman-consumer-{self._setting.group}-close")
        try:
            if not await done_within(task, seconds, clock=self._clock):
                logger.warning(
                    "closing group %s: a step was cancelled after its timeout of %s s", self._setting.group, seconds
                )
        finally:
            await end_tasks([task], timeout_seconds=END_SECONDS)

    # Notifications

    def members_changed(self) -> None:
        """Rebalance, since the members may have changed."""
        self._rebalancer.wake(RebalanceTrigger.MEMBERS)

    def renew_locks(self) -> None:
        """Renew the locks now: their agents may have lost or never had them."""
        if self._keeper is not None:
            self._keeper.renew_now()

    def subscriptions_changed(self) -> None:
        """Send the subscriptions to the agents, and rebalance."""
        self.membership.subscriptions_changed()
        self._rebalancer.wake(RebalanceTrigger.SUBSCRIPTION)

    def _route_changed(self, change: RouteChange) -> None:
        if change.topic in self._subscriptions or change.topic == retry_topic(self._setting.group):
            self.membership.routes_changed()
            self.renew_locks()
            self._rebalancer.wake(RebalanceTrigger.ROUTE)

    def _lock_lost(self, held: HeldQueue) -> None:
        """Another member may have the queue now. A concurrent consumer may repeat messages; an ordered one stops."""
        if self._setting.is_ordered and self.table.find(held.queue) is held:
            logger.warning("lost the lock of %s; group %s is re-acquiring the queue", held.queue, self._setting.group)
            self._hook.lock_lost(group=self._setting.group, queue=held.queue)
            self.table.drop([held.queue])

    async def _commit_start(self, held: HeldQueue) -> None:
        """Commit the start offset: if this member is killed, the next one must not start at the queue's end."""
        await self._committer.commit([held])

    def _expression_of(self, topic: str) -> str:
        """The tags to read of a topic; all of a retry topic and of an assigned queue."""
        subscription = self._subscriptions.get(topic) if self._setting.shares else None
        return ALL if subscription is None else subscription.expression

    def _selected(self, queue: MessageQueue, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None or not subscription.tags or is_retry_topic(queue.topic) or not self._setting.shares:
            return messages
        return [message for message in messages if subscription.matches(message.tags)]

    # Offsets

    def follow_resets(self, is_wanted: Callable[[MessageQueue], bool]) -> None:
        """See :meth:`RunningConsumer.follow_resets`."""
        self._resets.check(held.queue for held in self.table.held if is_wanted(held.queue))

    def reset_offsets(self, offsets: Mapping[tuple[str, str, int], int]) -> None:
        """See :meth:`RunningConsumer.reset_offsets`."""
        moved = 0
        for held in self.table.held:
            queue = held.queue
            offset = offsets.get((queue.topic, queue.broker_name, queue.queue_id))
            if offset is not None:
                held.seek(offset)
                moved += 1
        if moved:
            logger.warning("the offsets of group %s in %d queues were reset by a broker", self._setting.group, moved)

    async def commit(self) -> None:
        """Commit finished messages now. Raises the error of the first queue that failed."""
        failures = await self._committer.commit(self.table.locked)
        for error in failures.values():
            raise error

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue; None: there is none."""
        return (await self._starts.stored(queue)).offset

    # State

    def reading(self, is_wanted: Callable[[MessageQueue], bool]) -> ConsumerReading:
        """See :meth:`RunningConsumer.reading`."""
        now, calls = self._clock.monotonic(), {} if self._pool is None else self._pool.oldest_calls()
        sent_back = {} if self._pool is None else self._pool.sent_back
        return ConsumerReading(
            {
                queue: QueueReading(
                    messages.position,
                    held.committed,
                    messages.in_flight,
                    now - calls[queue] if queue in calls else None,
                    held.is_paused or self._is_not_due(messages.peek()),
                )
                # One that is released with a running call keeps its new owner waiting.
                for held in self.table.locked
                if (messages := held.process_queue) is not None and is_wanted(queue := held.queue)
            },
            retries=sent_back.get(Destination.RETRY, 0),
            dead_letters=sent_back.get(Destination.DLQ, 0),
            rebalances=self._rebalancer.rebalances,
        )

    def _is_not_due(self, head: ReceivedMessage | None) -> bool:
        return head is not None and head.due_at is not None and head.due_at > self._clock.utc_now()

    def health(self) -> ConsumerHealth:
        """Return what keeps this member from its work, listener calls aside."""
        problems = list(self.membership.problems() if self._setting.shares else ())
        held = [each for each in self.table.held if not is_retry_topic(each.queue.topic)]
        # One of several brokers that is down does not make this consumer less ready than the others.
        if held and all(each.error is not None for each in held):
            first = min(held, key=lambda each: each.queue)
            problems.append(f"none of its {len(held)} queues can be read; {first.queue}: {first.error}")
        return ConsumerHealth(tuple(problems), len(held))

    def describe(self) -> dict[str, Any]:
        """Return queues, positions and members as JSON values."""
        return {
            "group": self._setting.group,
            "clientId": self._setting.client_id,
            "messageModel": self._setting.model.value,
            "ordered": self._setting.is_ordered,
            "strategy": self._setting.strategy.name,
            "subscriptions": {topic: each.expression for topic, each in self._subscriptions.items()},
            **(self.membership.describe() if self._setting.shares else {}),
            "queues": [self._describe_queue(held) for held in sorted(self.table.held, key=lambda each: each.queue)],
            "releasing": len(self.table.releasing),
        }

    def _describe_queue(self, held: HeldQueue) -> dict[str, Any]:
        queue, messages = held.queue, held.process_queue
        entry: dict[str, Any] = {
            "topic": queue.topic,
            "cluster": queue.cluster,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "locked": held.lock.is_held(now=self._clock.monotonic()),
            "paused": held.is_paused,
            "filtered": held.filtered,
            "committed": held.committed,
        }
        if messages is not None:
            entry |= {
                "position": messages.position,
                "finishedUpTo": messages.commit_offset,
                "waiting": messages.waiting,
                "inFlight": messages.in_flight,
                "lag": None if held.end_offset is None else held.end_offset - messages.commit_offset,
            }
        return entry
