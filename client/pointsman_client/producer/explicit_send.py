"""Sends to a given queue, and handling of messages while that queue cannot be written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue, write_queue_counts
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.core.sharding import KeyQueues, OrderKey
from pointsman_client.errors import (
    BrokerError,
    BrokerTimeoutError,
    InvalidOptionError,
    NameServersUnavailableError,
    PointsmanError,
    QueueUnavailableError,
    SendFailedError,
    TopicNotFoundError,
)
from pointsman_client.ownership import Resources
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.outbox_sender import OutboxSender
from pointsman_client.producer.producer_options import Fallback, OnUnavailable, Park, ProducerOptions
from pointsman_client.producer.sender import Sender


class ExplicitSends:
    """Sends to given queues for one producer; owns its :class:`Sender` and its outboxes."""

    def __init__(
        self, resources: Resources, sender: Sender, *, options: ProducerOptions, key_queues: KeyQueues
    ) -> None:
        self._resources = resources
        self.sender = sender
        self._key_queues = key_queues
        self._abandoned: set[MessageQueue] = set()
        """Queues with parked messages whose brokers the application declared removed."""
        self._options = options
        self._outbox_senders: dict[Outbox, OutboxSender] = {}
        self._opening = asyncio.Lock()
        self._end_waking = resources.client.on_route_change(lambda _: self._wake())

    async def queue_of_key(
        self, topic: str, key: str, *, second: str | None, on_unavailable: OnUnavailable, deadline: float
    ) -> MessageQueue:
        """Return the key's queue: that of its parked messages if there are any, else that of the map.

        Raises the errors of route lookups, those of :meth:`KeyQueues.queue_of`, and :class:`OutboxFailedError`.
        """
        if isinstance(on_unavailable, Park):
            await self.open(on_unavailable.outbox)
        order_key = self._key_queues.order_key(topic, key, second)
        if order_key is not None:
            for outbox_sender in self._outbox_senders.values():
                queue = outbox_sender.queue_of_key(topic, order_key)
                if queue is not None:
                    return queue
        try:
            return self._key_queues.queue_of(await self.sender.routes.topic_route(topic, deadline), key, second=second)
        except TopicNotFoundError:
            # All its brokers are down: the key stays at its queue.
            queue = self._key_queues.queue_as_seen(topic, key, second=second)
            if queue is None:
                raise
            return queue

    async def send(
        self,
        queue: MessageQueue,
        outgoing: OutgoingMessage,
        *,
        on_unavailable: OnUnavailable,
        deadline: float,
        order_key: OrderKey | None = None,
    ) -> SendResult:
        """Send to this queue in one attempt, or apply ``on_unavailable``.

        A message that is parked makes its order key keep this queue until it is sent. After an attempt without a
        response the message may have been stored; parked or sent to another queue it is then stored twice. Raises
        :class:`QueueUnavailableError`, :class:`SendFailedError`, :class:`OutboxFullError` and
        :class:`OutboxFailedError`.
        """
        match on_unavailable:
            case Park(outbox):
                return await self._send_or_park(queue, outgoing, await self.open(outbox), deadline, order_key)
            case Fallback():
                return await self._send_or_fall_back(queue, outgoing, on_unavailable, deadline)
            case _:
                return await self._send_to(queue, outgoing, deadline)

    async def open(self, outbox: Outbox) -> OutboxSender:
        """Return the outbox's sender; on first use, open the outbox and start to send its messages."""
        async with self._opening:
            outbox_sender = self._outbox_senders.get(outbox)
            if outbox_sender is None:
                outbox_sender = self._outbox_sender(outbox)
                try:
                    await outbox_sender.start()
                except asyncio.CancelledError:
                    await outbox_sender.close(timeout_seconds=1.0)
                    raise
                self._outbox_senders[outbox] = outbox_sender
            return outbox_sender

    def drop_absent(self, topic: str) -> None:
        """Let parked messages follow their keys from brokers that are not in the topic's route."""
        for outbox_sender in self._outbox_senders.values():
            self._abandoned |= {queue for queue in outbox_sender.queues if queue.topic == topic}
        self._wake()

    @property
    def parked(self) -> int:
        """Number of messages in outboxes."""
        return sum(outbox_sender.waiting for outbox_sender in self._outbox_senders.values())

    async def close(self, *, timeout_seconds: float) -> None:
        """Close the outboxes, whose files retain unsent messages, and the sender."""
        self._end_waking()
        closings = [
            outbox_sender.close(timeout_seconds=timeout_seconds) for outbox_sender in self._outbox_senders.values()
        ]
        await asyncio.gather(self.sender.close(timeout_seconds=timeout_seconds), *closings)

    def _wake(self) -> None:
        self._abandoned = {queue for queue in self._abandoned if self._write_queues(queue) is None}
        for outbox_sender in self._outbox_senders.values():
            outbox_sender.wake()

    def _write_queues(self, queue: MessageQueue) -> int | None:
        """Return the number of write queues that the queue's broker has of the topic; None: it is not in the route."""
        cached = self._resources.client.cached_route(queue.topic)
        return None if cached is None else write_queue_counts(cached.route).get(queue.broker_key)

    def _queues_instead(self, queue: MessageQueue) -> Callable[[OrderKey], MessageQueue] | None:
        cached, write_queues = self._resources.client.cached_route(queue.topic), self._write_queues(queue)
        is_abandoned = queue in self._abandoned
        self._abandoned.discard(queue)
        is_removed = is_abandoned if write_queues is None else queue.queue_id >= write_queues
        if cached is None or not is_removed:
            return None
        route = cached.route

        def queue_of(order_key: OrderKey) -> MessageQueue:
            try:
                return self._key_queues.queue_of(route, order_key.key, second=order_key.second)
            except PointsmanError:
                return queue

        return queue_of

    def _outbox_sender(self, outbox: Outbox) -> OutboxSender:
        clock, seconds = self._resources.clock, self._options.send_msg_timeout_seconds
        return OutboxSender(
            outbox,
            clock=clock,
            send=lambda queue, messages: self.sender.send_to(queue, messages, deadline=clock.monotonic() + seconds),
            queues_instead=self._queues_instead,
            max_batch_size=self._options.max_message_size,
            metrics_hook=self._resources.metrics_hook,
        )

    async def _send_or_park(
        self,
        queue: MessageQueue,
        outgoing: OutgoingMessage,
        outbox_sender: OutboxSender,
        deadline: float,
        order_key: OrderKey | None,
    ) -> SendResult:
        tries = 0
        is_new = self.sender.routes.is_new(queue)
        # Messages parked before must be sent first: a queue is chosen for its order.
        if not outbox_sender.is_waiting_for(queue):
            try:
                return await self._send_to(queue, outgoing, deadline)
            except (QueueUnavailableError, NameServersUnavailableError, SendFailedError, TopicNotFoundError) as error:
                # A topic leaves the routes with its last broker, but the caller has a queue of it: park the message.
                _raise_if_refused(error)
                if is_new:
                    raise  # Another broker may create the topic, and then this queue never exists.
                tries = _tries_of(error)
        self.sender.check(queue, outgoing)
        await outbox_sender.put(queue, outgoing, order_key)
        return SendResult(outgoing.message_id, queue, queue_offset=None, status=None, tries=tries)

    async def _send_or_fall_back(
        self, queue: MessageQueue, outgoing: OutgoingMessage, fallback: Fallback, deadline: float
    ) -> SendResult:
        now = self._resources.clock.monotonic()
        try:
            # If the broker hangs, half of the time remains for the other queue.
            return await self._send_to(queue, outgoing, now + (deadline - now) / 2)
        except (QueueUnavailableError, SendFailedError) as error:
            _raise_if_refused(error)
            tries = _tries_of(error)
            info = await self.sender.publish_info(queue.topic, deadline)
            other = fallback.queue_instead_of(queue, info.queues)
            check_queue("on_unavailable", other, queue.topic)
            result = await self._send_to(other, outgoing, deadline)
            return result._replace(tries=tries + result.tries)

    async def _send_to(self, queue: MessageQueue, outgoing: OutgoingMessage, deadline: float) -> SendResult:
        (result,) = await self.sender.send_to(queue, [outgoing], deadline=deadline)
        return result


def check_queue(option: str, queue: object, topic: str) -> None:
    """Raise :class:`InvalidOptionError` unless ``queue``, which a user's function returned, is one of the topic."""
    if not isinstance(queue, MessageQueue) or queue.topic != topic:
        raise InvalidOptionError(option, queue, f"is not a queue of topic {topic}")


def _tries_of(error: PointsmanError) -> int:
    """Return the number of calls to a broker before this error."""
    return 1 if isinstance(error.__cause__, BrokerError) else 0


def _raise_if_refused(error: PointsmanError) -> None:
    """Raise an error that a retry cannot fix, so that such a message is not parked."""
    if not isinstance(error, SendFailedError) or not error.tries:
        return
    if not isinstance(error.tries[-1].error, BrokerTimeoutError):
        raise error
