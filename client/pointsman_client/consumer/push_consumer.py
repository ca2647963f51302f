"""A consumer with a listener."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pointsman.wire.clock import Clock
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.agents.agent_coordination import MakeCoordination, agent_coordination
from pointsman_client.consumer.consumer_options import MAX_CONCURRENCY, ConsumerOptions
from pointsman_client.consumer.failed_messages import FailedMessages
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.consumer.listener import Listener, ListenerCaller
from pointsman_client.consumer.listener_pool import ListenerPool
from pointsman_client.consumer.standing import Standing
from pointsman_client.consumer.start_offset import ConsumeFrom
from pointsman_client.core.allocation import AllocationStrategy, Averagely
from pointsman_client.core.checks import check_number, check_seconds
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import MAX_RECONSUME_TIMES
from pointsman_client.core.subscription import Subscriptions
from pointsman_client.errors import InvalidOptionError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ownership import OwnedParts, TransportOrMaker


class PushConsumer:
    """Calls a listener with each message of the group's topics that falls to this member.

    ::

        async def listener(message: ReceivedMessage) -> None:
            print(message.body)

        async with PushConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                                listener=listener, transport=RedisStreamsTransport):
            await stop.wait()

    The listener is ``async def``, or a plain function, which runs in a thread. None and ``ConsumeResult.SUCCESS`` are
    success. RECONSUME_LATER and SUSPEND, any other value (True as well) and any exception are a failure: the message
    comes again. At least once: a message may come again after a success, too.
    The constructor opens and starts nothing. One consumer belongs to one event loop.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | NameServerClient,
        *,
        group: str,
        subscriptions: Subscriptions,
        listener: Listener,
        transport: TransportOrMaker,
        ordered: bool = False,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp: datetime | None = None,
        strategy: AllocationStrategy | None = None,
        consume_concurrency: int = 20,
        consume_timeout_seconds: float = 900.0,
        max_reconsume_times: int | None = None,
        pull_batch_size: int = 32,
        pull_wait_seconds: float = 15.0,
        pull_timeout_seconds: float = 5.0,
        pull_threshold_for_queue: int = 1_000,
        pull_threshold_size_for_queue_bytes: int = 100 * 1024 * 1024,
        consume_max_span: int = 2_000,
        rebalance_interval_seconds: float = 20.0,
        handover_timeout_seconds: float = 5.0,
        persist_offset_interval_seconds: float = 5.0,
        send_back_timeout_seconds: float = 3.0,
        close_timeout_seconds: float = 10.0,
        client_id: str = "",
        zone: str = "",
        offset_file: Path | None = None,
        poll_name_server_interval_seconds: float = 30.0,
        lookup_timeout_seconds: float = 3.0,
        route_zone: str = "",
        make_coordination: MakeCoordination = agent_coordination,
        metrics_hook: MetricsHook | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Check and keep the settings.

        ``subscriptions``: topics with their tags (``{"orders": "paid || refunded"}``), a list of topics, or one topic.
        ``zone``: where this member is, for strategies by zone. ``route_zone``: read brokers of this zone alone; all
        members of the group must have the same, for each shares out the queues that it sees.
        ``max_reconsume_times``: tries after the first before a message goes to the dead letters; None: 16, and for an
        ordered consumer no end. ``offset_file``: of a broadcasting consumer; default below ``~/.pointsman/offsets``.
        ``poll_name_server_interval_seconds`` and ``lookup_timeout_seconds``: of the client that is made from addresses.
        For the others, with RocketMQ's names, see :class:`~pointsman_client.consumer.consumer_options.ConsumerOptions`.

        Raises :class:`InvalidOptionError`, :class:`InvalidNameError` and :class:`InvalidAddressError`.
        """
        check_number("consume_concurrency", consume_concurrency, at_most=MAX_CONCURRENCY)
        check_seconds("consume_timeout_seconds", consume_timeout_seconds)
        check_seconds("send_back_timeout_seconds", send_back_timeout_seconds)
        if max_reconsume_times is not None:
            check_number("max_reconsume_times", max_reconsume_times, at_least=0)
        if not callable(listener):
            raise InvalidOptionError("listener", listener, "must be a function of one message")
        options = ConsumerOptions(
            consume_from=consume_from,
            consume_timestamp=consume_timestamp,
            pull_batch_size=pull_batch_size,
            pull_wait_seconds=pull_wait_seconds,
            pull_timeout_seconds=pull_timeout_seconds,
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue_bytes=pull_threshold_size_for_queue_bytes,
            consume_max_span=consume_max_span,
            rebalance_interval_seconds=rebalance_interval_seconds,
            handover_timeout_seconds=handover_timeout_seconds,
            persist_offset_interval_seconds=persist_offset_interval_seconds,
            close_timeout_seconds=close_timeout_seconds,
        )
        self._standing = Standing(
            OwnedParts(
                name_servers,
                transport,
                poll_name_server_interval_seconds=poll_name_server_interval_seconds,
                lookup_timeout_seconds=lookup_timeout_seconds,
                zone=route_zone,
                zone_option="route_zone",
                owner="PushConsumer",
                metrics_hook=metrics_hook,
                clock=clock,
                rng=rng,
            ),
            group=group,
            subscriptions=subscriptions,
            model=message_model,
            client_id=client_id,
            zone=zone,
            offset_file=offset_file,
            rng=rng,
        )
        self._listener = listener
        self._concurrency = consume_concurrency
        self._consume_timeout_seconds = consume_timeout_seconds
        self._max_reconsume_times = max_reconsume_times
        self._send_back_timeout_seconds = send_back_timeout_seconds
        self._make_coordination = make_coordination
        is_clustering = message_model is MessageModel.CLUSTERING
        self._setting = ConsumerSetting(
            group=group,
            client_id=self._standing.client_id,
            model=message_model,
            is_ordered=ordered,
            retries=is_clustering and not ordered,
            shares=True,
            auto_commit=True,
            # The new owner of an ordered queue waits for the lock however long; that of others as long as this.
            finish_seconds=math.inf if ordered else handover_timeout_seconds,
            options=options,
            strategy=strategy or Averagely(),
        )
        self._pool: ListenerPool | None = None
        self._core: GroupConsumer | None = None

    # Life

    async def start(self) -> Self:
        """Join the group and begin to consume; a second call changes nothing. Waits for no broker."""
        parts = self._standing.parts
        await parts.start()
        if self._core is None:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                self._pool = self._make_pool(parts)
                self._core = self._standing.make_core(
                    self._setting, self._make_coordination, is_listener=True, offer=self._offer
                )
                self._pool.start()
                await self._core.start()
                undo.pop_all()
        return self

    async def close(self) -> None:
        """Stop pulling, finish what is in flight, commit, unlock, leave; takes at most ``close_timeout_seconds``, and
        a second more for what does not end when it is cancelled. A second call does nothing."""
        parts = self._standing.parts
        parts.stop_use()
        core, pool = self._core, self._pool
        self._core = self._pool = None
        timeout_seconds = self._setting.options.close_timeout_seconds
        try:
            if core is not None:
                await core.close(timeout_seconds=timeout_seconds * 0.8, finish_seconds=timeout_seconds * 0.5)
        finally:
            if pool is not None:
                await pool.close()
            await parts.close(timeout_seconds=timeout_seconds * 0.2)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # Subscriptions

    @property
    def client(self) -> NameServerClient:
        """The client that it asks for routes."""
        return self._standing.parts.client

    @property
    def client_id(self) -> str:
        """Who this member is in its group."""
        return self._standing.client_id

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read a topic too, or other tags of it, from now on. Every member of the group must do the same."""
        self._standing.subscribe(topic, expression)
        if self._core is not None:
            self._core.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; what is in flight is finished."""
        if self._standing.unsubscribe(topic) and self._core is not None:
            self._core.subscriptions_changed()

    def describe(self) -> dict[str, Any]:
        """The queues held with their positions, ordered queues whose first message fails (``blocked``), the members
        and the subscriptions, as JSON values."""
        if self._core is None or self._pool is None:
            return {"group": self._setting.group, "clientId": self.client_id, "started": False}
        return self._core.describe() | {
            "started": True,
            "listenersRunning": self._pool.running,
            "blocked": self._pool.describe_blocked(),
        }

    def _offer(self, held: HeldQueue) -> None:
        if self._pool is not None:
            self._pool.offer(held)

    def _make_pool(self, parts: OwnedParts) -> ListenerPool:
        setting = self._setting
        is_clustering = setting.model is MessageModel.CLUSTERING
        times = self._max_reconsume_times
        failed = FailedMessages(
            parts.transport,
            group=setting.group,
            brokers=lambda: parts.client.brokers_of(tuple(self._standing.subscriptions)),
            max_reconsume_times=MAX_RECONSUME_TIMES if times is None else times,
            timeout_seconds=self._send_back_timeout_seconds,
            clock=parts.clock,
            hook=parts.metrics_hook,
        )
        return ListenerPool(
            ListenerCaller(self._listener, threads=self._concurrency),
            failed if is_clustering else None,
            group=setting.group,
            concurrency=self._concurrency,
            is_ordered=setting.is_ordered,
            needs_lock=setting.is_ordered and is_clustering,
            max_reconsume_times=times,
            consume_timeout_seconds=self._consume_timeout_seconds,
            clock=parts.clock,
            hook=parts.metrics_hook,
        )
