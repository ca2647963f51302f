"""The pull consumer for programs without an event loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from pointsman_client.consumer import pull_consumer as async_consumer
from pointsman_client.consumer.consumer_options import PullConsumerOptions
from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options
from pointsman_client.errors import ClientClosedError
from pointsman_client.sync.client import NameServerClient, client_for, inner_options
from pointsman_client.sync.facade import CallOptions, Facade


@dataclass(frozen=True, kw_only=True)
class SyncPullConsumerOptions(PullConsumerOptions, CallOptions):
    """Options of :class:`PullConsumer`: those of the async one, and the call timeout."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which the caller closes."""


class PullConsumer(Facade):
    """Returns messages on request, with blocking calls.

    ::

        with PullConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                          transport=RedisStreamsTransport) as consumer:
            for message in consumer:
                print(message.body)

    Methods, errors and guarantees are those of :class:`pointsman_client.PullConsumer`. One thread at a time may poll or
    iterate; another one may close the consumer, which ends the iteration.
    """

    @takes_options(SyncPullConsumerOptions)
    def __init__(self, options: SyncPullConsumerOptions) -> None:
        """See :class:`pointsman_client.PullConsumer`.

        Pass a callable that makes the transport, such as ``transport=RedisStreamsTransport``; it is then closed, too.
        """
        seconds = options.call_timeout_seconds
        self._client = client_for(options, zone=options.route_zone, call_timeout_seconds=seconds)
        dependency = None if self._client is options.name_servers else self._client
        self._consumer = async_consumer.PullConsumer(**inner_options(PullConsumerOptions, options, self._client))
        super().__init__(self._consumer, call_timeout_seconds=seconds, dependency=dependency)

    @property
    def client(self) -> NameServerClient:
        """The client that it gets routes from."""
        return self._client

    @property
    def client_id(self) -> str:
        """Id of this member in its group."""
        return self._consumer.client_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Finish the previous message and wait for the next; the iteration ends when the consumer is closed."""

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
        """Finish the previous messages and return up to ``max_poll_messages``, at least one; empty: timeout."""
        return self._call(lambda: self._consumer.poll(timeout_seconds), seconds=timeout_seconds)

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to another topic, or change the tags of one. Every member of the group must do the same."""
        self._invoke(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Remove a topic from the subscription."""
        self._invoke(lambda: self._consumer.unsubscribe(topic))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues currently assigned, sorted."""
        return self._invoke(lambda: self._consumer.assignment)

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues; other queues are committed and released."""
        self._call(lambda: self._consumer.assign(queues))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Return no messages of these queues until they are resumed."""
        self._invoke(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume paused queues."""
        self._invoke(lambda: self._consumer.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset; the committed offset follows, also backwards."""
        self._invoke(lambda: self._consumer.seek(queue, offset))

    def seek_to_time(self, queue: MessageQueue, at: datetime) -> int:
        """Continue at the first message created at or after a time, which must have a time zone; return its offset."""
        return self._call(lambda: self._consumer.seek_to_time(queue, at))

    def commit(self) -> None:
        """Finish the returned messages and commit. Raises the error if a queue could not be committed."""
        self._call(self._consumer.commit)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message; None while the start offset of the queue is unknown."""
        return self._invoke(lambda: self._consumer.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of a queue; None: there is none."""
        return self._call(lambda: self._consumer.committed(queue))

    def health(self) -> ConsumerHealth:
        """Return what keeps this consumer from its work now, for readiness probes."""
        return self._invoke(self._consumer.health)

    def describe(self) -> dict[str, Any]:
        """Return the assigned queues with their positions, the members and the subscriptions, as JSON values."""
        return self._invoke(self._consumer.describe)
