"""A consumer that is asked for messages, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from pointsman_client.client_options import takes_options, values_for
from pointsman_client.consumer import pull_consumer as async_consumer
from pointsman_client.consumer.consumer_options import PullConsumerOptions
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import ClientClosedError
from pointsman_client.sync.client import NameServerClient, client_for
from pointsman_client.sync.facade import CallOptions, Facade


@dataclass(frozen=True, kw_only=True)
class SyncPullConsumerOptions(PullConsumerOptions, CallOptions):
    """Options of :class:`PullConsumer`: those of the async one, and the time of a call."""

    name_servers: str | Sequence[str] | NameServerClient = field(kw_only=False)  # type: ignore[assignment]  # its own kind
    """Addresses, or a started client, which stays the caller's."""


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

    @takes_options(SyncPullConsumerOptions)
    def __init__(self, options: SyncPullConsumerOptions) -> None:
        """See :class:`pointsman_client.PullConsumer`.

        Give a callable that makes the transport, as ``transport=RedisStreamsTransport``: it is then closed as well.
        """
        seconds = options.call_timeout_seconds
        self._client = client_for(options, zone=options.route_zone, call_timeout_seconds=seconds)
        dependency = None if self._client is options.name_servers else self._client
        inner = values_for(PullConsumerOptions, options) | {"name_servers": self._client.inner}
        self._consumer = async_consumer.PullConsumer(**inner)
        super().__init__(self._consumer, call_timeout_seconds=seconds, dependency=dependency)

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
        self._invoke(lambda: self._consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self._invoke(lambda: self._consumer.unsubscribe(topic))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are held now, sorted."""
        return self._invoke(lambda: self._consumer.assignment)

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues from now on; others are committed and let go of."""
        self._call(lambda: self._consumer.assign(queues))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until they are resumed."""
        self._invoke(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with paused queues."""
        self._invoke(lambda: self._consumer.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset; the commit follows it, backwards too."""
        self._invoke(lambda: self._consumer.seek(queue, offset))

    def seek_to_time(self, queue: MessageQueue, at: datetime) -> int:
        """Go on from the first message born at or after a time, which must have a time zone; return its offset."""
        return self._call(lambda: self._consumer.seek_to_time(queue, at))

    def commit(self) -> None:
        """Finish what was handed out, and commit. Raises why a queue could not be committed."""
        self._call(self._consumer.commit)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset that is handed out next; None while the start of the queue is not known."""
        return self._invoke(lambda: self._consumer.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none."""
        return self._call(lambda: self._consumer.committed(queue))

    def describe(self) -> dict[str, Any]:
        """The queues held with their positions, the members and the subscriptions, as JSON values."""
        return self._invoke(self._consumer.describe)
