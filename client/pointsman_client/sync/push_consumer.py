"""A consumer with a listener, for programs without an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman_client.client_options import takes_options, values_for
from pointsman_client.consumer import push_consumer as async_consumer
from pointsman_client.consumer.consumer_options import PushConsumerOptions
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import ConsumeResult
from pointsman_client.errors import InvalidOptionError
from pointsman_client.sync.client import NameServerClient, client_for
from pointsman_client.sync.facade import CallOptions, Facade

Listener = Callable[[ReceivedMessage], ConsumeResult | None]


@dataclass(frozen=True, kw_only=True)
class SyncPushConsumerOptions(PushConsumerOptions, CallOptions):
    """Options of :class:`PushConsumer`: those of the async one, and the time of a call."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which stays the caller's."""
    listener: Listener
    """A plain function of one message; it runs in a thread, ``consume_concurrency`` of them at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if inspect.iscoroutinefunction(self.listener):
            problem = "must be a plain function: an async one is for pointsman_client.PushConsumer"
            raise InvalidOptionError("listener", self.listener, problem)


class PushConsumer(Facade):
    """Calls a listener, a plain function, in threads with each message that falls to this member.

    ::

        with PushConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                          listener=listener, transport=RedisStreamsTransport):
            stop.wait()

    The methods are those of :class:`pointsman_client.PushConsumer`, and raise the same; so are the guarantees.
    """

    @takes_options(SyncPushConsumerOptions)
    def __init__(self, options: SyncPushConsumerOptions) -> None:
        """See :class:`pointsman_client.PushConsumer`.

        Give a callable that makes the transport, as ``transport=RedisStreamsTransport``: it is then closed as well.
        """
        seconds = options.call_timeout_seconds
        self._client = client_for(options, zone=options.route_zone, call_timeout_seconds=seconds)
        dependency = None if self._client is options.name_servers else self._client
        inner = values_for(PushConsumerOptions, options) | {"name_servers": self._client.inner}
        self._consumer = async_consumer.PushConsumer(**inner)
        super().__init__(self._consumer, call_timeout_seconds=seconds, dependency=dependency)

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
        self._invoke(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; what is in flight is finished."""
        self._invoke(lambda: self._consumer.unsubscribe(topic))

    def describe(self) -> dict[str, Any]:
        """The queues held with their positions, the members and the subscriptions, as JSON values."""
        return self._invoke(self._consumer.describe)
