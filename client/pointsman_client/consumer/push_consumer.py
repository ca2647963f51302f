"""A consumer with a listener."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from pointsman.group_topics import retry_topic
from pointsman_client.aio import Closing
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.consumer_assembly import make_group_consumer, make_leasing_member
from pointsman_client.consumer.consumer_identity import ConsumerIdentity
from pointsman_client.consumer.consumer_options import PushConsumerOptions
from pointsman_client.consumer.failed_messages import FailedMessages
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.leasing_member import LeasingSetting
from pointsman_client.consumer.listener import ListenerCaller, TracedCaller, of_decoded
from pointsman_client.consumer.listener_pool import ListenerPool
from pointsman_client.consumer.offered_queue import OfferedQueue, SendsFailed
from pointsman_client.consumer.popped_feed import PoppedFeed
from pointsman_client.core.allocation import Averagely
from pointsman_client.core.consumer_health import NOT_STARTED, ConsumerHealth
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import MAX_RECONSUME_TIMES, CallEnd
from pointsman_client.ownership import Resources


class PushConsumer:
    """Consumer that calls a listener with each message of its queues.

    ::

        async def listener(message: ReceivedMessage) -> None:
            print(message.body)

        async with PushConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                                listener=listener, transport=RedisStreamsTransport):
            await stop.wait()

    The listener is ``async def``, or a plain function, which runs in a thread. None and ``ConsumeResult.SUCCESS`` are
    success. RECONSUME_LATER and SUSPEND, any other value (also True) and any exception are a failure: the message is
    delivered again. DEAD_LETTER, or raising :class:`Reject`, moves it to the dead letters. Delivery is at
    least once, so a message may also be delivered again after a success. ``batch_listener`` in place of ``listener``
    gets several messages of a queue at a time, and its result is that of each.

    With ``consume_mode=ConsumeMode.POP`` no queues are assigned: any member gets any message, with a lease that is
    renewed until its listener has ended, as in a :class:`~pointsman_client.SimpleConsumer`.

    The constructor opens no connection. One consumer belongs to one event loop.
    """

    @takes_options(PushConsumerOptions)
    def __init__(self, options: PushConsumerOptions) -> None:
        """Create a consumer with the options of
        :class:`~pointsman_client.consumer.consumer_options.PushConsumerOptions`.

        Raises :class:`InvalidOptionError`, :class:`InvalidNameError` and :class:`InvalidAddressError`.
        """
        self._resources = Resources(options, zone=options.route_zone, zone_option="route_zone", owner="PushConsumer")
        self._options = options
        self._identity = ConsumerIdentity(
            options, options.subscriptions, self._resources, model=options.message_model, zone=options.zone
        )
        is_clustering = options.message_model is MessageModel.CLUSTERING
        self._setting = ConsumerSetting(
            group=options.group,
            client_id=self._identity.client_id,
            model=options.message_model,
            is_ordered=options.ordered,
            retries=is_clustering and not options.ordered,
            shares=True,
            auto_commit=True,
            # The new owner of an ordered queue waits for its lock without limit, other new owners for this time.
            finish_seconds=math.inf if options.ordered else options.handover_timeout_seconds,
            options=options,
            strategy=options.strategy or Averagely(),
        )
        self._pool: ListenerPool | None = None
        self._core: GroupConsumer | PoppedFeed | None = None
        self._closing = Closing()

    @property
    def _is_popping(self) -> bool:
        return self._options.consume_mode is ConsumeMode.POP

    # Life cycle

    async def start(self) -> Self:
        """Join the group and start consuming, without waiting for a broker. A second call does nothing."""
        await self._resources.start()
        if self._core is None:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                self._core = self._make_popping() if self._is_popping else self._make_pulling()
                assert self._pool is not None  # noqa: S101  # made with it
                self._pool.start()
                await self._core.start()
                undo.pop_all()
        return self

    async def close(self) -> None:
        """Stop pulling, finish messages in flight, commit, unlock, leave the group.

        Takes at most ``close_timeout_seconds``, plus 1 s for listeners that do not end when cancelled. A second call
        joins the first, and a cancelled one does not stop it.
        """
        self._resources.stop_use()
        await self._closing.do(self._close)

    async def _close(self) -> None:
        core, pool = self._core, self._pool
        self._core = self._pool = None
        timeout_seconds = self._options.close_timeout_seconds
        try:
            if core is not None:
                await core.close(timeout_seconds=timeout_seconds * 0.8, finish_seconds=timeout_seconds * 0.5)
        finally:
            if pool is not None:
                await pool.close()
            await self._resources.close(timeout_seconds=timeout_seconds * 0.2)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Subscriptions

    @property
    def client(self) -> NameServerClient:
        """The name server client that provides the routes."""
        return self._resources.client

    @property
    def client_id(self) -> str:
        """Id of this member in its group."""
        return self._identity.client_id

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to a topic, or change its tags or condition. Every member of the group must do the same."""
        self._identity.subscribe(topic, expression)
        if self._core is not None:
            self._core.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Remove the subscription of a topic; messages in flight are finished."""
        if self._identity.unsubscribe(topic) and self._core is not None:
            self._core.subscriptions_changed()

    def health(self) -> ConsumerHealth:
        """Return what keeps this consumer from its work now, for readiness probes.

        Problems are a group or client id without queues, listener calls of more than 60 s, ordered queues that a
        failing message blocks, and brokers when none of the queues can be read. With POP also topics of which the group
        may not lease the messages.
        """
        if self._core is None or self._pool is None:
            return NOT_STARTED
        health = self._core.health()
        oldest = self._pool.oldest_call_seconds
        return replace(health, problems=(*health.problems, *self._pool.problems()), oldest_call_seconds=oldest)

    def describe(self) -> dict[str, Any]:
        """Return held queues with positions, ordered queues whose first message fails (``blocked``), members and
        subscriptions, as JSON values."""
        if self._core is None or self._pool is None:
            return {"group": self._setting.group, "clientId": self.client_id, "started": False}
        return self._core.describe() | {
            "started": True,
            "listenersRunning": self._pool.running,
            "blocked": self._pool.describe_blocked(),
        }

    def _offer(self, held: OfferedQueue) -> None:
        if self._pool is not None:
            self._pool.offer(held)

    def _make_pulling(self) -> GroupConsumer:
        setting, resources = self._setting, self._resources
        times = self._options.max_reconsume_times
        failed = FailedMessages(
            resources.transport,
            group=setting.group,
            # A routed retry topic may be on a broker without a subscribed topic.
            brokers=lambda: resources.client.brokers_of((*self._identity.subscriptions, retry_topic(setting.group))),
            max_reconsume_times=MAX_RECONSUME_TIMES if times is None else times,
            timeout_seconds=self._options.send_back_timeout_seconds,
            clock=resources.clock,
            hook=resources.metrics_hook,
            on_dead_letter=resources.view.opening(self._options.on_dead_letter),
        )
        is_clustering = setting.model is MessageModel.CLUSTERING
        self._pool = self._make_pool(failed if is_clustering else None, needs_lock=setting.is_ordered and is_clustering)
        return make_group_consumer(setting, self._identity, resources, offer=self._offer, pool=self._pool)

    def _make_popping(self) -> PoppedFeed:
        options, resources = self._options, self._resources
        pool: ListenerPool | None = None

        async def call_once(message: ReceivedMessage) -> CallEnd:
            assert pool is not None  # noqa: S101  # made below
            return await pool.call_once(message)

        setting = LeasingSetting(
            group=options.group,
            client_id=self.client_id,
            is_ordered=options.ordered,
            consume_from=options.consume_from,
            consume_timestamp=options.consume_timestamp,
            request_timeout_seconds=options.pull_timeout_seconds,
            send_back_timeout_seconds=options.send_back_timeout_seconds,
            persist_offset_interval_seconds=options.persist_offset_interval_seconds,
            # Until the listener has ended, which consume_timeout_seconds limits.
            max_renew_seconds=math.inf,
            # By failed calls: a message may be delivered again without one, when a member is closed.
            max_reconsume_times=None,
            on_dead_letter=options.on_dead_letter,
            raises_refusals=False,
            view=resources.view,
        )
        member = make_leasing_member(
            setting,
            options,
            self._identity,
            resources,
            call_listener=call_once,
            oldest_calls=lambda: {} if pool is None else pool.oldest_calls(),
            follows_modes=True,
        )
        batch_size = options.consume_message_batch_max_size if options.batch_listener else 1
        times = None if options.ordered else MAX_RECONSUME_TIMES
        feed = PoppedFeed(
            member,
            self._identity.subscriptions,
            group=options.group,
            is_ordered=options.ordered,
            offer=self._offer,
            batch_size=options.pull_batch_size,
            wait_seconds=options.pull_wait_seconds,
            invisible_seconds=options.invisible_seconds,
            threshold=options.pop_threshold,
            most_in_calls=options.consume_concurrency * batch_size,
            max_reconsume_times=times if options.max_reconsume_times is None else options.max_reconsume_times,
            clock=resources.clock,
            hook=resources.metrics_hook,
        )
        pool = self._pool = self._make_pool(feed, needs_lock=False)
        return feed

    def _make_pool(self, failed: SendsFailed | None, *, needs_lock: bool) -> ListenerPool:
        options, hook, resources = self._options, self._options.tracing_hook, self._resources
        listener, threads = options.batch_listener or options.listener, options.consume_concurrency
        assert listener is not None  # noqa: S101  # checked by the options
        if options.serializer is not None:
            listener = of_decoded(listener)
        return ListenerPool(
            ListenerCaller(listener, threads=threads)
            if hook is None
            else TracedCaller(listener, threads=threads, group=options.group, tracing_hook=hook),
            failed,
            group=options.group,
            concurrency=options.consume_concurrency,
            is_ordered=options.ordered,
            opened=resources.view.opened if resources.view.opens else None,
            batch_size=None if options.batch_listener is None else options.consume_message_batch_max_size,
            needs_lock=needs_lock,
            max_reconsume_times=options.max_reconsume_times,
            consume_timeout_seconds=options.consume_timeout_seconds,
            clock=resources.clock,
            hook=resources.metrics_hook,
        )
