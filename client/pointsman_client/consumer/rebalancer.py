"""Rebalance: assigns a member its share of the queues, immediately after a change and every 20 s."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

from pointsman.clock import Clock
from pointsman.group_topics import is_retry_topic
from pointsman_client.aio import Wakeup
from pointsman_client.consumer.queue_table import QueueTable
from pointsman_client.consumer.readable_queues import ReadableQueues, TopicQueues
from pointsman_client.core.allocation import AllocationRequest, AllocationStrategy, Averagely
from pointsman_client.core.message_queue import MessageQueue, QueueOrder
from pointsman_client.core.rebalance import (
    IdleReason,
    Members,
    MessageModel,
    RebalanceTiming,
    RebalanceTrigger,
    Share,
    StrategyInForce,
    idle_warning,
    is_balanced,
    plan_topic,
    queues_of_other_topics,
    share_of_topic,
)
from pointsman_client.metrics_hook import MetricsHook

logger = logging.getLogger(__name__)


class Rebalancer:
    """Rebalance task of one consumer. Where members or routes are unknown, queue assignments stay unchanged."""

    def __init__(
        self,
        table: QueueTable,
        readable: ReadableQueues,
        *,
        group: str,
        client_id: str,
        model: MessageModel,
        strategy: AllocationStrategy,
        topics: Callable[[], Collection[str]],
        members: Callable[[], Members | None],
        refresh_members: Callable[[], Awaitable[None]],
        queue_order: QueueOrder | None,
        timing: RebalanceTiming,
        clock: Clock,
        hook: MetricsHook,
    ) -> None:
        self._table = table
        self._readable = readable
        self._group = group
        self._client_id = client_id
        self._model = model
        self._strategy = StrategyInForce(strategy)
        self._topics = topics
        self._members = members
        self._refresh_members = refresh_members
        self._queue_order = queue_order
        self._timing = timing
        self._clock = clock
        self._hook = hook
        self._wakeup = Wakeup(clock)
        self._idle: dict[str, IdleReason | None] = {}
        self._failing: set[str] = set()
        self._is_aside = False
        self.rebalances = Counter[str]()
        """Changes of the queues of a topic, by trigger."""

    def wake(self, trigger: RebalanceTrigger) -> None:
        """Rebalance soon."""
        self._timing.wake(trigger)
        self._wakeup.wake()

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            delay = self._timing.delay(now=self._clock.monotonic())
            if delay > 0:
                await self._wakeup.wait(delay)
                continue
            trigger = self._timing.begin()
            balanced = await self.rebalance(trigger)
            self._timing.end(balanced=balanced, now=self._clock.monotonic())

    async def rebalance(self, trigger: RebalanceTrigger) -> bool:
        """Rebalance all topics; return whether this member now holds exactly its share."""
        # Notices may be switched off or lost, so the members are queried at least as often as in RocketMQ.
        if self._timing.is_refresh_due(now=self._clock.monotonic()):
            await self._refresh_members()
        readable = await self._readable.of(list(self._topics()))
        self._failing &= readable.keys()
        members = self._members()
        strategy = self._strategy.given(members)
        self._note_strategy(members, strategy)
        shares = {topic: self._share(topic, queues, members, strategy) for topic, queues in readable.items()}
        # A cancellation must not leave changes half done: there were none before, and nothing awaits from here on.
        self._drop_unsubscribed(queues_of_other_topics(shares, self._table.queues))
        balanced = True
        for topic, share in shares.items():
            if share is not None:
                balanced &= self._apply(topic, share, trigger)
                self._note_idle(topic, share, readable[topic], members)
        return balanced and not self._failing

    def _share(
        self, topic: str, queues: TopicQueues | None, members: Members | None, strategy: AllocationStrategy | None
    ) -> Share | None:
        try:
            share = share_of_topic(
                topic,
                model=self._model,
                group=self._group,
                client_id=self._client_id,
                queues=None if queues is None else queues.queues,
                members=members,
                # A strategy may leave queues unassigned, but every retry queue must be read.
                strategy=Averagely() if strategy is not None and is_retry_topic(topic) else strategy,
                zones={} if queues is None else queues.zones,
                queue_order=self._queue_order,
            )
        except Exception:  # of a user's strategy: assignments stay unchanged
            if topic not in self._failing:
                logger.exception(
                    "strategy %s failed for topic %s in group %s; queue assignments stay unchanged",
                    "" if strategy is None else strategy.name,
                    topic,
                    self._group,
                )
            self._failing.add(topic)
            return None
        self._failing.discard(topic)
        return share

    def _note_strategy(self, members: Members | None, strategy: AllocationStrategy | None) -> None:
        """Report whether this member stands aside because of its settings, and a strategy that it cannot build."""
        is_aside = strategy is None or (members is not None and members.stands_aside(self._client_id))
        if strategy is None and not self._is_aside and members is not None and members.strategy is not None:
            logger.error(
                "group %s divides its queues by the strategy %s, which this member cannot build: it holds no queues",
                self._group,
                members.strategy.text,
            )
        if is_aside != self._is_aside:
            self._is_aside = is_aside
            self._hook.standing_aside(group=self._group, is_aside=is_aside)

    def _drop_unsubscribed(self, unsubscribed: Collection[MessageQueue]) -> None:
        self._table.drop(unsubscribed)
        for topic in {queue.topic for queue in unsubscribed}:
            self._idle.pop(topic, None)
            self._hook.queues_held(group=self._group, topic=topic, count=0)

    def _apply(self, topic: str, share: Share, trigger: RebalanceTrigger) -> bool:
        now = self._clock.monotonic()
        plan = plan_topic(
            topic,
            target=share.queues,
            held=self._table.queues,
            dropping=self._table.releasing,
            pull_expired=self._table.expired(now=now),
        )
        self._table.drop(plan.drop)
        # A queue that is still being released is added by a later rebalance.
        releasing = self._table.releasing
        self._table.add(queue for queue in plan.add if queue not in releasing)
        held = [queue for queue in self._table.queues if queue.topic == topic]
        if plan.has_changes:
            logger.info(
                "group %s rebalanced topic %s (%s): %d queues held, %d new, %d dropped",
                self._group,
                topic,
                trigger,
                len(held),
                len(plan.add),
                len(plan.drop),
            )
            self.rebalances[trigger.value] += 1
            self._hook.rebalanced(group=self._group, topic=topic, trigger=trigger.value)
            self._hook.queues_held(group=self._group, topic=topic, count=len(held))
        return is_balanced(target=share.queues, held=held)

    def _note_idle(self, topic: str, share: Share, queues: TopicQueues | None, members: Members | None) -> None:
        """Log once that this member has no queues, and once that it has. Retry topics often have fewer than members."""
        before = self._idle.get(topic)
        if is_retry_topic(topic) or share.idle is before or queues is None or members is None:
            return
        self._idle[topic] = share.idle
        self._hook.idle_member(group=self._group, topic=topic, is_idle=share.idle is not None)
        if share.idle is None:
            logger.warning("member %s of group %s has queues of topic %s again", self._client_id, self._group, topic)
        else:
            request = AllocationRequest(self._group, self._client_id, queues.queues, members.client_ids, queues.zones)
            logger.warning("%s", idle_warning(request, share.idle))
