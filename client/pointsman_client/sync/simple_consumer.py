"""The simple consumer for programs without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pointsman_client.consumer import simple_consumer as async_consumer
from pointsman_client.consumer.consumer_options import SimpleConsumerOptions
from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.option_fields import takes_options
from pointsman_client.errors import ClientClosedError
from pointsman_client.sync.client import NameServerClient, client_for, inner_options
from pointsman_client.sync.facade import CallOptions, Facade


@dataclass(frozen=True, kw_only=True)
class SyncSimpleConsumerOptions(SimpleConsumerOptions, CallOptions):
    """Options of :class:`SimpleConsumer`: those of the async one, and the call timeout."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which the caller closes."""


class SimpleConsumer(Facade):
    """Receives messages for a limited time and acknowledges them, with blocking calls.

    ::

        with SimpleConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                            transport=RedisStreamsTransport) as consumer:
            for message in consumer:
                print(message.body)

    Methods, errors and guarantees are those of :class:`pointsman_client.SimpleConsumer`. Any number of threads may
    receive and acknowledge, and one may iterate; another one may close the consumer, which ends the iteration.
    """

    @takes_options(SyncSimpleConsumerOptions)
    def __init__(self, options: SyncSimpleConsumerOptions) -> None:
        """See :class:`pointsman_client.SimpleConsumer`.

        Pass a callable that makes the transport, such as ``transport=RedisStreamsTransport``; it is then closed, too.
        """
        seconds = options.call_timeout_seconds
        self._client = client_for(options, zone=options.route_zone, call_timeout_seconds=seconds)
        dependency = None if self._client is options.name_servers else self._client
        self._consumer = async_consumer.SimpleConsumer(**inner_options(SimpleConsumerOptions, options, self._client))
        super().__init__(self._consumer, call_timeout_seconds=seconds, dependency=dependency)

    @property
    def client(self) -> NameServerClient:
        """The client that it gets routes from."""
        return self._client

    @property
    def client_id(self) -> str:
        """Id of this member in its group."""
        return self._consumer.client_id

    def receive(
        self,
        max_messages: int | None = None,
        invisible_seconds: float | None = None,
        *,
        timeout_seconds: float = 15.0,
    ) -> tuple[ReceivedMessage, ...]:
        """Return up to ``max_messages`` as soon as there is one; empty: timeout."""
        return self._call(
            lambda: self._consumer.receive(max_messages, invisible_seconds, timeout_seconds=timeout_seconds),
            seconds=timeout_seconds,
        )

    def ack(self, *messages: ReceivedMessage) -> None:
        """Acknowledge received messages: they are not delivered again."""
        self._call(lambda: self._consumer.ack(*messages))

    def change_invisible_duration(self, message: ReceivedMessage, invisible_seconds: float) -> None:
        """Let the message come back ``invisible_seconds`` from now, unless it is acknowledged before."""
        self._call(lambda: self._consumer.change_invisible_duration(message, invisible_seconds))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Acknowledge the previous message and wait for the next; the iteration ends when the consumer is closed."""

        async def next_message() -> ReceivedMessage | None:
            return await anext(self._consumer, None)

        try:
            message = self._wait(next_message)
        except ClientClosedError:
            message = None
        if message is None:
            raise StopIteration
        return message

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to another topic, or change the tags of one. Every member of the group must do the same."""
        self._invoke(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Remove a topic from the subscription."""
        self._invoke(lambda: self._consumer.unsubscribe(topic))

    def health(self) -> ConsumerHealth:
        """Return what keeps this consumer from its work now, for readiness probes."""
        return self._invoke(self._consumer.health)

    def describe(self) -> dict[str, Any]:
        """Return queues with the group's progress, leases, members and subscriptions, as JSON values."""
        return self._invoke(self._consumer.describe)
