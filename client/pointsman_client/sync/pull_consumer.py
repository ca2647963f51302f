"""A consumer that is asked for messages, for programs without an event loop."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pointsman.wire.clock import Clock
from pointsman_client.consumer import pull_consumer as async_consumer
from pointsman_client.consumer.agents.agent_coordination import MakeCoordination, agent_coordination
from pointsman_client.consumer.start_offset import ConsumeFrom
from pointsman_client.core.allocation import AllocationStrategy
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.subscription import Subscriptions
from pointsman_client.errors import ClientClosedError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ownership import TransportOrMaker
from pointsman_client.sync.client import NameServerClient, client_for
from pointsman_client.sync.facade import CALL_TIMEOUT_SECONDS, Facade


class PullConsumer(Facade):
    """Hands out messages when it is asked.

    ::

        with PullConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                          transport=RedisStreamsTransport) as consumer:
            for message in consumer:
                print(message.body)

    The methods are those of :class:`pointsman_client.PullConsumer`, and raise the same; so are the guarantees. One
    thread at a time asks it for messages; another one may close it, which ends the iteration.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | NameServerClient,
        *,
        group: str,
        transport: TransportOrMaker,
        subscriptions: Subscriptions | None = None,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp: datetime | None = None,
        strategy: AllocationStrategy | None = None,
        auto_commit: bool = True,
        max_poll_messages: int = 32,
        pull_batch_size: int = 32,
        pull_wait_seconds: float = 15.0,
        pull_timeout_seconds: float = 5.0,
        pull_threshold_for_queue: int = 1_000,
        pull_threshold_size_for_queue_bytes: int = 100 * 1024 * 1024,
        consume_max_span: int = 2_000,
        rebalance_interval_seconds: float = 20.0,
        handover_timeout_seconds: float = 5.0,
        persist_offset_interval_seconds: float = 5.0,
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
        """See :class:`pointsman_client.PullConsumer`; ``call_timeout_seconds`` is the longest time of a
        call, beyond what it is given itself.

        Give a callable that makes the transport, as ``transport=RedisStreamsTransport``: it is then closed as well.
        """
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
        self._consumer = async_consumer.PullConsumer(
            self._client.inner,
            group=group,
            transport=transport,
            subscriptions=subscriptions,
            message_model=message_model,
            consume_from=consume_from,
            consume_timestamp=consume_timestamp,
            strategy=strategy,
            auto_commit=auto_commit,
            max_poll_messages=max_poll_messages,
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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Finish the message before and wait for the next; the iteration ends when the consumer is closed."""

        async def next_message() -> ReceivedMessage | None:
            return await anext(self._consumer, None)

        try:
            message = self._wait(next_message)
        except ClientClosedError:
            message = None
        if message is None:
            raise StopIteration
        return message

    def poll(self, timeout_seconds: float = 1.0) -> tuple[ReceivedMessage, ...]:
        """Finish those before and return up to ``max_poll_messages``, as soon as there is one; empty after the time."""
        return self._call(lambda: self._consumer.poll(timeout_seconds), seconds=timeout_seconds)

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read a topic too, or other tags of it, from now on. Every member of the group must do the same."""
        self._look(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self._look(lambda: self._consumer.unsubscribe(topic))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are held now, sorted."""
        return self._look(lambda: self._consumer.assignment)

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues from now on; others are committed and let go of."""
        self._call(lambda: self._consumer.assign(queues))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until they are resumed."""
        self._look(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with paused queues."""
        self._look(lambda: self._consumer.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset; the commit follows it, backwards too."""
        self._look(lambda: self._consumer.seek(queue, offset))

    def seek_to_time(self, queue: MessageQueue, at: datetime) -> int:
        """Go on from the first message born at or after a time, which must have a time zone; return its offset."""
        return self._call(lambda: self._consumer.seek_to_time(queue, at))

    def commit(self) -> None:
        """Finish what was handed out, and commit. Raises why a queue could not be committed."""
        self._call(self._consumer.commit)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset that is handed out next; None while the start of the queue is not known."""
        return self._look(lambda: self._consumer.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none."""
        return self._call(lambda: self._consumer.committed(queue))

    def describe(self) -> dict[str, Any]:
        """The queues held with their positions, the members and the subscriptions, as JSON values."""
        return self._look(self._consumer.describe)
