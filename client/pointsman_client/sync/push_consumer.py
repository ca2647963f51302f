"""The push consumer for programs without an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman_client.consumer import push_consumer as async_consumer
from pointsman_client.consumer.consumer_options import PushConsumerOptions
from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.retry_rules import ConsumeResult
from pointsman_client.errors import InvalidOptionError
from pointsman_client.sync.client import NameServerClient, client_for, inner_options
from pointsman_client.sync.facade import CallOptions, Facade

Listener = Callable[[ReceivedMessage], ConsumeResult | None]
BatchListener = Callable[[Sequence[ReceivedMessage]], ConsumeResult | None]


@dataclass(frozen=True, kw_only=True)
class SyncPushConsumerOptions(PushConsumerOptions, CallOptions):
    """Options of :class:`PushConsumer`: those of the async one, and the call timeout."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which the caller closes."""
    listener: Listener | None = None
    """A plain function of one message; runs in threads, at most ``consume_concurrency`` in parallel."""
    batch_listener: BatchListener | None = None
    """In place of ``listener``: a plain function of several messages of one queue."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, function in (("listener", self.listener), ("batch_listener", self.batch_listener)):
            if inspect.iscoroutinefunction(function):
                problem = "must not be async: use pointsman_client.PushConsumer for an async listener"
                raise InvalidOptionError(option, function, problem)


class PushConsumer(Facade):
    """Calls a listener, a plain function, in threads with each message of the queues assigned to this member.

    ::

        with PushConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                          listener=listener, transport=RedisStreamsTransport):
            stop.wait()

    Methods, errors and guarantees are those of :class:`pointsman_client.PushConsumer`.
    """

    @takes_options(SyncPushConsumerOptions)
    def __init__(self, options: SyncPushConsumerOptions) -> None:
        """See :class:`pointsman_client.PushConsumer`.

        Pass a callable that makes the transport, such as ``transport=RedisStreamsTransport``; it is then closed, too.
        """
        seconds = options.call_timeout_seconds
        self._client = client_for(options, zone=options.route_zone, call_timeout_seconds=seconds)
        dependency = None if self._client is options.name_servers else self._client
        self._consumer = async_consumer.PushConsumer(**inner_options(PushConsumerOptions, options, self._client))
        super().__init__(self._consumer, call_timeout_seconds=seconds, dependency=dependency)

    @property
    def client(self) -> NameServerClient:
        """The client that it gets routes from."""
        return self._client

    @property
    def client_id(self) -> str:
        """Id of this member in its group."""
        return self._consumer.client_id

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to another topic, or change the tags of one. Every member of the group must do the same."""
        self._invoke(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Remove a topic from the subscription; messages in flight are finished."""
        self._invoke(lambda: self._consumer.unsubscribe(topic))

    def health(self) -> ConsumerHealth:
        """Return what keeps this consumer from its work now; see :meth:`pointsman_client.PushConsumer.health`."""
        return self._invoke(self._consumer.health)

    def describe(self) -> dict[str, Any]:
        """Return the assigned queues with their positions, the members and the subscriptions, as JSON values."""
        return self._invoke(self._consumer.describe)
