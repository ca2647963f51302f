"""A consumer with a listener, for programs without an event loop."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pointsman.wire.clock import Clock
from pointsman_client.consumer import push_consumer as async_consumer
from pointsman_client.consumer.agents.agent_coordination import MakeCoordination, agent_coordination
from pointsman_client.consumer.start_offset import ConsumeFrom
from pointsman_client.core.allocation import AllocationStrategy
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import ConsumeResult
from pointsman_client.core.subscription import Subscriptions
from pointsman_client.errors import InvalidOptionError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ownership import TransportOrMaker
from pointsman_client.sync.client import NameServerClient, client_for
from pointsman_client.sync.facade import CALL_TIMEOUT_SECONDS, Facade

Listener = Callable[[ReceivedMessage], ConsumeResult | None]
"""A plain function; it runs in a thread, ``consume_concurrency`` of them at most."""


class PushConsumer(Facade):
    """Calls a listener, a plain function, in threads with each message that falls to this member.

    ::

        with PushConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                          listener=listener, transport=RedisStreamsTransport):
            stop.wait()

    The methods are those of :class:`pointsman_client.PushConsumer`, and raise the same; so are the guarantees.
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
        call_timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> None:
        """See :class:`pointsman_client.PushConsumer`; ``call_timeout_seconds`` is the longest time of a
        call, beyond what it is given itself.

        Give a callable that makes the transport, as ``transport=RedisStreamsTransport``: it is then closed as well.
        """
        if inspect.iscoroutinefunction(listener):
            problem = "must be a plain function: an async one is for pointsman_client.PushConsumer"
            raise InvalidOptionError("listener", listener, problem)
        self._client = client_for(
            name_servers,
            metrics_hook=metrics_hook,
            clock=clock,
            rng=rng,
            call_timeout_seconds=call_timeout_seconds,
            poll_name_server_interval_seconds=poll_name_server_interval_seconds,
            lookup_timeout_seconds=lookup_timeout_seconds,
            zone=route_zone,
        )
        self._consumer = async_consumer.PushConsumer(
            self._client.inner,
            group=group,
            subscriptions=subscriptions,
            listener=listener,
            transport=transport,
            ordered=ordered,
            message_model=message_model,
            consume_from=consume_from,
            consume_timestamp=consume_timestamp,
            strategy=strategy,
            consume_concurrency=consume_concurrency,
            consume_timeout_seconds=consume_timeout_seconds,
            max_reconsume_times=max_reconsume_times,
            pull_batch_size=pull_batch_size,
            pull_wait_seconds=pull_wait_seconds,
            pull_timeout_seconds=pull_timeout_seconds,
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue_bytes=pull_threshold_size_for_queue_bytes,
            consume_max_span=consume_max_span,
            rebalance_interval_seconds=rebalance_interval_seconds,
            handover_timeout_seconds=handover_timeout_seconds,
            persist_offset_interval_seconds=persist_offset_interval_seconds,
            send_back_timeout_seconds=send_back_timeout_seconds,
            close_timeout_seconds=close_timeout_seconds,
            client_id=client_id,
            zone=zone,
            offset_file=offset_file,
            route_zone=route_zone,
            make_coordination=make_coordination,
            metrics_hook=metrics_hook,
            clock=clock,
            rng=rng,
        )
        super().__init__(
            self._consumer,
            call_timeout_seconds=call_timeout_seconds,
            below=None if self._client is name_servers else self._client,
        )

    @property
    def client(self) -> NameServerClient:
        """The client that it asks for routes."""
        return self._client

    @property
    def client_id(self) -> str:
        """Who this member is in its group."""
        return self._consumer.client_id

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read a topic too, or other tags of it, from now on. Every member of the group must do the same."""
        self._look(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; what is in flight is finished."""
        self._look(lambda: self._consumer.unsubscribe(topic))

    def describe(self) -> dict[str, Any]:
        """The queues held with their positions, the members and the subscriptions, as JSON values."""
        return self._look(self._consumer.describe)
